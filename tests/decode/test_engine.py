"""Many requests at once: each is answered as if it were alone."""

import random
import threading
import time

import pytest
import torch

from regard.decode import Limits, Settings, stream, write
from regard.decode.engine import PIECE, Done, Engine, Request, StoppedError, Token
from regard.tasks.writer import as_prompt
from tests.toys import pairs
from tests.toys import small_model as small

EOS, SIZE = 2, 24
WAYS = [
    Settings(kind="greedy", max_new_tokens=12),
    Settings(kind="greedy", max_new_tokens=30, repetition_penalty=1.3, no_repeat_ngram_size=3),
    Settings(kind="sample", max_new_tokens=9, seed=3, temperature=0.8, top_k=9),
    Settings(kind="sample", max_new_tokens=14, seed=4, num_return_sequences=3, top_p=0.9),
    Settings(kind="beam", num_beams=3, max_new_tokens=10, num_return_sequences=2),
    Settings(kind="beam", num_beams=4, max_new_tokens=16, length_penalty=0.6),
]


def small_model(kind, **more):
    """In double precision, so that no near tie hangs on how a product is rounded."""
    return small(kind, **more).double()


def wait_for(engine, request, seconds=60.0):
    """Submit and wait."""
    ready, kept = threading.Event(), []
    tell = request.tell

    def listen(event):
        tell(event)
        if isinstance(event, Done):
            kept.append(event)
            ready.set()

    request.tell = listen
    if not engine.submit(request) or not ready.wait(seconds):
        request.cancel()
        raise TimeoutError("no answer")
    return kept[0]


def prompts(count, seed=0, longest=40):
    chance = random.Random(seed)
    return [[chance.randrange(4, SIZE) for _ in range(chance.randint(1, longest))]
            for _ in range(count)]  # fmt: skip


def limits_of(ids, settings):
    return Limits(torch.tensor([ids]), EOS, torch.tensor([settings.max_new_tokens]), (0, 1, 3))


def pairs_of(ids):
    target = torch.zeros(1, 2, dtype=torch.long)
    return pairs(torch.tensor([[*ids, EOS]]), torch.tensor([len(ids) + 1]), target, torch.ones(1))


def ask(kind, ids, settings, tell=lambda event: None):
    if kind in ("gpt", "xl", "xlnet", "rnn"):
        return Request(limits_of(ids, settings), settings, tell)
    return Request(limits_of([1], settings), settings, tell, source=pairs_of(ids))


def alone(kind, model, ids, settings):
    request = ask(kind, ids, settings)
    batch = as_prompt(request.limits.prompt) if request.source is None else request.source
    return write(model, batch, request.limits, settings)[0]


EVERY = [
    *((kind, {}) for kind in ("gpt", "xl", "xlnet", "rnn", "transformer", "t5", "seq2seq")),
    ("seq2seq", {"coverage": True, "feed": "attended"}),
    ("seq2seq", {"attention": "none"}),
    ("rnn", {"cell": "lstm"}),
    ("gpt", {"pattern": "window", "reach": 3, "block": 4, "position": "rotary"}),
    ("gpt", {"pattern": "bigbird", "block": 4, "position": "rotary"}),
    ("transformer", {"pattern": "longformer", "reach": 3, "block": 4}),
]


@pytest.mark.parametrize(("kind", "more"), EVERY)
def test_every_answer_is_what_it_would_be_alone(kind, more, monkeypatch):
    """Requests of all kinds come at odd moments, more than fit into the batch at once."""
    monkeypatch.setattr("regard.parts.state.PIECE", 5)  # caches that roll do so early
    model = small_model(kind, **more)
    engine = Engine(model, as_prompt, most_rows=9, kept_prompts=3)
    chance = random.Random(1)
    jobs = [(ids, chance.choice(WAYS)) for ids in prompts(60)]
    kept: dict[int, Done] = {}
    left = threading.Semaphore(0)

    def listener(number):
        def tell(event):
            if isinstance(event, Done):
                kept[number] = event
                left.release()

        return tell

    for number, (ids, settings) in enumerate(jobs):
        assert engine.submit(ask(kind, ids, settings, listener(number)))
        time.sleep(chance.random() * 0.004)
    for _ in jobs:
        assert left.acquire(timeout=30)
    engine.close()
    assert engine.load == {"waiting": 0, "running": 0, "rows": 0}
    for number, (ids, settings) in enumerate(jobs):
        wanted = alone(kind, model, ids, settings)
        found = kept[number]
        assert found.error is None
        assert [h.ids for h in found.answers] == [h.ids for h in wanted], (number, settings)
        for mine, other in zip(found.answers, wanted, strict=True):
            assert mine.score == pytest.approx(other.score, abs=1e-3)
            assert mine.ended == other.ended


