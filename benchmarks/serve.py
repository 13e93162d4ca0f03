"""Serving GPT-2-small-sized weights: many clients at once, against one at a time and others.

    python benchmarks/serve.py [--clients 64] [--tokens 32] [--soak 20000] [--quick]

Weights are random. Every client streams one completion from a prompt of its own; the server runs
in a process of its own, and so does the peer, `transformers serve`, with continuous batching and
without; the quicker of the two counts. All answers are compared with those of one request alone.
The soak asks a tiny model again and again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx
import psutil
from measure import processor, tell, versions

ROOT = Path(__file__).parents[1]


def make_folder(folder: Path, quick: bool) -> None:
    """GPT-2's sizes with random weights, and a vocabulary of as many entries."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    size = 1000 if quick else 50257
    small = {"n_embd": 64, "n_layer": 2, "n_head": 4} if quick else {}
    config = GPT2Config(vocab_size=size, bos_token_id=size - 1, eos_token_id=size - 1, **small)
    GPT2LMHeadModel(config).save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*letters, *(f"~{i}~" for i in range(size - 1 - len(letters))), "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")


class Server:
    """A program on a loopback port."""

    def __init__(self, command: list[str], port: int) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
        self.url, self.process = f"http://127.0.0.1:{port}", subprocess.Popen(command, env=env)
        while True:
            try:
                httpx.get(f"{self.url}/health")
                return
            except httpx.HTTPError:
                assert self.process.poll() is None, "the server did not start"
                time.sleep(0.1)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def ours(run: Path, *more: str) -> Server:
    port = free_port()
    command = [sys.executable, "-m", "regard", "serve", str(run), "--port", str(port), *more]
    return Server(command, port)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def stream(client: httpx.AsyncClient, body: dict) -> tuple[float, str, int]:
    """Seconds to the first token, the text, and how many tokens came."""
    began, first, text, count = time.perf_counter(), 0.0, "", 0
    async with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                choice = json.loads(line[6:])["choices"][0]
                first = first or time.perf_counter() - began
                text += choice["text"]
                count += len((choice["logprobs"] or {"tokens": []})["tokens"])
    return first, text, count


def load(server: Server, bodies: list[dict]) -> tuple[float, list[tuple[float, str, int]]]:
    async def everyone() -> list[tuple[float, str, int]]:
        limits = httpx.Limits(max_connections=len(bodies))
        async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as client:
            return await asyncio.gather(*(stream(client, body) for body in bodies))

    began = time.perf_counter()
    found = asyncio.run(everyone())
    return time.perf_counter() - began, found


def peer_load(server: Server, model: str, bodies: list[dict]) -> float:
    """Seconds until all have their whole answers."""

    def asked(body: dict) -> dict:
        return {"model": model, **{k: v for k, v in body.items() if k != "logprobs"}}

    async def everyone() -> None:
        async with httpx.AsyncClient(base_url=server.url, timeout=600) as client:
            jobs = (client.post("/v1/completions", json=asked(body)) for body in bodies)
            for answer in await asyncio.gather(*jobs):
                assert answer.status_code == 200, answer.text
                assert answer.json()["usage"]["completion_tokens"] == bodies[0]["max_tokens"]

    began = time.perf_counter()
    asyncio.run(everyone())
    return time.perf_counter() - began


def peers(folder: Path, bodies: list[dict], rounds: int) -> dict[str, list[float]]:
    """Seconds for 16 clients, with continuous batching and without."""
    found = {}
    for way in ("--no-continuous-batching", "--continuous-batching"):
        port = free_port()
        program = Path(sys.executable).with_name("transformers")
        command = [str(program), "serve", str(folder), "--device", "cpu", "--port", str(port), way]
        peer = Server(command, port)
        peer_load(peer, str(folder), bodies[:1])
        found[way] = [peer_load(peer, str(folder), bodies[:16]) for _ in range(rounds)]
        peer.close()
    return found


