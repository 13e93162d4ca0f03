"""A real server, real clients: what it answers, what it refuses, and how it ends."""

import asyncio
import base64
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest

import regard
from regard.serve.limits import ServerLimits
from tests.serve.conftest import Served

ROOT = Path(__file__).parents[2]


@pytest.fixture
def client(served):
    with served.client() as client:
        yield client


@pytest.fixture
def official(served):
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)


def complete(client, **asked):
    return client.post("/v1/completions", json={"model": "writer", **asked})


# What it answers.


def test_the_official_client_completes_and_streams(official, folders):
    whole = official.completions.create(
        model="writer", prompt="ROMEO:", max_tokens=20, temperature=0
    )
    run = regard.load(folders["writer"], "decode.kind=greedy", "decode.max_new_tokens=20")
    assert whole.choices[0].text == run.predict(["ROMEO:"])[0].output
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 20 and whole.usage.prompt_tokens == 6
    pieces = list(
        official.completions.create(
            model="writer", prompt="ROMEO:", max_tokens=20, temperature=0, stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    assert len(pieces) > 5
    assert "".join(p.choices[0].text for p in pieces if p.choices) == whole.choices[0].text
    assert pieces[-1].usage.total_tokens == 26


def test_drawn_answers_are_those_of_the_shell(official, folders):
    settings = ("decode.kind=sample", "decode.seed=7", "decode.temperature=0.8")
    run = regard.load(folders["writer"], *settings, "decode.max_new_tokens=15",
                      "decode.num_return_sequences=3")  # fmt: skip
    wanted = [text for text, _ in run.predict(["JULIET:"])[0].nbest]
    found = official.completions.create(
        model="writer", prompt="JULIET:", max_tokens=15, temperature=0.8, seed=7, n=3
    )
    assert [choice.text for choice in found.choices] == wanted


def test_several_prompts_stops_and_logprobs(official):
    found = official.completions.create(
        model="writer",
        prompt=["ROMEO:", "A", "JULIET:"],
        max_tokens=9,
        temperature=0,
        logprobs=3,
    )
    assert [choice.index for choice in found.choices] == [0, 1, 2]
    for choice in found.choices:
        told = choice.logprobs
        assert len(told.tokens) == len(told.token_logprobs) == 9
        assert all(len(top) == 3 for top in told.top_logprobs)
        for name, log, top in zip(told.tokens, told.token_logprobs, told.top_logprobs, strict=True):
            assert log == pytest.approx(max(top.values()), abs=1e-5), name
    first = found.choices[0].text
    stopped = official.completions.create(
        model="writer", prompt="ROMEO:", max_tokens=9, temperature=0, stop=[first[3]]
    )
    assert stopped.choices[0].text == first[: first.index(first[3])]
    assert stopped.choices[0].finish_reason == "stop"


def test_echo_with_logprobs_as_evaluation_harnesses_ask(client, folders):
    """lm-evaluation-harness: echo the prompt with its log-probabilities and one token more."""
    run = regard.load(folders["writer"])
    text = "To be, or not"
    asked = {"prompt": text, "max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0}
    choice = complete(client, **asked).json()["choices"][0]
    assert choice["text"].startswith(text)
    told = choice["logprobs"]
    wanted = run.logprobs(text)
    assert told["token_logprobs"][0] is None and len(told["tokens"]) == len(wanted) + 1
    for (_, log), found in zip(wanted[1:], told["token_logprobs"][1:-1], strict=True):
        assert found == pytest.approx(log, abs=1e-4)
    assert all(len(top) == 1 for top in told["top_logprobs"][1:])
    ids = run.task.ids(text)
    same = complete(client, **{**asked, "prompt": ids, "max_tokens": 0}).json()["choices"][0]
    assert same["logprobs"]["token_logprobs"][1:] == pytest.approx(
        told["token_logprobs"][1:-1], abs=1e-4
    )


def test_a_translator_completes_too(client, trained):
    lines = ["two red cats", "one dogs and ten cats"]
    run = regard.load(trained.folder)
    wanted = [answer.output for answer in run.predict(lines)]
    asked = {"model": "toy", "prompt": lines, "num_beams": 3}
    found = client.post("/v1/completions", json=asked).json()
    assert [choice["text"] for choice in found["choices"]] == wanted
    greedy = regard.load(trained.folder, "decode.kind=greedy").predict(lines)
    asked = {"model": "toy", "prompt": lines, "temperature": 0}
    found = client.post("/v1/completions", json=asked).json()
    assert [choice["text"] for choice in found["choices"]] == [a.output for a in greedy]


def test_any_task_predicts(client):
    one = client.post("/predict", json={"model": "judge", "inputs": "not bad"}).json()
    assert one["label"] in ("negative", "positive") and one["seconds"] >= 0
    many = client.post("/predict", json={"model": "toy", "inputs": ["two cats", "one dogs"]}).json()
    assert [answer["input"] for answer in many] == ["two cats", "one dogs"]
    asked = {"model": "toy", "inputs": "two cats", "parameters": {"num_return_sequences": 2}}
    assert len(client.post("/predict", json=asked).json()["nbest"]) == 2


def test_vectors(official, client, folders):
    found = official.embeddings.create(model="vectors", input=["A man eats.", "Stocks fell."])
    run = regard.load(folders["vectors"])
    wanted = np.array([a.vector for a in run.predict(["A man eats.", "Stocks fell."])])
    assert np.abs(np.array([row.embedding for row in found.data]) - wanted).max() < 1e-5
    packed = client.post(
        "/v1/embeddings",
        json={"model": "vectors", "input": "A man eats.", "encoding_format": "base64"},
    ).json()
    raw = base64.b64decode(packed["data"][0]["embedding"])
    assert np.abs(np.array(struct.unpack(f"<{len(raw) // 4}f", raw)) - wanted[0]).max() < 1e-5


def test_a_deeper_look_is_what_python_gives(client, trained):
    asked = {"model": "toy", "view": "layers", "inputs": ["two red cats"]}
    found = client.post("/inspect", json=asked).json()
    assert found["layers"] == trained.layers("two red cats").data()["layers"]
    assert found["svg"].lstrip().startswith("<?xml") and "<svg" in found["svg"]
    field = client.post("/inspect", json={**asked, "view": "field", "token": "red"}).json()
    assert field["token"] == trained.field("two red cats", "red").data()["token"]
    word = {**asked, "view": "word", "token": "red", "inputs": ["two red cats", "a red dog"]}
    assert client.post("/inspect", json=word).json()["sentences"] == word["inputs"]
    heads = client.post("/inspect", json={**asked, "view": "heads"}).json()
    assert len(heads["heads"]) == len(trained.heads(["two red cats"]).data()["heads"])
    refused = client.post("/inspect", json={**asked, "view": "word"})
    assert refused.status_code == 422
    assert "the view word is of a token" in refused.json()["error"]["message"]


def test_attention_is_what_see_shows(client, trained):
    found = client.post("/attention", json={"model": "toy", "input": "two red cats"}).json()
    sight = trained.see("two red cats")
    assert found["output"] == sight.output and len(found["looks"]) == len(sight.looks)
    for mine, look in zip(found["looks"], sight.looks, strict=True):
        assert mine["name"] == look.name and mine["rows"] == look.rows
        assert np.abs(np.array(mine["weights"]) - look.weights).max() < 1e-3
    some = {"model": "toy", "input": "two red cats", "layers": [-1], "heads": [1]}
    found = client.post("/attention", json=some).json()
    assert all(len(look["weights"]) == 1 for look in found["looks"])
    more = client.post("/attention", json={**some, "ablate": True}).json()["ablation"]
    assert len(more["heads"]) == 6 and more["output"] == sight.output
    steps = found["generation"]["steps"]
    assert all(0 <= step["probability"] <= 1 and len(step["candidates"]) == 5 for step in steps)
    nodes = found["generation"]["beam"]["nodes"]
    assert any(not node["kept"] for node in nodes) and any(node["final"] for node in nodes)


def test_what_is_there_and_how_it_is(client):
    models = client.get("/v1/models").json()["data"]
    names = [model["id"] for model in models]
    assert names == ["toy", "writer", "judge", "vectors"]
    assert [model["gives"]["kind"] for model in models] == ["text"] * 4
    assert models[0]["gives"]["labels"] == ["text to translate"]
    assert client.get("/health").json() == {"status": "ok", "models": names}
    complete(client, prompt="A", max_tokens=3)
    text = client.get("/metrics").text
    assert 'regard_requests_total{route="/v1/completions",status="200"}' in text
    assert (
        'regard_tokens_total{kind="completion"}' in text and 'regard_rows{model="writer"}' in text
    )
    assert "regard_time_to_first_token_seconds_count" in text
    assert "/v1/completions" in client.get("/openapi.json").json()["paths"]


# Many at once.


def test_under_load_each_is_answered_as_if_alone(served, folders):
    chance = random.Random(3)
    prompts = ["".join(chance.choices("ROMEO ABC:\n", k=chance.randint(1, 60))) for _ in range(48)]
    run = regard.load(folders["writer"], "decode.kind=greedy", "decode.max_new_tokens=25")
    wanted = [run.predict([prompt])[0].output for prompt in prompts]

    async def ask(client, prompt, stream):
        body = {"model": "writer", "prompt": prompt, "max_tokens": 25, "temperature": 0}
        if not stream:
            answer = await client.post("/v1/completions", json=body)
            return answer.json()["choices"][0]["text"]
        text = ""
        async with client.stream(
            "POST", "/v1/completions", json={**body, "stream": True}
        ) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
        return text

    async def everyone():
        async with httpx.AsyncClient(base_url=served.url, timeout=60) as client:
            jobs = [ask(client, prompt, i % 2) for i, prompt in enumerate(prompts)]
            return await asyncio.gather(*jobs)

    assert asyncio.run(everyone()) == wanted
    engine = served.hosted[1].engine
    assert engine.tokens > engine.steps, "they were written together"


def test_a_client_that_goes_away_frees_its_place(served):
    engine = served.hosted[1].engine
    body = {"model": "writer", "prompt": "A", "max_tokens": 60, "stream": True, "n": 8}
    for _ in range(6):
        with (
            served.client() as client,
            client.stream("POST", "/v1/completions", json=body) as answer,
        ):
            next(answer.iter_lines())
    until = time.time() + 10
    while engine.load != {"waiting": 0, "running": 0, "rows": 0}:
        assert time.time() < until, engine.load
        time.sleep(0.02)


# What it refuses.


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"prompt": "a", "max_tokens": 10**6}, 422, "max_tokens: at most 400, but is 1000000."),
        ({"prompt": "a", "max_tokens": -1}, 422, "max_tokens:"),
        ({"prompt": "a", "temperature": -0.1}, 422, "temperature:"),
        ({"prompt": "a", "top_p": 1.5}, 422, "top_p:"),
        ({"prompt": "a", "n": 99}, 422, "n: at most 16, but is 99."),
        ({"prompt": "a", "n": 3, "temperature": 0}, 422, "n: temperature 0 has one answer"),
        ({"prompt": "a", "num_beams": 99}, 422, "num_beams: at most 16"),
        ({"prompt": "a", "num_beams": 2, "top_p": 0.5}, 422, "top_p: a beam draws nothing"),
        ({"prompt": "a", "num_beams": 2, "temperature": 0.7}, 422, "temperature: a beam draws"),
        ({"prompt": ["a"] * 9}, 422, "prompt: from 1 to 8 texts, but there are 9."),
        ({"prompt": []}, 422, "prompt: from 1 to 8 texts, but there are 0."),
        ({"prompt": "a" * 3000}, 422, "prompt 1: it may have 256 tokens, but has 3000."),
        ({"prompt": [10**6]}, 422, "prompt: a token must be from 0 to"),
        ({"prompt": "日"}, 422, "every character must be one that the model has met"),
        ({"prompt": "a", "stop": [""]}, 422, "a text to stop at must not be empty"),
        ({"prompt": "a", "tempretur": 1}, 422, "tempretur: Extra inputs are not permitted"),
        ({"prompt": "a", "model": "nobody"}, 404, "model: no 'nobody'; there are toy, writer"),
        ({"prompt": "a", "model": "judge"}, 422, "judge (classify) does not write; ask /predict"),
        ({}, 422, "prompt: Field required."),
        ({"prompt": "a", "best_of": 5}, 422, "best_of: must be n"),
        ({"prompt": "two", "model": "toy", "echo": True}, 422, "echo: a translator's prompt"),
    ],
)  # fmt: skip
def test_every_refusal_names_the_field_and_the_limit(client, body, status, message):
    answer = complete(client, **body)
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([1], "inputs: "),
        ({"text": "a"}, "input 1: must be a text, but is an object."),
        (["a", ["a", "b"]], "input 2: must be a text, but is a list."),
        (["a", "a\tb"], "input 2: there must be one text, but a tab divides it in two."),
    ],
)
def test_inputs_of_another_form_are_refused(client, inputs, message):
    answer = client.post("/predict", json={"model": "judge", "inputs": inputs})
    assert answer.status_code == 422, answer.text
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 422), (b"{", 422), (b"\xff\xfe", 422), (b"[]", 422), (b"null", 422), (b"1e999", 422),
        (b'{"prompt": "\\ud800", "model": "writer"}', 422), (b'{"prompt": NaN}', 422),
        (b'{"prompt": "a", "model": "writer", "temperature": NaN}', 422),
        (b'{"prompt": "a", "model": "writer", "temperature": 1e400}', 422),
        (b'{"prompt": "a", "model": "writer", "seed": 99999999999999999999999}', 422),
        (b"[" * 50_000, 422), (b'{"prompt": "' + b"a" * 300_000 + b'"}', 413),
    ],
)  # fmt: skip
def test_broken_bodies(client, raw, status):
    answer = client.post(
        "/v1/completions", content=raw, headers={"content-type": "application/json"}
    )
    assert answer.status_code == status and answer.json()["error"]["message"]


