"""Classes, numbers, tags and answers: from files to scores, and what is said of bad ones."""

import csv
import json

import numpy as np
import pytest
import torch

import regard
from regard.data import squad
from regard.data.read import Faults
from regard.decode import Settings as Decode
from regard.errors import DataError, InputError, RecipeError
from regard.models import MODELS
from regard.models.bert import BERT
from regard.tasks.answer import Answer, AnswerSettings, best_span, span_of
from regard.tasks.classify import Classify, ClassifySettings
from regard.tasks.labels import guess
from regard.tasks.tag import Tag, TagSettings
from regard.tasks.texts import windows
from regard.text import Settings as TextSettings
from tests.toys import sentences

TEXT = TextSettings(kind="wordpiece", size=60, lowercase=True)
WORDS = TextSettings(kind="words", size=60)
SMALL = """
[data]
train = "train.{kind}"
valid = "valid.{kind}"
[text]
size = 60
[model]
kind = "{model}"
width = 32
depth = 1
heads = 2
dropout = 0.0
{model_more}
[train]
steps = {steps}
batch_tokens = 300
rate = 0.004
schedule = "linear"
warmup = 10
save_every = 200
evaluate_every = 200
device = "cpu"
"""


def made(kind, settings, text, path, faults=None):
    """A task that has learned from a file, and what it makes of it."""
    cache, faults = path.parent / "cache", faults or Faults()
    examples = kind.examples(settings, [path], cache, faults)
    task = kind.learn(settings, {"text": text}, examples)
    return task, task.data(examples, cache, 10**9, faults)


