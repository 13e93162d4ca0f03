"""Pre-training: what is hidden, what follows on what, and what is left out."""

import numpy as np
import pytest
import torch

from regard.data import running
from regard.data.read import Faults
from regard.errors import DataError
from regard.models.bert import BERT, BERTSettings
from regard.tasks import Prediction
from regard.tasks.masked import MaskedSettings, MaskedWords, choose
from regard.tasks.spans import Spans, SpansSettings, divide, left_out
from regard.tasks.task import Measured
from regard.text import Settings as TextSettings
from regard.training.loss import MaskedLoss
from tests.toys import sentences


def corpus(folder, texts=40, lines=12):
    """Texts of several sentences, a blank line after each."""
    path = folder / "train.txt"
    rows = sentences(texts * lines)
    blocks = ["\n".join(f"{row.capitalize()} ." for row in rows[i : i + lines])
              for i in range(0, len(rows), lines)]  # fmt: skip
    path.write_text("\n\n".join(blocks) + "\n")
    return path


def made(kind, settings, text, files, folder):
    """A task that has learned from files, and what it makes of them."""
    examples = kind.examples(settings, files, folder / "cache", Faults())
    task = kind.learn(settings, {"text": text}, examples)
    return task, task.data(examples, folder / "cache", 10**9, Faults())


def masked(folder, **settings):
    text = TextSettings(kind="wordpiece", size=70, lowercase=True)
    asked = MaskedSettings(**{"context": 32, **settings})
    task, data = made(MaskedWords, asked, text, [corpus(folder)], folder)
    return task, data.store


def seeded(rows, *seed):
    """A generator for each row, as training has them."""
    return [np.random.default_rng((*seed, row)) for row in range(len(rows))]


def batches(task, store, epochs=6, budget=512):
    plan = task.plan(store, budget, 0)
    step = 0
    for number in range(epochs):
        for rows in plan.epoch(number):
            step += 1
            yield rows, task.batch(store, rows, seeded(rows, 7, step))


def test_of_the_words_fifteen_in_a_hundred_are_asked_for_and_of_those_eighty_ten_ten(tmp_path):
    task, store = masked(tmp_path)
    words = asked = hidden = kept = 0
    for _, batch in batches(task, store, epochs=60):
        ids = batch.read.ids
        specials = torch.isin(ids, torch.tensor([task.text.bos, task.text.eos, task.text.pad]))
        words += int((~specials).sum())
        asked += batch.tokens
        now = ids.gather(1, batch.asked.places)
        real = batch.asked.real
        hidden += int(((now == task.text.mask) & real).sum())
        kept += int(((now == batch.asked.words) & real).sum())
    assert asked / words == pytest.approx(0.15, abs=0.004)
    error = 3 * np.sqrt(0.8 * 0.2 / asked)
    assert hidden / asked == pytest.approx(0.8, abs=error)
    # A word drawn at random is now and then the one that stood there.
    chance = 0.1 + 0.1 / (task.text.size - 5)
    assert kept / asked == pytest.approx(chance, abs=3 * np.sqrt(0.09 / asked) + 0.005)


def test_half_of_the_pairs_follow(tmp_path):
    task, store = masked(tmp_path)
    flat, texts = store.flat("text"), np.flatnonzero(store.flat("begins"))
    starts = np.append(np.asarray(store.starts("text"))[texts], len(flat))
    follows = []
    for rows, batch in batches(task, store, epochs=40):
        for row, label in zip(rows, batch.asked.follows.tolist(), strict=True):
            follows.append(label)
            one, two = np.searchsorted(starts, (row.one, row.two), "right")
            assert (label == 1) == (row.middle == row.two), "goes on where the first half ended"
            assert (one == two) == (label == 1), "what does not follow is of another text"
            assert np.searchsorted(starts, row.end - 1, "right") == two, "no half holds two texts"
    share = np.mean(follows)
    assert share == pytest.approx(0.5, abs=3 * 0.5 / np.sqrt(len(follows)))


def test_rows_are_full_and_differ_from_epoch_to_epoch(tmp_path):
    task, store = masked(tmp_path)
    plan = task.plan(store, 512, 0)
    used = [sum(r.middle - r.one + r.end - r.two for r in rows) / len(rows) / task.room
            for number in range(5) for rows in plan.epoch(number)]  # fmt: skip
    assert np.mean(used) > 0.85  # texts here end after three rows or four
    assert plan.epoch(0) != plan.epoch(1) and plan.epoch(1) == plan.epoch(1)
    rows = plan.epoch(0)[0]
    first, second, again = (task.batch(store, rows, seeded(rows, n)).read for n in (1, 2, 1))
    assert not torch.equal(first.ids, second.ids) and torch.equal(first.lengths, second.lengths)
    assert torch.equal(first.ids, again.ids)