def test_a_body_without_a_stated_length_is_counted_too(client):
    def body():
        for _ in range(60):
            yield b" " * 10_000

    answer = client.post("/predict", content=body(), headers={"content-type": "application/json"})
    assert answer.status_code == 413 and "200000 bytes" in answer.json()["error"]["message"]


def test_nothing_of_the_disk_is_told(client, folders):
    texts = [
        client.get(path).text for path in ("/v1/models", "/health", "/metrics", "/openapi.json")
    ]
    texts += [client.get("/page/../../etc/passwd").text, client.get("/page/nothing.js").text]
    texts.append(client.post("/predict", json={"model": "judge", "inputs": "a\tb"}).text)
    for text in texts:
        assert str(folders["writer"].parent) not in text and str(ROOT) not in text
        assert "Traceback" not in text


def test_the_page_is_guarded(client):
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "<script>" not in page.text and "onclick" not in page.text
    for name in ("style.css", "views.js", "page.js"):
        assert client.get(f"/page/{name}").status_code == 200
    assert (
        "access-control-allow-origin" not in client.get("/", headers={"origin": "http://x"}).headers
    )


def test_odd_requests_and_no_fault(client):
    """A fuzzer over the routes: whatever is sent, the answer is below 500."""
    chance = random.Random(0)
    values = [None, True, -1, 0, 1, 2**63, 1.5, -1e308, "", "a", "\x00", "<script>"]
    values += [[], ["a"], [1], {}, {"a": 1}]
    names = ["prompt", "model", "max_tokens", "temperature", "n", "stream", "stop", "seed", "echo"]
    names += ["logprobs", "inputs", "parameters", "input", "target", "layers", "heads", "top_p"]
    for number in range(int(os.environ.get("REGARD_FUZZ", "250"))):
        body = {chance.choice(names): chance.choice(values) for _ in range(chance.randint(0, 5))}
        if chance.random() < 0.7:
            body["model"] = chance.choice(["writer", "toy", "judge"])
        if body.get("max_tokens") in (None, 2**63):
            body["max_tokens"] = 2
        route = chance.choice(
            ["/v1/completions", "/predict", "/attention", "/v1/embeddings", "/inspect"]
        )
        answer = client.post(route, json=body)
        assert answer.status_code < 500, (number, route, body, answer.text)