def test_who_gives_more_than_is_read_is_told(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("good film\tpos\nbad film\tneg\n")
    task, _ = made(Classify, ClassifySettings(text="1", label="2", context=6), WORDS, path)
    model = BERT(task.sizes, MODELS["bert"].Settings(width=8, depth=1, heads=2)).eval()
    short, long = task.predict(model, ["good film", "good film" + " good film" * 4], Decode(), 6)
    assert short.warning is None
    assert long.warning == "the input is longer than the 6 tokens that are read; 6 were left out"
    assert task.frame([4], [5] * 9, 6).left_out == 7  # of a pair, with three specials


def data_of(task, path, faults=None):
    """What a task that has learned already makes of another file."""
    cache, faults = path.parent / "cache", faults or Faults()
    examples = task.examples(task.settings, [path], cache, faults)
    return task.data(examples, cache, 10**9, faults)


def write_recipe(folder, task, kind="tsv", steps=120, model="bert", more="", model_more=None):
    path = folder / "toy.toml"
    model_more = 'attention_dropout = 0.0\nresidual = "pre"' if model_more is None else model_more
    body = SMALL.format(kind=kind, steps=steps, model=model, model_more=model_more)
    path.write_text(f"[task]\n{task}\n{body}{more}\n")
    return path


def write_rows(folder, name, rows, header, kind="tsv"):
    path = folder / f"{name}.{kind}"
    if kind == "jsonl":
        rows = (json.dumps(dict(zip(header, row, strict=True))) for row in rows)
        path.write_text("".join(f"{row}\n" for row in rows))
        return path
    with path.open("w", newline="") as file:
        if kind == "csv":
            csv.writer(file).writerows([header, *rows])
        else:
            file.writelines("\t".join(map(str, row)) + "\n" for row in [header, *rows])
    return path


def colours(count, seed=0):
    """A sentence is red where the word is in it."""
    return [(line, "red" if "red" in line.split() else "none") for line in sentences(count, seed)]


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_classes_are_learned_from_any_table(tmp_path, kind):
    for seed, (part, count) in enumerate({"train": 300, "valid": 60}.items()):
        write_rows(tmp_path, part, colours(count, seed), ["words", "colour"], kind)
    recipe = write_recipe(tmp_path, 'kind = "classify"\ntext = "words"\nlabel = "colour"', kind)
    run = regard.train(str(recipe), run=tmp_path / "run")
    scores = json.loads((tmp_path / "run/results.json").read_text())["valid"]
    assert scores["accuracy"] > 95 and scores["examples"] == 60
    low, high = scores["accuracy_interval"]
    assert low <= scores["accuracy"] <= high
    assert np.sum(scores["confusion"]["matrix"]) == 60
    assert scores["per_class"]["red"]["f1"] > 0.9
    answer = run.predict(["two red cats"])[0]
    assert answer.label == answer.output == "red" and answer.probabilities["red"] > 0.5
    card = (tmp_path / "run/README.md").read_text()
    assert "| red |" in card and "was taken for what" in card


def test_pairs_several_labels_and_numbers(tmp_path):
    def rows(count, seed):
        for line in sentences(count, seed):
            words = line.split()
            holds = [c for c in ("red", "green") if c in words]
            yield [line, words[0], holds, round(words.count("cats") / 2 + 0.25, 2)]

    for seed, (part, count) in enumerate({"train": 300, "valid": 60}.items()):
        write_rows(tmp_path, part, rows(count, seed), ["a", "b", "colours", "cats"], "jsonl")
    task = 'kind = "classify"\ntext = "a"\npair = "b"\nlabel = "colours"'
    run = regard.train(str(write_recipe(tmp_path, task, "jsonl", 250)), run=tmp_path / "many")
    scores = json.loads((tmp_path / "many/results.json").read_text())["valid"]
    assert scores["f1"] > 90 and set(scores["per_class"]) == {"green", "red"}
    assert "red" in run.predict(["two red cats\ttwo"])[0].output
    with pytest.raises(InputError, match="two texts with a tab between, but there is no tab"):
        run.predict(["two red cats"])
    task = 'kind = "classify"\ntext = "a"\nlabel = "cats"'
    run = regard.train(str(write_recipe(tmp_path, task, "jsonl", 250)), run=tmp_path / "number")
    scores = json.loads((tmp_path / "number/results.json").read_text())["valid"]
    assert scores["spearman"] > 70 and scores["pearson"] > 80
    assert float(run.predict(["two cats"])[0].output) == pytest.approx(0.75, abs=0.4)


def test_what_is_predicted_is_seen_from_the_labels():
    assert guess(["0", "1"]) == "class" and guess(["0.5", "1"]) == "number"
    assert guess([["a"], []]) == "classes" and guess(["a", "1.0"]) == "class"


def test_rare_classes_can_count_more(tmp_path):
    rows = [["one cats", "a"]] * 9 + [["two dogs", "b"]]
    path = write_rows(tmp_path, "train", rows, ["text", "label"])
    task, data = made(Classify, ClassifySettings(class_weights="balanced"), WORDS, path)
    assert task.weights.tolist() == pytest.approx([10 / 2 / 9, 10 / 2 / 1])
    batch = task.batch(data.store, np.arange(10))
    assert float(batch.asked.weight.sum()) == pytest.approx(10)
    with pytest.raises(RecipeError, match="a weight for each of 2 classes"):
        made(Classify, ClassifySettings(class_weights=[1.0]), WORDS, path)


def labelled(tmp_path, name, rows, **settings):
    path = write_rows(tmp_path, name, rows, ["text", "label"])
    return path, ClassifySettings(**settings)


def test_a_label_never_met_is_named(tmp_path):
    train, settings = labelled(tmp_path, "train", [["one cats", "a"], ["two dogs", "b"]])
    other, _ = labelled(tmp_path, "other", [["one cats", "a"], ["two dogs", "c"]])
    task, _ = made(Classify, settings, WORDS, train)
    with pytest.raises(
        DataError,
        match=r"other.tsv:3: the label must be one that training has \('a', 'b'\), but is 'c'",
    ):
        data_of(task, other)
    faults = Faults(skip=True)
    data = data_of(task, other, faults)
    assert data.store.rows == 1 and faults.count == data.skipped == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"text": "txt"}, r"train.tsv:1: there is no column 'txt' \(task.text\); did you mean"),
        ({"label": "klass"}, r"there is no column 'klass' \(task.label\)"),
        ({"label": "3"}, "there is no column '3'"),
        ({"text": "1", "label": "3"}, "the row must have 3 columns, but has 2"),
    ],
)  # fmt: skip
def test_a_column_that_is_not_there(tmp_path, settings, message):
    path, asked = labelled(tmp_path, "train", [["one cats", "a"]], **settings)
    with pytest.raises(DataError, match=message):
        made(Classify, asked, TEXT, path)


