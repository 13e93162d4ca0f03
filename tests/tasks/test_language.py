"""The language task: files to batches, scores in their units, answers as they are written."""

import gzip
import json
import math

import numpy as np
import pytest
import torch

import regard
from regard.data.read import Faults
from regard.decode import Settings as Decode
from regard.errors import DataError, InputError, RecipeError, RunError
from regard.tasks.growing import Growing, cut_at
from regard.tasks.language import Language
from regard.tasks.permute import Permute, PermuteSettings
from regard.tasks.task import Measured
from regard.tasks.writer import as_prompt
from regard.text import EOS, learn
from regard.text import Settings as TextSettings
from regard.training.recipe import read as read_recipe
from tests.toys import sentences, small_model

TEXT = "to be or not to be\nthat is the question\n\nwhether tis nobler in the mind\n" * 40


def write(path, text=TEXT):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def make(folder, kind="characters", text=TEXT, name="a.txt", task=Language, **more):
    """A task that has learned a file's vocabulary, and that file's store."""
    made, data = make_of([write(folder / name, text)], folder, kind, task, **more)
    return made, data.store


def make_of(files, folder, kind="characters", task=Language, text=None, faults=None, **more):
    """The same of any files, with their examples."""
    settings = task.Settings(**{"context": 16, **more})
    cache, faults = folder / "cache", faults or Faults()
    examples = task.examples(settings, files, cache, faults)
    text = TextSettings(kind=kind, size=300) if text is None else text
    made = task.learn(settings, {"text": text}, examples)
    return made, made.data(examples, cache, 0, faults)


def data_of(task, files, folder):
    """What a task that has learned already makes of files."""
    cache = folder / "cache"
    return task.data(task.examples(task.settings, files, cache, Faults()), cache, 0, Faults())


def words(task, ids):
    return task.text.decode([ids])[0]


# Reading.


def test_a_lone_text_is_one_stream_without_an_end(tmp_path):
    task, store = make(tmp_path)
    assert words(task, store.flat("text").tolist()) == TEXT
    assert EOS not in store.flat("text")


def test_lines_have_ends_and_empty_lines_are_lines(tmp_path):
    task, store = make(tmp_path, "spaced", lines=True)
    ids = store.flat("text").tolist()
    assert ids.count(EOS) == TEXT.count("\n")
    assert words(task, ids[: ids.index(EOS)]) == "to be or not to be"


@pytest.mark.parametrize("form", ["folder", "jsonl", "gz"])
def test_every_form(form, tmp_path):
    texts = ["one two three", "four five", "six"]
    if form == "folder":
        path = tmp_path / "texts"
        path.mkdir()
        for number, text in enumerate(texts):
            write(path / f"{number}.txt", text)
    elif form == "jsonl":
        path = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": t}) + "\n" for t in texts))
    else:
        path = write(tmp_path / "a.txt.gz", "\n".join(texts))
    task, data = make_of([path], tmp_path)
    ids = data.store.flat("text").tolist()
    if form == "gz":
        assert words(task, ids) == "one two three\nfour five\nsix"
    else:
        assert [words(task, row) for row in split(ids)] == texts


def split(ids):
    rows = [[]]
    for i in ids:
        if i == EOS:
            rows.append([])
        else:
            rows[-1].append(i)
    return rows[:-1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no text to learn a vocabulary from"),
        ("x", "there must be at least two tokens of text, but there is one"),
    ],
)
def test_too_little_text_is_told(text, said, tmp_path):
    for _ in range(2):  # also where the text is in the cache already
        with pytest.raises(DataError, match=said):
            make(tmp_path, text=text)


def test_several_texts_are_told_apart(tmp_path):
    files = [write(tmp_path / "a.txt", "to be"), write(tmp_path / "b.txt", "or not")]
    task, _ = make_of(files, tmp_path)

    def rows(paths):
        return data_of(task, paths, tmp_path).store.flat("text").tolist()

    assert [words(task, row) for row in split(rows(files))] == ["to be", "or not"]
    assert rows(files[:1]).count(EOS) == 0
    folder = tmp_path / "one"
    folder.mkdir()
    write(folder / "a.txt", "to be")
    assert rows([folder]).count(EOS) == 1  # the same text, but as one of a folder's