def soak(run: Path, count: int) -> None:
    server = ours(run)
    process = psutil.Process(server.process.pid)
    sizes = []
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for number in range(count):
            body = {"prompt": [1 + number % 90] * (1 + number % 30), "max_tokens": 2}
            answer = client.post("/v1/completions", json={**body, "temperature": 0})
            assert answer.status_code == 200
            if number % max(1, count // 10) == max(1, count // 10) - 1:
                sizes.append(round(process.memory_info().rss / 2**20, 1))
    server.close()
    tell({"what": f"resident memory over {count} requests", "unit": "MiB", "ours": sizes})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--soak", type=int, default=20_000)
    parser.add_argument("--only-soak", action="store_true")
    parser.add_argument("--only-peers", action="store_true", help="16 clients, against the peers")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    given = parser.parse_args()
    chance = random.Random(0)
    folder = Path(tempfile.mkdtemp())
    if given.only_soak:
        make_tiny_and_soak(folder, given.soak)
        return
    make_folder(folder / "hf", given.quick)
    subprocess.run([sys.executable, "-m", "regard", "import", folder / "hf", folder / "run"],
                   check=True, cwd=ROOT)  # fmt: skip
    bodies = []
    for _ in range(given.clients):
        prompt = "".join(chance.choices(string.ascii_letters, k=32))  # a token each
        bodies.append(
            {"prompt": prompt, "max_tokens": given.tokens, "temperature": 0, "logprobs": 0}
        )
    machine = {"machine": processor(), "versions": versions()}

    many = ours(folder / "run", "--max-batch", str(given.clients))
    load(many, bodies[:2])
    if given.only_peers:
        sixteen = [peer_load(many, "run", bodies[:16]) for _ in range(3)]
        many.close()
        race_peers(folder, bodies, sixteen, given.tokens, machine)
        return
    alone = {i: load(many, [bodies[i]])[1][0][1] for i in range(given.clients)}
    seconds, found = load(many, bodies)
    tokens = sum(count for _, _, count in found)
    wrong = sum(found[i][1] != text for i, text in alone.items())
    # Against the peer neither side streams.
    rounds = 2 if given.quick else 3
    sixteen = [peer_load(many, "run", bodies[:16]) for _ in range(rounds)]
    many.close()
    waits = sorted(first for first, _, _ in found)
    one = ours(folder / "run", "--max-batch", "1")
    load(one, bodies[:1])
    alone_seconds, singly = load(one, bodies)
    one.close()
    slow = sum(count for _, _, count in singly)
    tell(
        {
            "what": f"{given.clients} clients streaming {given.tokens} tokens",
            "peer_name": "the same server, one request at a time",
            "unit": "tokens/s",
            "ours": round(tokens / seconds, 1),
            "peer": round(slow / alone_seconds, 1),
            "ratio": round(tokens / seconds / (slow / alone_seconds), 2),
            "p95_first_token_seconds": round(waits[int(0.95 * len(waits))], 3),
            "lost": len(bodies) * given.tokens - tokens,
            "wrong": wrong,
            **machine,
        }
    )
    race_peers(folder, bodies, sixteen, given.tokens, machine)
    make_tiny_and_soak(folder, 50 if given.quick else given.soak)


def race_peers(
    folder: Path, bodies: list[dict], sixteen: list[float], tokens: int, machine: dict
) -> None:
    for way, theirs in peers(folder / "hf", bodies, len(sixteen)).items():
        ratios = sorted(b / a for a, b in zip(sixteen, theirs, strict=True))
        tell(
            {
                "what": f"16 clients, {tokens} tokens each",
                "peer_name": f"transformers serve {way}",
                "unit": "tokens/s",
                "ours": round(16 * tokens / median(sixteen), 1),
                "peer": round(16 * tokens / median(theirs), 1),
                "ratio": round(median(ratios), 2),
                "ratio_spread": [round(ratios[0], 2), round(ratios[-1], 2)],
                **machine,
            }
        )


def make_tiny_and_soak(folder: Path, count: int) -> None:
    make_folder(folder / "tiny", quick=True)
    subprocess.run([sys.executable, "-m", "regard", "import", folder / "tiny", folder / "small"],
                   check=True, cwd=ROOT)  # fmt: skip
    soak(folder / "small", count)


if __name__ == "__main__":
    main()