def test_its_own_description_holds(served):
    """Requests made from /openapi.json: none is answered by a fault of the server."""
    import schemathesis
    from hypothesis import HealthCheck, given, settings

    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    for path in ("/v1/completions", "/predict", "/attention", "/v1/embeddings", "/inspect"):
        strategy = schema[path]["POST"].as_strategy()

        @given(case=strategy)
        @settings(max_examples=40, deadline=None, database=None,
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        def ask(case):
            assert case.call(base_url=served.url).status_code < 500

        ask()


def test_a_key_is_asked_for_everywhere_but_for_health(folders):
    server = Served([folders["judge"]], ServerLimits(), api_key="sesam")
    try:
        with server.client() as client:
            assert client.get("/health").status_code == 200
            for path in ("/", "/v1/models", "/metrics", "/openapi.json", "/page/views.js"):
                assert client.get(path).status_code == 401
                assert (
                    client.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
                )
                assert (
                    client.get(path, headers={"Authorization": "Bearer sesam"}).status_code == 200
                )
            assert client.get("/", auth=("any", "sesam")).status_code == 200
            assert client.get("/", headers={"Authorization": "Basic !"}).status_code == 401
            answer = client.post(
                "/predict", json={"inputs": "fine"}, headers={"X-API-Key": "sesam"}
            )
            assert answer.json()["label"], "with one run, model may be left out"
    finally:
        server.close()


def test_too_many_are_turned_away_and_time_is_bounded(folders):
    limits = ServerLimits(rows=1, waiting=2, seconds=0.5, new_tokens=64)
    server = Served([folders["writer"]], limits)
    engine = server.hosted[0].engine
    slow, real = threading.Event(), engine.model.step

    def step(*args):
        if not slow.is_set():
            time.sleep(0.05)
        return real(*args)

    engine.model.step = step
    try:
        with server.client() as client:
            body = {"prompt": "A", "max_tokens": 60, "temperature": 0}
            statuses = []

            def ask():
                statuses.append(client.post("/v1/completions", json=body))

            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            codes = sorted(answer.status_code for answer in statuses)
            assert set(codes) == {429, 503}, codes
            assert all(answer.headers["retry-after"] == "1" for answer in statuses)
            slow.set()
            assert client.post("/v1/completions", json={**body, "max_tokens": 2}).status_code == 200
    finally:
        server.close()


def test_no_memory_for_one_leaves_the_others(served, client):
    hosted = served.hosted[2]
    real = hosted.task.predict

    def predict(model, inputs, *more):
        if inputs == ["huge"]:
            raise MemoryError
        return real(model, inputs, *more)

    hosted.task.predict = predict
    try:
        answer = client.post("/predict", json={"model": "judge", "inputs": "huge"})
        assert (
            answer.status_code == 503 and "not enough memory" in answer.json()["error"]["message"]
        )
        assert client.post("/predict", json={"model": "judge", "inputs": "fine"}).status_code == 200
    finally:
        hosted.task.predict = real


def test_silent_and_slow_clients_hold_nobody_up(served, client):
    silent = []
    for _ in range(300):
        one = socket.create_connection(("127.0.0.1", served.port))
        silent.append(one)
    body = json.dumps({"model": "writer", "prompt": "A", "max_tokens": 40, "stream": True}).encode()
    slow = socket.create_connection(("127.0.0.1", served.port))
    slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n%s" % (len(body), body))  # fmt: skip
    slow.recv(1)
    began = time.perf_counter()
    assert complete(client, prompt="A", max_tokens=5).status_code == 200
    assert time.perf_counter() - began < 5
    for one in (*silent, slow):
        one.close()


def test_memory_stays_flat(served, client):
    """A bounded soak; benchmarks/serve.py has the long one."""
    import psutil

    process = psutil.Process()

    def ask(count):
        for number in range(count):
            complete(client, prompt="A" * (1 + number % 40), max_tokens=2, temperature=0)

    ask(40)
    before = process.memory_info().rss
    ask(160)
    assert process.memory_info().rss - before < 40 * 2**20


# The command.


def start(folder, *more, port=0):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = port or free.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "regard", "serve", str(folder), "--port", str(port), *more]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=env, **pipes)
    url = f"http://127.0.0.1:{port}"
    for _ in range(400):
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                break
        except httpx.HTTPError:
            time.sleep(0.05)
        assert process.poll() is None, process.stderr.read()
    return process, url, port


