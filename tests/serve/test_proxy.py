"""Two servers behind nginx, as docs/serving.md sets them up: nothing is lost while one restarts."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

import regard

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")


def free_ports(count):
    bound = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in bound]
    for one in bound:
        one.close()
    return ports


def until(holds, seconds=100):
    """Wait for something that will be so; a failure where it is not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if holds():
                return
        except (httpx.HTTPError, OSError):
            pass
        time.sleep(0.05)
    raise AssertionError("waited too long")


class Proxy:
    """The page's configuration with ports of this test, run by nginx."""

    def __init__(self, folder, first, second):
        (port,) = free_ports(1)
        text = re.search(r"```nginx\n(.*?)```", PAGE, re.S)[1]
        for old, new in ((9001, first), (9002, second), (8000, port)):
            assert text.count(f":{old}") == 1
            text = text.replace(f":{old}", f":{new}")
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
        (folder / "nginx.conf").write_text(
            f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\n"
            f"events {{}}\nhttp {{ access_log off;\n{paths}{text}}}\n"
        )
        command = [NGINX, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}"

    def close(self):
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def proxy(tmp_path):
    if NGINX is None:
        why = "no nginx here: servers were not tried behind a proxy (apt-get install nginx-light)"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    running = []

    def make(first, second):
        running.append(Proxy(tmp_path, first, second))
        return running[0].url

    yield make
    for each in running:
        each.close()


class Server:
    """`regard serve` in a process."""

    def __init__(self, run, port):
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "regard", "serve", str(run), "--port", str(port)]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
        self.port, self.url = port, f"http://127.0.0.1:{port}"

    def ready(self):
        until(lambda: httpx.get(f"{self.url}/health").json()["status"] == "ok")
        return self

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def servers(tmp_path):
    """A way to start servers of a language model that has learned next to nothing."""
    small = ["train.steps=2", "train.device=cpu", "model.width=16", "model.depth=1",
             "data.valid=", "data.test="]  # fmt: skip
    run = regard.train("lm-shakespeare-cpu", *small, run=tmp_path / "writer").folder
    running = []

    def start(port):
        running.append(Server(run, port))
        return running[-1]

    yield start
    for each in running:
        each.process.kill()
        each.process.wait()


class Load:
    """Clients that ask all the time, whole answers and streams; what went wrong is kept."""

    def __init__(self, url, clients=3):
        self.url, self.done, self.faults, self.over = url, 0, [], threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(clients)]

    def ask(self, number):
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self.over.is_set():
                body = {"prompt": "ROMEO:", "max_tokens": 40, "stream": bool(number % 2)}
                try:
                    answer = client.post("/v1/completions", json=body)
                    end = "data: [DONE]" if number % 2 else '"finish_reason": "'
                    assert answer.status_code == 200 and end in answer.text, answer.text
                    self.done += 1
                except (httpx.HTTPError, AssertionError) as error:
                    self.faults.append(repr(error))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        for thread in self.threads:
            thread.join(60)


def test_no_request_is_lost_while_one_after_the_other_restarts(servers, proxy):
    one, two = (servers(port) for port in free_ports(2))
    one.ready(), two.ready()
    url = proxy(one.port, two.port)

    def is_used(server):
        answer = httpx.get(f"{url}/health")
        return answer.headers["x-served-by"] == f"127.0.0.1:{server.port}"

    until(lambda: is_used(one))
    until(lambda: is_used(two))
    with Load(url) as load:
        until(lambda: load.done > 5)
        check_metrics(one, two, load)
        assert one.stop() == -signal.SIGTERM  # as if it had ended at once
        seen = load.done
        until(lambda: load.done > seen + 5)  # the other carries on alone
        again = servers(one.port).ready()
        until(lambda: is_used(again))
        assert two.stop() == -signal.SIGTERM
        seen = load.done
        until(lambda: load.done > seen + 5)
    assert load.faults == []
    again.stop()
    assert httpx.get(f"{url}/health").status_code == 502  # nobody is left


def check_metrics(one, two, load):
    """The page's line adds up what each has answered."""
    program = re.search(r"awk '(.*?)'", PAGE)[1]
    texts = [httpx.get(f"{server.url}/metrics").text for server in (one, two)]
    summed = subprocess.run(
        ["awk", program], input="".join(texts), capture_output=True, text=True, check=True
    ).stdout
    name = 'regard_requests_total{route="/v1/completions",status="200"} '
    counts = [int(re.search(re.escape(name) + r"(\d+)", text)[1]) for text in texts]
    assert f"{name}{sum(counts)}\n" in summed and min(counts) > 0
    assert "#" not in summed


def test_a_stream_comes_through_as_it_is_written(proxy):
    """The second event is written only when the first has arrived."""
    arrived, port = threading.Event(), free_ports(1)[0]

    def write():
        client, _ = server.accept()
        with client:
            client.recv(2**16)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                           b"Connection: close\r\n\r\ndata: one\n\n")  # fmt: skip
            arrived.wait(30)
            client.sendall(b"data: two\n\n")

    with socket.create_server(("127.0.0.1", port)) as server:
        writer = threading.Thread(target=write)
        writer.start()
        url = proxy(port, free_ports(1)[0])
        until(lambda: socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))).close()
              is None)  # fmt: skip
        with httpx.stream("GET", url, timeout=20) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "data: one"
            arrived.set()
            assert "data: two" in list(lines)
        writer.join(30)