def test_tokens_are_told_as_they_come():
    model, engine_settings = small_model("gpt"), WAYS[0]
    engine = Engine(model, as_prompt)
    told = []
    request = ask("gpt", [5, 6, 7], engine_settings, told.append)
    request.others = 3
    done = wait_for(engine, request)
    tokens = [event for event in told if isinstance(event, Token)]
    ids = done.answers[0].ids
    assert [token.id for token in tokens][: len(ids)] == ids
    assert sum(token.score for token in tokens) == pytest.approx(done.answers[0].score, abs=1e-4)
    for token in tokens:
        assert token.others[0][0] == token.id and len(token.others) == 3
    engine.close()


def test_a_long_prompt_does_not_stall_the_others():
    model = small_model("gpt", positions=4000)
    engine = Engine(model, as_prompt)
    order = []
    long = Settings(kind="greedy", max_new_tokens=2)
    quick = Settings(kind="greedy", max_new_tokens=3, min_new_tokens=3)
    ids = prompts(1, longest=1)[0] * (PIECE * 12)
    first = ask("gpt", ids, long, lambda e: order.append("long") if isinstance(e, Done) else None)
    running = ask("gpt", [5, 6], Settings(kind="greedy", max_new_tokens=40, min_new_tokens=40),
                  lambda e: order.append("token") if isinstance(e, Token) else None)  # fmt: skip
    engine.submit(running)
    engine.submit(first)
    wait_for(engine, ask("gpt", [7], quick))
    engine.close()
    assert order.index("long") > 8, "the one that ran went on while the prompt was read"


def test_what_prompts_share_is_read_once():
    model = small_model("gpt")
    engine = Engine(model, as_prompt)
    start = prompts(1, seed=5, longest=1)[0] * 30
    settings = Settings(kind="greedy", max_new_tokens=5)
    for tail in ([5, 6], [7], [5, 6, 8]):
        found = wait_for(engine, ask("gpt", [*start, *tail], settings))
        assert found.answers[0].ids == alone("gpt", model, [*start, *tail], settings)[0].ids
    assert engine.reused >= 2 * len(start)
    engine.close()


def test_a_request_can_be_cancelled_and_frees_its_rows():
    model = small_model("gpt", positions=4000)
    engine = Engine(model, as_prompt, most_rows=4)
    told = []
    long = Settings(kind="sample", max_new_tokens=3000, min_new_tokens=3000, num_return_sequences=4)
    request = ask("gpt", [5], long, told.append)
    engine.submit(request)
    while len(told) < 20:
        time.sleep(0.001)
    request.cancel()
    found = wait_for(engine, ask("gpt", [6], WAYS[0]))
    assert found.answers and not any(isinstance(event, Done) for event in told)
    assert engine.load["rows"] == 0
    engine.close()


def test_too_many_are_turned_away():
    model = small_model("gpt", positions=4000)
    engine = Engine(model, as_prompt, most_rows=1, most_waiting=3)
    long = Settings(kind="greedy", max_new_tokens=2000, min_new_tokens=2000)
    requests = [ask("gpt", [5], long) for _ in range(20)]
    taken = [engine.submit(request) for request in requests]
    assert taken.count(True) <= 5 and not taken[-1]
    for request in requests:
        request.cancel()
    assert wait_for(engine, ask("gpt", [6], WAYS[0])).answers
    engine.close()
    assert not engine.submit(ask("gpt", [6], WAYS[0]))


def test_a_fault_of_one_request_leaves_the_others():
    model = small_model("gpt", positions=64)
    engine = Engine(model, as_prompt)
    real, broken = model.extend, []

    def extend(tokens, state):
        if tokens.shape[1] > 40:
            broken.append(True)
            raise MemoryError("no room for this one")
        return real(tokens, state)

    model.extend = extend
    done = wait_for(engine, ask("gpt", prompts(1, longest=1)[0] * 50, WAYS[0]))
    assert isinstance(done.error, MemoryError) and broken
    assert wait_for(engine, ask("gpt", [5, 6], WAYS[0])).answers
    engine.close()


def test_what_can_never_fit_is_refused_and_blocks_nobody():
    engine = Engine(small_model("gpt"), as_prompt, most_rows=4, most_tokens=200)
    wide = Settings(kind="beam", num_beams=5, max_new_tokens=8)
    long = Settings(kind="greedy", max_new_tokens=500)
    assert not engine.submit(ask("gpt", [5], wide))
    assert not engine.submit(ask("gpt", [5], long))
    assert wait_for(engine, ask("gpt", [6], WAYS[0])).answers
    engine.close()


def test_tokens_in_all_are_bounded_and_each_still_has_its_turn():
    model = small_model("gpt")
    engine = Engine(model, as_prompt, most_rows=8, most_tokens=100)
    settings = Settings(kind="greedy", max_new_tokens=20)
    kept, left, most = [], threading.Semaphore(0), []

    def tell(event):
        rows = range(engine.rows.count)
        most.append(len(rows) * max(map(engine.rows.held, rows), default=0))
        if isinstance(event, Done):
            kept.append(event)
            left.release()

    for ids in prompts(12, seed=3, longest=20):
        assert engine.submit(ask("gpt", ids, settings, tell))
    for _ in range(12):
        assert left.acquire(timeout=20)
    engine.close()
    assert len(kept) == 12 and all(done.error is None for done in kept)
    assert max(most) <= 100