def test_it_finishes_what_runs_and_refuses_what_is_new(folders, tmp_path):
    shutil.copytree(folders["writer"], tmp_path / "writer")
    process, url, port = start(tmp_path / "writer")
    try:
        shutil.rmtree(tmp_path / "writer")  # all that is needed is in memory
        body = {"prompt": "A", "max_tokens": 400, "stream": True, "temperature": 0}
        other = subprocess.run(
            [sys.executable, "-m", "regard", "serve", str(folders["judge"]), "--port", str(port)],
            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert other.returncode == 2 and "cannot be served (Address already in use)" in other.stderr
        body["max_tokens"] = 50
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=30) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = list(lines)
        assert any(line == "data: [DONE]" for line in rest), "what ran was finished"
        assert process.wait(20) in (0, -signal.SIGTERM, 143)
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{url}/health")
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def test_bound_wider_without_a_key_it_warns(folders, main):
    said = main("serve", folders["judge"], folders["judge"], "--host", "0.0.0.0", status=2)
    assert "0.0.0.0 can be reached by others, and there is no --api-key" in said.err
    assert "two runs are called 'judge'" in said.err
    said = main("serve", folders["judge"], "--max-queue", "0", status=2)
    assert "every limit must be above 0, but waiting is 0" in said.err