def test_both_texts_are_told_apart(tmp_path):
    task, store = masked(tmp_path)
    for rows, batch in batches(task, store, epochs=1):
        read = (x.tolist() for x in (batch.read.ids, batch.read.segments, batch.read.lengths))
        for row, ids, parts, length in zip(rows, *read, strict=True):
            first = 2 + row.middle - row.one
            assert ids[0] == task.text.bos and ids[first - 1] == ids[length - 1] == task.text.eos
            assert parts[:first] == [0] * first
            assert parts[first:length] == [1] * (length - first)


def test_words_are_hidden_whole(tmp_path):
    task, store = masked(tmp_path, whole_words=True)
    continues = torch.from_numpy(task.continues)
    assert continues.any()
    for _, batch in batches(task, store, epochs=3):
        ids, asked = batch.read.ids, batch.asked
        chosen = torch.zeros_like(ids, dtype=torch.bool)
        chosen.scatter_(1, asked.places, asked.real)
        now = ids.gather(1, asked.places)
        whole = ids.scatter(1, asked.places, torch.where(asked.real, asked.words, now))
        # A half may begin within a word, where no other did.
        known = torch.isin(whole[:, :-1], torch.tensor(sorted(task.text.specials)))
        inside = continues[whole[:, 1:]] & ~known
        assert torch.equal(chosen[:, 1:][inside], chosen[:, :-1][inside])


def test_choosing_takes_the_count(tmp_path):
    able = np.ones((50, 40), bool)
    able[:, 30:] = False
    counts = np.full(50, 5)
    chosen = choose(able, counts, None, np.random.default_rng(0).random(able.shape))
    assert (chosen.sum(1) == 5).all() and not chosen[:, 30:].any()


def test_both_losses_are_means_and_do_not_depend_on_how_a_batch_is_cut(tmp_path):
    task, store = masked(tmp_path)
    _, batch = next(batches(task, store))
    torch.manual_seed(0)
    sizes = task.sizes
    model = BERT(sizes, BERTSettings(16, 1, 2, positions=32, dropout=0, attention_dropout=0))
    loss = MaskedLoss()
    whole = loss(model, batch)
    parts = [loss(model, batch.shard(i, 3)) for i in range(3)]
    torch.testing.assert_close(whole.total, sum(part.total for part in parts))
    words, after = (whole.nll / torch.tensor(batch.counts)).tolist()
    with torch.no_grad():
        passed = model.states(batch)
        wanted = torch.nn.functional.cross_entropy(passed.follows, batch.asked.follows)
    assert after == pytest.approx(float(wanted), rel=1e-5)
    assert words == pytest.approx(np.log(sizes.source), rel=0.1)