def test_one_class_is_none(tmp_path):
    path, settings = labelled(tmp_path, "train", [["one cats", "a"]] * 3)
    with pytest.raises(DataError, match="two classes or more to tell apart, but all rows are 'a'"):
        made(Classify, settings, WORDS, path)


def test_of_a_long_pair_the_longer_is_cut_first(tmp_path):
    path, settings = labelled(tmp_path, "train", [["one cats", "a"], ["two dogs", "b"]])
    task, _ = made(Classify, settings, WORDS, path)
    framed = task.frame([10] * 5, [11] * 50, 23)
    assert len(framed.ids) == 23 and framed.ids.count(10) == 5 and framed.ids.count(11) == 15
    framed = task.frame([10] * 50, [11] * 50, 23)
    assert framed.ids.count(10) == framed.ids.count(11) == 10
    framed = task.frame([10] * 50, [11] * 3, 13)
    assert framed.ids.count(10) == 7 and framed.ids.count(11) == 3


def test_gpt_tells_classes_with_its_language_loss_beside(tmp_path):
    for seed, (part, count) in enumerate({"train": 300, "valid": 60}.items()):
        write_rows(tmp_path, part, colours(count, seed), ["text", "label"])
    recipe = write_recipe(
        tmp_path, 'kind = "classify"', model="gpt", more="language_weight = 0.5", steps=150,
        model_more="",
    )  # fmt: skip
    run = regard.train(str(recipe), "decode.kind=greedy", run=tmp_path / "run")
    scores = json.loads((tmp_path / "run/results.json").read_text())["valid"]
    assert scores["accuracy"] > 90
    from regard.training.loss import ClassLoss

    store = data_of(run.task, tmp_path / "train.tsv").store
    batch = run.task.batch(store, np.arange(8))
    plain, both = (ClassLoss(language=w)(run.model.train(), batch).total for w in (0.0, 0.5))
    assert both[0].item() == pytest.approx(plain.item())
    assert both[1].item() > 0
    assert batch.counts == (8, int(batch.read.lengths.sum()) - 8)  # each part has its own
    both[1].backward()
    assert run.model.output.weight.grad is None or not run.model.output.weight.grad.any()


# Tags.


def write_conll(path, sentences):
    path.write_text("\n".join("".join(f"{w} x {t}\n" for w, t in s) for s in sentences))
    return path


def test_tags_are_read_as_bio_and_what_breaks_them_is_said(tmp_path):
    path = write_conll(
        tmp_path / "a.conll", [[("EU", "I-ORG"), ("in", "O"), ("Rome", "I-LOC"), ("Oslo", "B-LOC")]]
    )
    row = next(Tag.read(TagSettings(scheme="iob1"), [path], Faults()))
    assert row.tags == ["B-ORG", "O", "B-LOC", "B-LOC"]
    with pytest.raises(
        DataError,
        match=r"a.conll:1: an entity must begin with B- .*, but word 1, 'EU', has I-ORG",
    ):
        list(Tag.read(TagSettings(scheme="bio"), [path], Faults()))
    path = write_conll(tmp_path / "b.conll", [[("ok", "O")], [("EU", "X-ORG")]])
    with pytest.raises(
        DataError,
        match="b.conll:3: in this sentence, tag 1: it must be O, B-type or I-type, but is 'X-ORG'",
    ):
        list(Tag.read(TagSettings(scheme="iob1"), [path], Faults()))
    path.write_text("one\n")
    with pytest.raises(DataError, match="b.conll:1: a line must have 2 columns"):
        list(Tag.read(TagSettings(scheme="iob1"), [path], Faults()))