def test_text_that_cannot_be_written_is_told_or_counted(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "fine text"}\n{"text": "he\\ud800llo"}\n')
    with pytest.raises(DataError, match="a.jsonl:2: the text must be UTF-8, but is not"):
        make_of([path], tmp_path)
    faults = Faults(skip=True)
    _, data = make_of([path], tmp_path, faults=faults)
    assert faults.count == data.skipped == 1


def test_a_vocabulary_must_have_an_end(tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "c": 2}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(DataError, match="must have an entry that ends a text"):
        learn([], TextSettings(kind="byte-bpe", vocabulary=str(tmp_path)))


def test_a_frequency_cut_makes_rare_words_unknown(tmp_path):
    path = write(tmp_path / "a.txt", "a a a b b c\n" * 3 + "rare a\n")
    settings = TextSettings(kind="spaced", min_frequency=2)
    task, _ = make_of([path], tmp_path, text=settings, lines=True)
    assert words(task, task.text.encode(["a rare c"])[0]) == "a <unk> c"


def test_gpt2s_own_vocabulary_files_can_be_loaded(tmp_path):
    alphabet = sorted("abcdefghijklmnopqrstuvwxyzĠĊ")
    vocabulary = {t: i for i, t in enumerate([*alphabet, "he", "the", "Ġthe", "<|endoftext|>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nh e\nt he\nĠ the\n")
    settings = TextSettings(kind="byte-bpe", vocabulary=str(tmp_path))
    path = write(tmp_path / "a.jsonl", '{"text": "see the cat"}\n{"text": "the dog"}\n')
    task, data = make_of([path], tmp_path, text=settings)
    ids = data.store.flat("text").tolist()
    end = vocabulary["<|endoftext|>"]
    assert task.text.eos == end and ids.count(end) == 2
    assert vocabulary["Ġthe"] in ids and words(task, ids) == "see the catthe dog"


# Batches.


@pytest.mark.parametrize("cut", ["windows", "stream"])
def test_labels_are_the_next_tokens(cut, tmp_path):
    task, store = make(tmp_path, cut=cut)
    plan = task.plan(store, 64, 0)
    batch = task.batch(store, plan.epoch(0)[0])
    read, labels = batch.read.ids, batch.asked.labels
    assert read.shape == labels.shape == (4, 16) and batch.tokens == 64
    assert torch.equal(read[:, 1:], labels[:, :-1])
    row = words(task, [*read[0].tolist(), int(labels[0, -1])])
    assert row in TEXT


def test_shorter_pieces_are_worth_less(tmp_path):
    task, store = make(tmp_path, cut="stream", vary=0.2)
    for cut in task.plan(store, 64, 0).epoch(0)[:5]:
        batch = task.batch(store, cut)
        assert batch.rate_scale == batch.read.ids.shape[1] / 16
    task, store = make(tmp_path, cut="stream")
    assert task.batch(store, task.plan(store, 64, 0).epoch(0)[-1]).rate_scale == 1.0


def test_packed_documents_begin_behind_an_end_and_are_numbered(tmp_path):
    texts = "".join(json.dumps({"text": line}) + "\n" for line in sentences(60))
    task, store = make(tmp_path, "spaced", texts, "a.jsonl", cut="documents", context=24)
    batch = task.batch(store, task.plan(store, 96, 0).epoch(0)[0])
    read, asked = batch.read, batch.asked
    for ids, labels, numbers, (_, count) in zip(
        *(x.tolist() for x in (read.ids, asked.labels, read.documents, asked.label_range)),
        strict=True,
    ):
        assert ids[1:] == labels[:-1]
        for number in range(1, max(numbers) + 1):
            places = [i for i, n in enumerate(numbers) if n == number]
            assert ids[places[0]] == EOS and EOS not in [ids[i] for i in places[1:]]
            assert labels[places[-1]] == EOS
        assert numbers[count:] == [0] * (24 - count)


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize(
    "more", [{"cut": "windows"}, {"cut": "windows", "stride": 5}, {"cut": "stream"}]
)
def test_a_sweep_predicts_every_token_once(more, thorough, tmp_path):
    task, store = make(tmp_path, **more)
    met, size = [], len(store.flat("text"))
    for batch in task.evaluation_batches(store, 64, thorough):
        met += batch.asked.labels[batch.asked.real].tolist()
    assert len(met) == size - 1
    assert sorted(met) == sorted(store.flat("text")[1:].tolist())


def test_a_stride_gives_every_token_some_context(tmp_path):
    task, store = make(tmp_path, cut="windows", stride=4)
    first = [b.asked.label_range[:, 0].tolist() for b in task.evaluation_batches(store, 64)]
    begins = [c for rows in first for c in rows]
    assert begins[0] == 0 and min(begins[1:]) >= 12


def test_orders_are_drawn_for_each_batch(tmp_path):
    task, store = make(tmp_path, task=Permute, context=18)
    assert isinstance(task.settings, PermuteSettings)
    cut = task.plan(store, 72, 0).epoch(0)[0]
    one, same, other = (
        task.batch(store, cut, [np.random.default_rng((s, row)) for row in range(4)])
        for s in (0, 0, 1)
    )
    targets, ranks = one.read.targets, one.read.ranks
    assert torch.equal(targets, same.read.targets)
    assert not torch.equal(targets, other.read.targets)
    assert len({tuple(row) for row in targets.tolist()}) == 4  # each row has an order of its own
    assert targets.shape == (4, 3) and one.tokens == 12
    assert (ranks.gather(1, targets) == torch.arange(1, 4)).all()
    assert (ranks > 0).sum() == 12
    assert torch.equal(one.asked.labels, one.read.ids.gather(1, targets))


# Scores.


def test_units_agree(tmp_path):
    task, data = make_of([write(tmp_path / "a.txt")], tmp_path, "spaced", lines=True)
    count = len(TEXT.split()) + TEXT.count("\n")
    loss = Measured(nll=count * math.log(50), tokens=count)
    scores = task.evaluate(small_model("gpt"), data, Decode(), loss)
    assert scores["perplexity"] == pytest.approx(50) == scores["word_perplexity"]
    bits = count * math.log2(50) / len(TEXT.encode())
    assert scores["bits_per_byte"] == pytest.approx(bits, abs=1e-4)
    assert "line ends counted" in scores["word_perplexity_unit"]


@pytest.mark.parametrize("kind", ["gpt", "rnn", "xl", "xlnet"])
def test_logprobs_are_those_of_the_whole_text(kind, tmp_path):
    task, _ = make(tmp_path)
    more = {"positions": 16} if kind == "gpt" else {}
    model = small_model(kind, size=task.text.size, **more)
    found = task.logprobs(model, "to be or not")
    assert found[0] == ("t", None) and len(found) == 12
    state = None
    ids = task.ids("to be or not")
    with torch.no_grad():
        state = model.start(as_prompt(torch.tensor([ids[:1]])))
        for i, (_, log) in enumerate(found[1:], 1):
            logits, state = model.step(torch.tensor([ids[i - 1]]), state)
            assert log == pytest.approx(float(logits.log_softmax(-1)[0, ids[i]]), abs=1e-4)


def test_a_text_longer_than_the_model_has_all_its_logprobs(tmp_path):
    task, _ = make(tmp_path)
    model = small_model("gpt", size=task.text.size, positions=16)
    found = task.logprobs(model, "whether tis nobler in the mind that is the question")
    assert len(found) == 51 and all(log is not None and log < 0 for _, log in found[1:])


# Answers.


@pytest.fixture
def speaker(tmp_path):
    task, _ = make(tmp_path)
    return task, small_model("gpt", size=task.text.size, positions=64)


GREEDY = Decode(kind="greedy", max_new_tokens=40)
SAMPLE = Decode(kind="sample", max_new_tokens=40, min_new_tokens=40, seed=3)


@pytest.mark.parametrize("decode", [GREEDY, SAMPLE])
def test_streamed_pieces_are_the_answer(speaker, decode):
    task, model = speaker
    answer = task.predict(model, ["to be"], decode, 0)[0]
    assert "".join(task.stream(model, "to be", decode)) == answer.output and answer.output
    alone = task.one_by_one(model, [task.ids("to be")], decode)[0][0]
    assert task.continued([], alone.ids) == answer.output
    assert alone.score == pytest.approx(answer.score, abs=1e-3)


@pytest.mark.parametrize("decode", [GREEDY, SAMPLE])
@pytest.mark.parametrize("drafts", ["gpt", "rnn", "xl", "xlnet", "itself", "short", "shortest"])
def test_a_draft_changes_nothing(speaker, decode, drafts):
    """Whatever the draft guesses, also where the model has to forget its beginning."""
    task, model = speaker
    short = {"short": 24, "shortest": 1}
    if drafts == "itself":
        draft = model
    elif drafts in short:  # it can place fewer tokens than the model
        draft = small_model("gpt", 5, size=task.text.size, positions=short[drafts])
    else:
        draft = small_model(drafts, 5, size=task.text.size)
    long = Decode(**{**vars(decode), "max_new_tokens": 150, "min_new_tokens": 150})
    plain = task.one_by_one(model, [task.ids("to be")], long)
    ahead = task.one_by_one(model, [task.ids("to be")], long, draft)
    assert ahead[0][0].ids == plain[0][0].ids and len(plain[0][0].ids) > 100


def test_several_prompts_and_samples(speaker):
    task, model = speaker
    decode = Decode(kind="sample", max_new_tokens=10, num_return_sequences=3)
    together = task.predict(model, ["to be", "that", "or no"], decode, 0)
    assert len({text for text, _ in together[0].nbest}) > 1
    for prompt, answer in zip(("to be", "that", "or no"), together, strict=True):
        alone = task.predict(model, [prompt], decode, 0)[0]
        assert [text for text, _ in alone.nbest] == [text for text, _ in answer.nbest]


def test_a_beam_continues_too(speaker):
    task, model = speaker
    decode = Decode(num_beams=4, max_new_tokens=8)
    one = task.predict(model, ["to be"], decode, 0)[0]
    greedy = task.predict(model, ["to be"], Decode(kind="greedy", max_new_tokens=8), 0)[0]
    assert one.score * 8 >= greedy.score - 1e-4


def test_a_stop_text_that_spans_tokens_is_cut_off_and_never_shown(speaker):
    task, model = speaker
    whole = "".join(task.stream(model, "to be", GREEDY))
    stop = whole[7:11]
    decode = Decode(kind="greedy", max_new_tokens=40, stop=[stop])
    expected = whole[: whole.index(stop)]
    pieces = list(task.stream(model, "to be", decode))
    assert "".join(pieces) == expected
    assert task.predict(model, ["to be"], decode, 0)[0].output == expected


def test_text_that_grows_shows_neither_a_stop_text_nor_half_a_character():
    text = learn(["été cat"] * 3, TextSettings(kind="byte-bpe", size=262))
    ids = text.encode(["a été, a cat and more"])[0]
    for stops, wanted in (([], "a été, a cat and more"), (["cat", "zz"], "a été, a "),
                          (["té,"], "a é"), (["more!"], "a été, a cat and more")):  # fmt: skip
        growing, shown = Growing(text, [], stops), []
        for token in ids:
            shown.append(growing.add(token))
            assert "\ufffd" not in "".join(shown)
            assert wanted.startswith("".join(shown))
            if growing.stopped:
                break
        shown.append(growing.finish())
        assert "".join(shown) == wanted
        assert growing.stopped == (wanted != "a été, a cat and more")


def test_the_first_stop_text_counts():
    assert cut_at("one two three", ["three", "two"]) == ("one ", True)


def test_a_prompt_that_is_too_long_slides_or_is_refused(speaker):
    task, model = speaker
    prompt = "to be or not to be " * 6
    assert task.slides(prompt, model, GREEDY)
    assert len(task.predict(model, [prompt], GREEDY, 0)[0].output) > 10
    refuse = Decode(kind="greedy", overflow="refuse", max_new_tokens=40)
    with pytest.raises(InputError, match="with 40 new tokens a prompt may have 25, but has 114"):
        task.predict(model, [prompt], refuse, 0)
    with pytest.raises(InputError, match="a prompt may have 25, but has 26"):
        task.predict(model, [prompt[:26]], refuse, 0)
    assert len(task.predict(model, [prompt[:25]], refuse, 0)[0].output) > 10
    with pytest.raises(InputError, match="a beam cannot slide"):
        task.predict(model, [prompt], Decode(), 0)


def test_an_unknown_character_is_named_with_its_place(speaker):
    task, model = speaker
    with pytest.raises(InputError, match="'Z' at position 4 is not"):
        task.predict(model, ["to Ze"], GREEDY, 0)


# Runs.

RECIPE = """
[task]
kind = "language"
cut = "{cut}"
context = 16
lines = {lines}

[data]
train = "train.txt"
valid = "valid.txt"
test = "valid.txt"

[text]
kind = "{text}"
size = 200

[model]
kind = "{model}"
width = 32
depth = 2
{more}

[train]
steps = 60
batch_tokens = 128
rate = 0.01
schedule = "cosine"
warmup = 5
smoothing = 0.0
save_every = 10
evaluate_every = 20
device = "cpu"

[decode]
kind = "greedy"
max_new_tokens = 12
"""


def write_recipe(folder, model="gpt", cut="windows", text="characters", lines="false", more=None):
    default = {"rnn": "hidden = 32", "gpt": "heads = 4", "xl": "heads = 4\nmemory = 16"}
    write(folder / "train.txt", TEXT)
    write(folder / "valid.txt", TEXT[: len(TEXT) // 10])
    path = folder / "lm.toml"
    more = default[model] if more is None else more
    path.write_text(RECIPE.format(cut=cut, lines=lines, text=text, model=model, more=more))
    return str(path)


@pytest.mark.parametrize("model", ["rnn", "xl"])
def test_a_stream_resumes_with_what_it_carried(model, tmp_path):
    """Stopped in the middle of an epoch: the state goes on, bit for bit."""
    recipe = write_recipe(tmp_path, model, "stream")
    whole = regard.train(recipe, run=tmp_path / "whole")
    asked = []

    def stop_at_13(event):
        if type(event).__name__ == "Saved" and event.step == 10:
            asked.append(event)

    regard.train(recipe, run=tmp_path / "cut", on_event=stop_at_13, stop=lambda: bool(asked))
    assert not (tmp_path / "cut/model.safetensors").exists()
    again = regard.train(recipe, run=tmp_path / "cut")
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("model", ["rnn", "xl"])
def test_two_dropouts_of_a_stream_go_on_as_one(model, tmp_path):
    """Where nothing is dropped, R-Drop changes nothing, whatever is carried."""
    recipe = write_recipe(tmp_path, model, "stream")
    plain, twice = (
        regard.train(
            recipe,
            *("model.dropout=0", "train.steps=8", "train.optimizer=sgd"),
            f"train.r_drop={n}",
            run=tmp_path / f"{n}",
        )
        for n in (0.0, 2.0)
    )
    for a, b in zip(plain.model.parameters(), twice.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_pieces_of_a_batch_carry_their_own_rows(tmp_path):
    recipe = write_recipe(tmp_path, "rnn", "stream")
    runs = [
        regard.train(recipe, f"train.accumulate={n}", "train.steps=12", run=tmp_path / f"{n}")
        for n in (1, 3)
    ]
    for a, b in zip(*(run.model.parameters() for run in runs), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)


def test_it_learns_and_answers(tmp_path):
    run = regard.train(write_recipe(tmp_path, "gpt"), "train.steps=500", run=tmp_path / "run")
    assert json.loads((run.folder / "results.json").read_text())["test"]["loss"] < 0.4
    assert run.predict(["that is the que"])[0].output.startswith("stion\n")
    assert run.logprobs("to be")[1][1] < 0
    assert "".join(run.stream("to be or n")).startswith("ot to be")
    sight = run.see("to be or not")
    assert sight.looks[0].weights.shape == (4, 12, 12) and sight.looks[0].rows[0] == "t"


def test_averaged_descent_learns(tmp_path):
    recipe = write_recipe(tmp_path, "rnn", "stream", "spaced", "true")
    options = ["train.optimizer=asgd", "train.rate=5.0", "train.schedule=constant", "train.stall=1"]
    options += ["train.steps=150", "train.warmup=0", "train.clip=0.25", "model.weight_drop=0.2"]
    options += ["model.activation_penalty=0.1", "model.change_penalty=0.1", "task.vary=0.1"]
    run = regard.train(recipe, *options, run=tmp_path / "run")
    scores = json.loads((run.folder / "results.json").read_text())["test"]
    assert scores["perplexity"] < 8 and scores["word_perplexity"] == pytest.approx(
        scores["perplexity"], rel=0.1
    )


def test_a_student_starts_from_every_second_block_and_learns_from_its_teacher(tmp_path):
    recipe = write_recipe(tmp_path, "gpt", more="heads = 4")
    teacher = regard.train(recipe, "model.depth=4", "train.steps=120", run=tmp_path / "teacher")
    met = []
    student = regard.train(
        recipe,
        f"train.teacher={tmp_path / 'teacher'}",
        "train.steps=1",
        "train.rate=1e-9",
        run=tmp_path / "first",
        on_event=met.append,
    )
    for mine, its in ((0, 0), (1, 2)):
        torch.testing.assert_close(
            student.model.blocks[mine].attention.query.weight,
            teacher.model.blocks[its].attention.query.weight,
        )
    student = regard.train(
        recipe, f"train.teacher={tmp_path / 'teacher'}", run=tmp_path / "student"
    )
    scores = [json.loads((r.folder / "results.json").read_text()) for r in (teacher, student)]
    assert scores[1]["test"]["loss"] < scores[0]["test"]["loss"] + 0.5


def test_a_teacher_must_know_the_same_words(tmp_path):
    recipe = write_recipe(tmp_path, "gpt")
    regard.train(recipe, "train.steps=1", run=tmp_path / "teacher")
    (tmp_path / "teacher/model.safetensors").unlink()
    with pytest.raises(RunError, match="train.teacher must name a finished run|no model"):
        regard.train(recipe, f"train.teacher={tmp_path / 'teacher'}", run=tmp_path / "student")


def test_a_draft_must_know_the_same_words(tmp_path):
    one = regard.train(write_recipe(tmp_path, "gpt"), "train.steps=1", run=tmp_path / "one")
    other = regard.train(
        write_recipe(tmp_path, "gpt", text="spaced"), "train.steps=1", run=tmp_path / "two"
    )
    with pytest.raises(InputError, match="a draft must have the vocabulary of"):
        one.use_draft(other)


def test_weights_that_are_no_numbers_are_told(tmp_path):
    from safetensors.torch import load_file, save_file

    run = regard.train(write_recipe(tmp_path, "gpt"), "train.steps=1", run=tmp_path / "run")
    weights = load_file(run.folder / "model.safetensors")
    weights["norm.weight"][3] = float("nan")
    save_file(weights, run.folder / "model.safetensors")
    with pytest.raises(RunError, match="the weights must be numbers, but some of 'norm.weight'"):
        regard.load(run.folder)


def test_a_context_longer_than_the_model_is_told(tmp_path):
    with pytest.raises(RecipeError, match=r"model.positions \(8\) must be at least task.context"):
        regard.train(write_recipe(tmp_path, "gpt"), "model.positions=8", run=tmp_path / "run")


def test_a_teacher_that_cannot_teach_is_told(tmp_path):
    settings = ("train.steps=1", "model.positions=20")
    short = regard.train(write_recipe(tmp_path), *settings, run=tmp_path / "short")
    wider = ["task.context=24", "model.positions=24"]
    teacher = f"train.teacher={short.folder}"
    with pytest.raises(RunError, match=r"task.context \(24\) tokens, but can place 20"):
        regard.train(write_recipe(tmp_path), *wider, teacher, run=tmp_path / "new")
    with pytest.raises(RunError, match="learned the student's task, but is a run for language"):
        regard.train("translate-tatoeba", teacher, "train.device=cpu", run=tmp_path / "other")


def test_what_is_no_text_is_told_wherever_it_is_typed(tmp_path):
    run = regard.train(write_recipe(tmp_path), "train.steps=1", run=tmp_path / "run")
    with pytest.raises(InputError, match="the text must be UTF-8"):
        run.task.slides("a\udcffb", run.model, run.recipe.decode)
    with pytest.raises(InputError, match="target: the text must be UTF-8"):
        run.see("to be", "a\udcffb")


def test_a_model_without_attention_says_so(tmp_path):
    run = regard.train(write_recipe(tmp_path, "rnn"), "train.steps=1", run=tmp_path / "run")
    with pytest.raises(InputError, match="has no attention to see"):
        run.see("to be")


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("rnn", ["task.cut=documents"], "needs a model that keeps packed texts apart, which rnn"),
        ("rnn", ["task.cut=stream", "train.teacher={run}"], "a teacher reads each batch by itself"),
        ("gpt", ["train.teacher={run}/nothing"], "train.teacher must name a finished run"),
        ("gpt", ["task.kind=permute", "task.cut=documents"], "permuted text is cut into windows"),
        ("gpt", ["text.dropout=0.1"], "text.dropout: only tasks of pairs"),
        ("xl", ["model.width=33", "model.heads=3"], "an odd width"),
        ("gpt", ["model.width=8", "model.heads=16"], "16 heads cannot share a smaller width"),
        ("rnn", ["train.freeze=1"], "rnn has no blocks to tell apart"),
        ("rnn", ["train.layer_decay=0.9"], "rnn has no blocks to tell apart"),
        ("gpt", ["train.layer_decay=0.9", "train.optimizer=muon"], "only train.optimizer=adamw"),
        ("gpt", ["train.optimizer=asgd", "train.keep=average"], "asgd averages by itself"),
    ],
)
def test_what_does_not_fit_together_is_told(tmp_path, model, options, said):
    options = [option.format(run=tmp_path / "run") for option in options]
    with pytest.raises((RecipeError, RunError), match=said):
        regard.train(write_recipe(tmp_path, model), *options, run=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_how_to_decode_can_be_said_after_the_recipe(tmp_path):
    """The recipe draws with a temperature; greedy has no use for one."""
    path = write_recipe(tmp_path)
    text = (tmp_path / "lm.toml").read_text()
    (tmp_path / "lm.toml").write_text(text.replace('"greedy"', '"sample"\ntop_k = 3'))
    regard.train(path, "train.steps=1", run=tmp_path / "run")
    assert regard.load(tmp_path / "run", "decode.kind=greedy").predict(["to be"])[0].output
    assert regard.load(tmp_path / "run", "decode.kind=beam").recipe.decode.top_k == 0


def test_what_language_models_want_by_default(tmp_path):
    path = write_recipe(tmp_path)
    text = (tmp_path / "lm.toml").read_text().partition("[decode]")[0]
    (tmp_path / "lm.toml").write_text(text.replace("smoothing = 0.0\n", ""))
    recipe = read_recipe(path)
    assert recipe.train.smoothing == 0.0 and recipe.decode.kind == "sample"