def test_texts_begin_where_they_are_said_to(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(" = One = \n\nA cat. A dog ran! \n\n = = Part = = \nMore.\n = Two = \nEnd.\n")
    heads = [s for s, begins in running.sentences([path], "headings", Faults()) if begins]
    assert heads == ["= One =", "= Two ="]
    every = [s for s, _ in running.sentences([path], "blank", Faults())]
    assert every[1:3] == ["A cat.", "A dog ran!"]
    assert sum(b for _, b in running.sentences([path], "file", Faults())) == 1


def test_one_text_has_nothing_that_does_not_follow(tmp_path):
    path = corpus(tmp_path, texts=1)
    text = TextSettings(kind="wordpiece", size=60, lowercase=True)
    task, data = made(MaskedWords, MaskedSettings(context=32), text, [path], tmp_path)
    with pytest.raises(DataError, match="task.next needs two texts or more"):
        task.plan(data.store, 128, 0)


# Spans.


def spans(folder, **settings):
    task, data = spans_data(folder, **settings)
    return task, data.store


def spans_data(folder, **settings):
    text = TextSettings(kind="unigram", size=130, bytes=False)
    asked = SpansSettings(**{"context": 32, **settings})
    return made(Spans, asked, text, [corpus(folder)], folder)


def test_what_is_left_out_and_what_stays_make_the_text(tmp_path):
    task, store = spans(tmp_path)
    marks = set(task.sentinels)
    plan = task.plan(store, 256, 0)
    hidden = total = places = 0
    for number in range(20):
        for rows in plan.epoch(number):
            chance = np.random.default_rng(number)
            for a, b in rows:
                ids = store.flat("text")[a:b].tolist()
                source, target = task.corrupt(ids, chance)
                assert len(source) + 1 <= 32
                pieces = split_at(target, marks)
                rebuilt = []
                for token in source:
                    rebuilt += pieces[token] if token in marks else [token]
                assert rebuilt == ids
                used = [token for token in source if token in marks]
                assert (
                    used == task.sentinels[: len(used)] and target[-1] == task.sentinels[len(used)]
                )
                hidden += len(target) - len(used) - 1
                total, places = total + len(ids), places + len(used)
    assert hidden / total == pytest.approx(0.15, abs=0.02)
    assert hidden / places == pytest.approx(3.0, abs=0.5)


def split_at(target, marks):
    pieces, now = {}, None
    for token in target:
        if token in marks:
            now = token
            pieces[now] = []
        else:
            pieces[now].append(token)
    return pieces


def test_no_row_holds_two_texts(tmp_path):
    task, store = spans(tmp_path)
    starts = np.asarray(store.starts("text"))
    for rows in task.plan(store, 256, 0).epoch(3):
        for a, b in rows:
            assert np.searchsorted(starts, a, "right") == np.searchsorted(starts, b - 1, "right")


def test_the_papers_sizes():
    """512 read tokens come of 568, of which 85 in 28 places are left out."""
    settings = SpansSettings(context=512)
    assert left_out(568, settings) == (85, 483, 28)
    assert 483 + 28 + 1 == 512


def test_a_number_is_divided_evenly():
    chance = np.random.default_rng(0)
    drawn = np.array([divide(10, 3, chance) for _ in range(4000)])
    assert (drawn > 0).all() and (drawn.sum(1) == 10).all()
    assert drawn.mean(0) == pytest.approx([10 / 3] * 3, abs=0.15)


@pytest.mark.parametrize("make", [masked, spans])
def test_scoring_reads_every_piece_once_whatever_the_budget(make, tmp_path):
    task, store = make(tmp_path)

    def swept(budget):
        found = []
        for batch in task.evaluation_batches(store, budget):
            for row in range(len(batch)):
                parts = (tensor[row].flatten().tolist() for tensor in batch.tensors()[:4])
                found.append([[i for i in part if i] for part in parts])  # without padding
        return found

    small, large = swept(96), swept(32 * 50)
    plan = task.plan(store, 96, 0)
    assert len(small) == len(large) == len(plan.pieces)
    if make is spans:
        assert small == large


def test_texts_of_one_token_are_told(tmp_path):
    task, _ = masked(tmp_path)
    (tmp_path / "words.txt").write_text("\n\n".join(["."] * 40) + "\n")
    cache, faults = tmp_path / "cache", Faults()
    examples = task.examples(task.settings, [tmp_path / "words.txt"], cache, faults)
    store = task.data(examples, cache, 10**9, faults).store
    with pytest.raises(DataError, match="a text of two tokens or more"):
        task.plan(store, 128, 0)


def test_a_sentinel_can_be_typed(tmp_path):
    task, data = spans_data(tmp_path)
    ids = task.read_source(["One <extra_id_0> two <extra_id_12>."])[0]
    assert [i for i in ids if i in task.sentinels] == [task.sentinels[0], task.sentinels[12]]
    rest = [i for i in ids if i not in task.sentinels]
    assert rest == [i for piece in ("One", "two", ".") for i in task.source.encode([piece])[0]]
    assert task.sentinels[0] in task.read_source([task.example(data.examples)])[0]


def test_distances_need_buckets_of_their_own():
    from regard.parts.relative import Buckets

    with pytest.raises(AssertionError, match="must be beyond them"):
        Buckets(2, 32, 4)


def test_two_tasks_of_one_name_are_scored_apart(tmp_path):
    from regard.tasks.text_to_text import TextToText, TextToTextSettings

    for number, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        rows = [f"{line}\t{['yes', 'no'][number]}" for line in sentences(20, number)]
        (tmp_path / folder / "dev.tsv").write_text("\n".join(["source\ttarget", *rows]) + "\n")
    files = [tmp_path / "a/dev.tsv", tmp_path / "b/dev.tsv"]
    settings = TextToTextSettings(metric="accuracy")
    text = TextSettings(kind="unigram", size=125, bytes=False)
    task, data = made(TextToText, settings, text, files, tmp_path)
    task.translate = lambda model, lines, *rest: [Prediction(line, "yes", 0.0) for line in lines]
    scores = task.evaluate(None, data, None, Measured(1.0, 1))
    assert scores["dev.tsv: accuracy"] == 100.0 and scores["dev.tsv 2: accuracy"] == 0.0
    assert scores["score"] == 50.0 and scores["examples"] == 40


def test_lists_that_do_not_fit_the_files_are_refused_though_the_examples_are_known(tmp_path):
    from regard.errors import RecipeError
    from regard.tasks.text_to_text import TextToText, TextToTextSettings

    path = tmp_path / "a.tsv"
    path.write_text("source\ttarget\none\tun\n")
    for _ in range(2):
        TextToText.examples(TextToTextSettings(), [path], tmp_path, Faults())
    for metric in ([], ["bleu", "rouge"]):
        with pytest.raises(RecipeError, match="task.metric must say something of each of 1 files"):
            TextToText.examples(TextToTextSettings(metric=metric), [path], tmp_path, Faults())