def test_words_are_tagged_at_their_first_piece_however_text_is_cut(tmp_path):
    sentence = [("Ünder", "B-A"), ("of", "O"), ("Rome-Oslo", "B-B"), (".", "O")]
    path = write_conll(tmp_path / "a.conll", [sentence] * 3)
    for kind, size in (("wordpiece", 30), ("bpe", 30), ("byte-bpe", 270), ("words", 30)):
        text = TextSettings(kind=kind, size=size, bytes=False, lowercase=False)
        task, _ = made(Tag, TagSettings(), text, path)
        found = task.tokenise([[word for word, _ in sentence]])[0]
        assert found.words == [0, 1, 2, 3]
        names = task.text.tokens([found.ids[i] for i in found.begins])
        assert [n.strip("▁Ġ")[:1] for n in names[1:]] == ["o", "R", "."]


def test_long_sentences_are_read_in_windows(tmp_path):
    words = [f"w{'abcdefg'[i % 7]}" for i in range(100)]
    path = write_conll(tmp_path / "a.conll", [[(w, f"B-{w}") for w in words]])
    task, data = made(Tag, TagSettings(context=12), WORDS, path)
    assert data.store.rows == 1
    pieces = np.concatenate(task.plan(data.store, 12 * 100, 0).epoch(0))
    assert len(pieces) > 9 and task.widths(pieces).max() == 12
    batch = task.batch(data.store, pieces)
    assert batch.read.lengths.tolist() == task.widths(pieces).tolist()
    assert batch.tokens == 100 == int(batch.asked.real.sum())  # side by side, each word once
    right = [task.number[f"B-{word}"] for word in words]
    assert batch.asked.tags[batch.asked.real].sort()[0].tolist() == sorted(right)
    swept = task.evaluation_batches(data.store, 24)
    assert sum(int((some.asked.tags >= 0).sum()) for some in swept) == 100

    class Copies(torch.nn.Module):
        """Says which word it sees."""

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, batch):
            scores = torch.zeros(*batch.read.ids.shape, len(task.labels))
            for row, ids in enumerate(batch.read.ids.tolist()):
                for place, name in enumerate(task.text.tokens(ids)):
                    tag = task.number.get(f"B-{name.strip('▁')}")
                    if tag is not None:
                        scores[row, place, tag] = 1.0
            return scores

    assert len(task.text.encode(["wa"])[0]) == 1
    assert task.tagged(Copies(), [(task.tokenise([words])[0], 100)], 200) == [right]
    told = task.predict(Copies(), [" ".join(words)], Decode(), 0)[0]
    assert told.tags == tuple((word, f"B-{word}") for word in words)
    _, _, judged = task.judge(Copies(), data.store, 200, 1)
    assert judged.accuracy() == 1.0 and judged.matrix.sum() == 100


def test_windows_cover_everything():
    assert windows(10, 6, 3) == [(0, 6), (3, 9), (6, 10)]
    assert windows(5, 6, 3) == [(0, 5)] and windows(6, 6, 3) == [(0, 6)]
    for length in range(1, 60):
        for room, stride in ((7, 3), (7, 7), (5, 1)):
            seen = set()
            for start, end in windows(length, room, stride):
                assert 0 < end - start <= room
                seen |= set(range(start, end))
            assert seen == set(range(length))


def test_entities_are_learned(tmp_path):
    def rows(count, seed):
        for line in sentences(count, seed):
            yield [(w, "I-ANIMAL" if w in ("cats", "dogs") else "O") for w in line.split()]

    write_conll(tmp_path / "train.conll", rows(200, 0))
    write_conll(tmp_path / "valid.conll", rows(40, 1))
    run = regard.train(
        str(write_recipe(tmp_path, 'kind = "tag"', "conll", 60)), run=tmp_path / "run"
    )
    scores = json.loads((tmp_path / "run/results.json").read_text())["valid"]
    assert scores["f1"] > 95 and scores["f1_strict"] > 95 and "ANIMAL" in scores["per_class"]
    answer = run.predict(["Two red cats!"])[0]
    assert answer.tags[2] == ("cats", "B-ANIMAL") and answer.tags[-1][0] == "!"


# Answers.