def test_no_room_for_a_row_is_told_to_who_asked_and_to_nobody_else(monkeypatch):
    model = small_model("gpt", positions=400)
    engine = Engine(model, as_prompt)
    long = Settings(kind="greedy", max_new_tokens=300, min_new_tokens=300)
    told = []
    neighbour = ask("gpt", [5, 6], long, told.append)
    engine.submit(neighbour)
    while not told:
        time.sleep(0.001)
    real = type(engine.rows).add

    def add(rows, state, token, copies):
        if copies == 3:
            raise MemoryError("no room for three")
        return real(rows, state, token, copies)

    monkeypatch.setattr(type(engine.rows), "add", add)
    three = Settings(kind="sample", num_return_sequences=3, max_new_tokens=5)
    done = wait_for(engine, ask("gpt", [7, 8], three))
    assert isinstance(done.error, MemoryError)
    while not isinstance(told[-1], Done):
        time.sleep(0.001)
    engine.close()
    wanted = alone("gpt", model, [5, 6], long)[0].ids
    assert told[-1].error is None and told[-1].answers[0].ids == wanted


@pytest.mark.parametrize("length", [5, 30, 90])
def test_a_text_longer_than_can_be_placed_slides_as_it_does_alone(length):
    model = small_model("gpt", positions=24)
    ids = prompts(1, seed=8, longest=1)[0] + prompts(40, seed=9, longest=4)[0] * length
    ids = (ids * length)[:length]
    for settings in (
        Settings(kind="greedy", max_new_tokens=70, min_new_tokens=70),
        Settings(kind="sample", seed=3, max_new_tokens=70, num_return_sequences=2),
    ):
        engine = Engine(model, as_prompt)
        request = ask("gpt", ids, settings)
        found = wait_for(engine, request).answers
        engine.close()
        for copy, answer in enumerate(found):
            wanted = stream(model, as_prompt, request.limits, settings, copy=copy)
            assert answer.ids == [token for token, _ in wanted if token != EOS]


def test_a_job_that_nobody_waits_for_stops_at_the_next_layer():
    model = small_model("gpt", positions=400)
    engine = Engine(model, as_prompt)
    told, began = [], threading.Event()

    def forever():
        while True:
            began.set()
            model(as_prompt(torch.tensor([[5, 6, 7]])))

    job = engine.call(forever, lambda result, error: told.append(error))
    assert began.wait(5)
    job.cancel()
    assert wait_for(engine, ask("gpt", [6], WAYS[0]), seconds=5).answers
    assert isinstance(told[0], StoppedError)
    stuck = engine.call(forever, lambda result, error: told.append(error))
    assert stuck is not None
    before = time.monotonic()
    engine.close(seconds=0.2)
    assert not engine.thread.is_alive() and time.monotonic() - before < 2


def test_other_work_gets_its_turn():
    engine = Engine(small_model("gpt"), as_prompt)
    ready, kept = threading.Event(), []

    def then(result, error):
        kept.append((result, error))
        ready.set()

    assert engine.call(lambda: 6 * 7, then) and ready.wait(5) and kept == [(42, None)]
    ready.clear()
    assert engine.call(lambda: 1 / 0, then) and ready.wait(5)
    assert isinstance(kept[1][1], ZeroDivisionError)
    engine.close()


@pytest.mark.parametrize("kind", ["greedy", "sample"])
def test_where_all_is_forbidden_an_answer_ends(kind):
    """Every token may come once, and none may end it: then there is nothing left to write."""
    model = small_model("gpt", size=9, positions=60)
    settings = Settings(kind=kind, no_repeat_ngram_size=1, min_new_tokens=50, max_new_tokens=50)
    limits = Limits(torch.tensor([[5, 6]]), EOS, torch.tensor([50]), (0, 1, 3))
    told = []
    engine = Engine(model, as_prompt)
    done = wait_for(engine, Request(limits, settings, told.append, others=3))
    engine.close()
    alone = write(model, as_prompt(limits.prompt), limits, settings)[0]
    assert done.answers[0].ids == alone[0].ids and len(set(alone[0].ids)) == len(alone[0].ids) == 3
    for score in (done.answers[0].score, alone[0].score, *(t.score for t in told[:-1])):
        assert score == score and abs(score) < 1e6


def test_one_who_cannot_listen_leaves_and_nobody_else_notices(caplog):
    model = small_model("gpt", positions=400)
    engine = Engine(model, as_prompt)

    def deaf(event):
        raise RuntimeError("the loop is closed")

    long = Settings(kind="greedy", max_new_tokens=60, min_new_tokens=60)
    for _ in range(3):
        engine.submit(ask("gpt", [5], long, deaf))
    done = wait_for(engine, ask("gpt", [6, 7], long), seconds=20)
    assert done.error is None and len(done.answers[0].ids) == 60
    engine.close()
    assert "could not be told" in caplog.text and engine.load["rows"] == 0