def write_squad(path, rows, version="1.1"):
    paragraphs = []
    for number, (context, question, answers) in enumerate(rows):
        given = [{"text": t, "answer_start": s} for t, s in answers]
        asked = {"id": f"q{number}", "question": question, "answers": given}
        asked |= {"is_impossible": not answers} if version == "2.0" else {}
        paragraphs.append({"context": context, "qas": [asked]})
    path.write_text(json.dumps({"version": version, "data": [{"paragraphs": paragraphs}]}))
    return path


def test_an_answer_must_stand_where_it_is_said_to(tmp_path):
    path = write_squad(tmp_path / "a.json", [("One red cat.", "What?", [("red", 5)])])
    with pytest.raises(
        DataError,
        match="q0: the answer 'red' must stand at character 5 of its context, but there",
    ):
        list(squad.read([path], Faults()))
    path.write_text('{"data": [{"paragraphs": [{"qas": []}]}]}')
    with pytest.raises(DataError, match="paragraph 1: it must have 'context' and 'qas'"):
        list(squad.read([path], Faults()))
    path.write_text("[]")
    with pytest.raises(DataError, match="a.json: not a SQuAD file"):
        list(squad.read([path], Faults()))


@pytest.mark.parametrize(
    ("kind", "size"), [("wordpiece", 60), ("bpe", 60), ("byte-bpe", 280), ("words", 40)]
)
def test_spans_go_to_tokens_and_back_to_the_same_characters(tmp_path, kind, size):
    context = "The  old cat, called Ünder-Möhre, lives in  New York (since 1999) with two dogs."
    answers = ["old cat", "Ünder-Möhre", "New York", "1999", "two dogs", "The"]
    rows = [(context, "What is it?", [(a, context.index(a))]) for a in answers]
    path = write_squad(tmp_path / "a.json", rows * 4)
    text = TextSettings(kind=kind, size=size, bytes=False)
    task, data = made(Answer, AnswerSettings(context=200), text, path)
    read = list(squad.read([path], Faults()))
    for row, example in enumerate(read[: len(answers)]):
        asked = task.tokenise([(example.question, example.context)])[0]
        assert task.stored_question(data.store, row) == asked
        (one,) = task.pieces([(len(asked.question), len(asked.ids))])
        piece = task.piece(asked, *one[1:3].tolist())
        assert len(piece.row.ids) == one[3]
        (answer,) = example.answers
        first, last = span_of([(answer[1], answer[1] + len(answer[0]))], piece)
        assert first > 0
        batch = task.batch(data.store, np.array([[row, *one[1:].tolist()]]))
        assert batch.asked.span.tolist() == [[first, last]]
        assert batch.read.ids[0].tolist() == piece.row.ids
        scores = torch.zeros(len(piece.row.ids), 2)
        scores[first, 0] = scores[last, 1] = 5.0
        found = best_span(scores, piece, 30)
        got = context[found.start : found.end].strip()
        assert got == example.answers[0][0], (got, kind)


def test_long_texts_are_read_in_overlapping_windows(tmp_path):
    words = " ".join(f"w{i}" for i in range(60))
    path = write_squad(
        tmp_path / "a.json", [(words, "where is it?", [("w50", words.index("w50"))])]
    )
    text = TextSettings(kind="spaced", size=100)
    task, data = made(Answer, AnswerSettings(context=20, stride=5), text, path)
    asked, table = task.stored_question(data.store, 0), task.stored_pieces(data.store)
    pieces = [task.piece(asked, start, end) for _, start, end, _ in table.tolist()]
    assert [len(piece.row.ids) for piece in pieces] == table[:, 3].tolist()
    assert table[:, 3].max() <= 20 and len(pieces) > 5
    spans = [span_of(data.store.array("answer", 0).tolist(), piece) for piece in pieces]
    assert task.batch(data.store, table).asked.span.tolist() == [list(span) for span in spans]
    (whole,) = task.plan(data.store, 20 * 100, 0).epoch(0)
    assert sorted(whole.tolist()) == table.tolist()
    held = [span for span in spans if span != (0, 0)]
    assert 1 < len(held) < len(spans)
    for piece, span in zip(pieces, spans, strict=True):
        if span != (0, 0):
            start, end = piece.places[span[0] - piece.first]
            assert words[start:end] == "w50"


def test_answers_are_learned_and_none_may_be_right(tmp_path):
    def rows(count, seed):
        for i, line in enumerate(sentences(count, seed)):
            words = line.split()
            colours = [w for w in words if w in ("red", "green")]
            if colours and line.count(colours[0]) == 1:
                yield line, "which colour ?", [(colours[0], line.index(colours[0]))]
            elif not colours and i % 2:
                yield line, "which colour ?", []

    write_squad(tmp_path / "train.json", rows(700, 0), "2.0")
    write_squad(tmp_path / "valid.json", rows(150, 1), "2.0")
    task = 'kind = "answer"\ncontext = 40\nstride = 20'
    run = regard.train(str(write_recipe(tmp_path, task, "json", 250)), run=tmp_path / "run")
    scores = json.loads((tmp_path / "run/results.json").read_text())["valid"]
    assert scores["f1"] > 90 and scores["exact_match"] > 90
    answer = run.predict(["which colour ?\ttwo green cats and one dogs"])[0]
    assert answer.output == "green" and (answer.start, answer.end) == (4, 9)
    assert run.predict(["which colour ?\ttwo cats and one dogs"])[0].output == ""
    with pytest.raises(InputError, match="a question and a text with a tab between"):
        run.predict(["which colour ?"])


# What is trained of a model.


@pytest.fixture
def origin(tmp_path):
    for seed, (part, count) in enumerate({"train": 200, "valid": 40}.items()):
        write_rows(tmp_path, part, colours(count, seed), ["text", "label"])
    recipe = write_recipe(tmp_path, 'kind = "classify"', steps=20)
    return recipe, regard.train(str(recipe), run=tmp_path / "origin")


def weights(run):
    return {name: weight.detach().clone() for name, weight in run.model.named_parameters()}


def test_a_run_brings_its_model_along(tmp_path, origin):
    recipe, first = origin
    settings = ("model.from=" + str(first.folder), "model.dropout=0.2", "train.steps=1")
    run = regard.train(str(recipe), *settings, run=tmp_path / "run")
    assert run.recipe.model.width == first.recipe.model.width and run.recipe.model.dropout == 0.2
    assert run.task.text.tokenizer.to_str() == first.task.text.tokenizer.to_str()


def test_learned_places_are_repeated_where_there_are_more(tmp_path, origin):
    recipe, first = origin
    count = len(weights(first)["embedding.position.weight"])
    settings = (
        "model.from=" + str(first.folder),
        f"model.positions={2 * count + 3}",
        "model.pattern=bigbird",
        "model.block=4",
        "train.steps=1",
        "train.rate=1e-12",
    )
    run = regard.train(str(recipe), *settings, run=tmp_path / "run")
    places, before = (weights(r)["embedding.position.weight"] for r in (run, first))
    assert len(places) == 2 * count + 3
    torch.testing.assert_close(places[:count], before)
    torch.testing.assert_close(places[count : 2 * count], before)
    torch.testing.assert_close(places[2 * count :], before[:3])
    assert run.predict(["red " * (count + 5)]), "longer than what was learned"


def test_adapters_leave_all_else_as_it_was_and_are_merged(tmp_path, origin):
    recipe, first = origin
    settings = ("model.from=" + str(first.folder), "train.adapters=4", "train.steps=10")
    run = regard.train(str(recipe), *settings, run=tmp_path / "run")
    before, after = weights(first), weights(run)
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    heads = {name for name in before if name.split(".")[0] in BERT.heads}
    assert changed - heads == {f"blocks.0.attention.{part}.weight" for part in ("query", "memory")}
    for name in changed - heads:
        rank = torch.linalg.matrix_rank((after[name] - before[name]).double(), rtol=1e-5)
        assert int(rank) <= 4


def test_the_first_blocks_can_be_frozen(tmp_path, origin):
    recipe, first = origin
    settings = ("model.from=" + str(first.folder), "train.freeze=1", "train.steps=5")
    run = regard.train(str(recipe), *settings, run=tmp_path / "run")
    before, after = weights(first), weights(run)
    for name in before:
        below = name.startswith(("embedding", "segments", "blocks.0"))
        assert torch.equal(before[name], after[name]) == below, name
    with pytest.raises(RecipeError, match="train.freeze must be 1 or less"):
        regard.train(str(recipe), *settings[:1], "train.freeze=2", run=tmp_path / "other")


def test_lower_blocks_can_learn_more_slowly():
    from regard.training.optim import adamw, set_rate
    from regard.training.settings import Settings
    from tests.toys import small_model

    model = small_model("bert", depth=3)
    optimizer = adamw(model, Settings(layer_decay=0.5))
    set_rate(optimizer, 0.1)
    rate = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    named = dict(model.named_parameters())
    assert rate[id(named["output.bias"])] == pytest.approx(0.1)
    assert rate[id(named["blocks.2.feedforward.widen.weight"])] == pytest.approx(0.05)
    assert rate[id(named["blocks.0.feedforward.widen.weight"])] == pytest.approx(0.0125)
    assert rate[id(named["embedding.tokens.weight"])] == pytest.approx(0.00625)


def test_an_adapted_training_can_be_interrupted(tmp_path, origin):
    recipe, first = origin
    settings = [
        "model.from=" + str(first.folder),
        "train.adapters=2",
        "train.steps=12",
        "train.save_every=4",
    ]
    whole = regard.train(str(recipe), *settings, run=tmp_path / "whole")
    seen = []
    regard.train(str(recipe), *settings, run=tmp_path / "cut", on_event=seen.append,
                 stop=lambda: len(seen) > 1)  # fmt: skip
    assert not (tmp_path / "cut/model.safetensors").is_file()
    again = regard.train(str(recipe), *settings, run=tmp_path / "cut")
    for name, weight in weights(whole).items():
        torch.testing.assert_close(weights(again)[name], weight, atol=0, rtol=0)


def test_every_understanding_model_can_be_seen(tmp_path, origin):
    _, first = origin
    sight = first.see("two red cats")
    assert sight.kinds() == ["blocks.attention"] and len(sight.looks) == 1
    assert sight.looks[0].weights.sum(-1) == pytest.approx(1.0, abs=1e-4)
    assert set(MODELS) >= {"bert", "t5"}


@pytest.mark.parametrize(
    ("task", "rows", "options", "said"),
    [
        ("", "numbers", ["train.r_drop=1.0"], "train.r_drop: it is for tasks that predict tokens"),
        ("", "names", ["train.teacher={run}"], "a teacher is for tasks that predict tokens alone"),
        ('metric = "f1"', "three", [], "task.metric must be one of accuracy, macro_f1, matthews"),
        (
            'class_weights = "balanced"\npredicts = "classes"',
            "several",
            [],
            "only where a row has one label",
        ),
    ],
)
def test_what_does_not_suit_what_is_predicted(tmp_path, origin, task, rows, options, said):
    recipe, first = origin
    made = {
        "names": colours(40),
        "numbers": [(line, len(line) / 7) for line in sentences(40)],
        "three": [(line, "abc"[i % 3]) for i, line in enumerate(sentences(40))],
        "several": [(line, ("a|b", "b", "a")[i % 3]) for i, line in enumerate(sentences(40))],
    }[rows]
    for part in ("train", "valid"):
        write_rows(tmp_path, part, made, ["text", "label"])
    recipe = write_recipe(tmp_path, f'kind = "classify"\n{task}', steps=2)
    options = [option.format(run=first.folder) for option in options]
    with pytest.raises(RecipeError, match=said):
        regard.train(str(recipe), *options, run=tmp_path / "new")


def test_a_text_that_cannot_be_looked_at_does_not_spoil_a_training(tmp_path):
    rows = [("one\tred" + line, label) for line, label in colours(60)]
    for part in ("train", "valid"):
        write_rows(tmp_path, part, rows, ["text", "label"], "jsonl")
    recipe = write_recipe(tmp_path, 'kind = "classify"', "jsonl", steps=2)
    run = regard.train(str(recipe), run=tmp_path / "run")
    assert "# run" in (run.folder / "README.md").read_text()
    assert not (run.folder / "attention.png").exists()
