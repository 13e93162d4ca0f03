"""Sounds out of files: any rate, channels and format; and what is said of what cannot be read."""

import io
import tarfile

import numpy as np
import pytest
import scipy.signal
import soundfile

from regard.data.read import Faults
from regard.data.sounds import SoundError, decode, read, resample
from regard.errors import DataError


def tone(rate, seconds=0.5, hertz=440.0):
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype("f4")


def as_file(samples, rate, kind="WAV", subtype=None):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "subtype", "near"),
    [
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "FLOAT", 1e-7),
        ("WAV", "ULAW", 0.02),
        ("FLAC", "PCM_16", 1e-4),
        ("OGG", "VORBIS", 0.05),
        ("MP3", None, 0.05),
    ],
)
def test_every_format_is_read(kind, subtype, near):
    x = tone(16000)
    found = decode(as_file(x, 16000, kind, subtype), 16000)
    middle = slice(2000, 6000)
    assert abs(len(found) - len(x)) < 3000 and found.dtype == np.float32
    if kind != "MP3":  # which begins with some silence
        assert np.abs(found[middle] - x[middle]).max() < near
    else:
        assert np.abs(found).max() == pytest.approx(0.5, abs=near)


def test_channels_are_mixed():
    x = tone(8000)
    assert np.abs(decode(as_file(np.stack((x, -x), 1), 8000), 8000)).max() < 1e-4
    assert np.abs(decode(as_file(np.stack((x, x), 1), 8000), 8000) - x).max() < 1e-4


RATES = [
    (44100, 16000),
    (44101, 16000),
    (8000, 16000),
    (16000, 8000),
    (22050, 16000),
    (11025, 8000),
]


@pytest.mark.parametrize(("old", "new"), RATES)
def test_a_tone_stays_a_tone_at_another_rate(old, new):
    found, wanted = resample(tone(old), old, new), tone(new)
    assert abs(len(found) - len(wanted)) <= 1
    middle = slice(len(wanted) // 4, len(wanted) // 2)
    assert np.abs(found[middle] - wanted[middle]).max() < 1e-3


def test_what_is_too_high_for_the_new_rate_is_gone():
    high = tone(16000, hertz=6000.0)
    assert np.abs(resample(high, 16000, 8000)[500:-500]).max() < 1e-3


def test_noise_is_resampled_as_by_scipy():
    rng = np.random.default_rng(0)
    low = scipy.signal.firwin(301, 0.3)  # within what either filter lets through
    x = np.convolve(rng.standard_normal(8000), low, "same").astype("f4")
    wanted = scipy.signal.resample_poly(x, 2, 3, window=("kaiser", 12.0))
    found = resample(x, 48000, 32000)
    assert len(found) == len(wanted)
    assert np.abs(found - wanted)[300:-300].max() < 0.01 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("content", "wanted"),
    [(b"", "."), (b"no sound at all", "."), (as_file(tone(8000), 8000)[:30], "."),
     (as_file(np.zeros((0,), "f4"), 8000), "it has no samples"),
     (as_file(np.full(800, np.nan, "f4"), 8000, subtype="FLOAT"), "its samples must be numbers")],
)  # fmt: skip
def test_what_is_no_sound_is_told(content, wanted):
    with pytest.raises(SoundError) as error:
        decode(content, 16000)
    assert str(error.value) and (wanted == "." or str(error.value) == wanted)


def test_a_truncated_file_is_read_as_far_as_it_goes_and_silence_is_silent():
    whole = as_file(tone(8000), 8000)
    assert 0 < len(decode(whole[: len(whole) // 2], 8000)) <= 2100
    assert not decode(as_file(np.zeros(800, "f4"), 8000), 8000).any()


def test_one_that_is_too_long_is_refused_by_its_head():
    with pytest.raises(SoundError, match="it may last 2 seconds, but lasts 3"):
        decode(as_file(tone(8000, 3.0), 8000), 8000, most=2)


def packed(path, table, names):
    with tarfile.open(path, "w:xz") as tar:
        for name, content in [("set/transcripts.tsv", table.encode())] + [
            (name, as_file(tone(8000), 8000)) for name in names
        ]:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return path


TABLE = (
    "file\tspeaker\tseconds\ttranscript\nset/a.wav\tann\t0.5\tYES NO\nset/b.wav\tbob\t0.5\tSTOP\n"
)


def test_a_tar_with_its_table_inside(tmp_path):
    path = packed(tmp_path / "an4.tar.xz", TABLE, ["set/a.wav", "set/b.wav"])
    one, two = read([path], "file", "transcript", "speaker", Faults())
    assert (one.text, one.speaker, two.text) == ("YES NO", "ann", "STOP")
    assert one.where == f"{path}:set/transcripts.tsv:2" and len(decode(one.content, 8000)) == 4000


def test_a_table_beside_its_files(tmp_path):
    (tmp_path / "a.wav").write_bytes(as_file(tone(8000), 8000))
    (tmp_path / "t.csv").write_text("audio,text\na.wav,yes\nmissing.wav,no\n")
    faults = Faults(skip=True)
    (one,) = read([tmp_path / "t.csv"], "audio", "text", "", faults)
    assert one.text == "yes" and faults.count == 1
    assert faults.first == [
        f"{tmp_path}/t.csv:3: the sound missing.wav cannot be read (No such file or directory)"
    ]


def test_a_transcript_without_its_sound_is_told(tmp_path):
    path = packed(tmp_path / "an4.tar.xz", TABLE, ["set/a.wav"])
    with pytest.raises(DataError, match="transcripts.tsv:3: there is no sound 'set/b.wav' in the"):
        list(read([path], "file", "transcript", "", Faults()))
    with pytest.raises(DataError, match="sounds must be named by a .tsv, .csv or .jsonl file"):
        list(read([tmp_path / "a.wav"], "audio", "text", "", Faults()))


def test_a_tar_with_folders_and_a_name_without(tmp_path):
    table = "audio\ttext\na.wav\tyes\n"
    path = packed(tmp_path / "s.tar.xz", table, ["clips/a.wav"])
    (one,) = read([path], "audio", "text", "", Faults())
    assert one.text == "yes"


def test_odd_rates_and_names_are_told(tmp_path):
    whole = bytearray(as_file(tone(8000), 8000))
    whole[24:28] = (1_000_000_007).to_bytes(4, "little")
    with pytest.raises(SoundError, match="its rate must be 1000 to 400000 Hz"):
        decode(bytes(whole), 8000)
    (tmp_path / "t.jsonl").write_text('{"audio": "a\\u0000b.wav", "text": "x"}\n')
    with pytest.raises(DataError, match="cannot be read"):
        list(read([tmp_path / "t.jsonl"], "audio", "text", "", Faults()))


def test_names_that_two_files_have_need_their_folder(tmp_path):
    table = "audio\ttext\n1.wav\tone\nbob/1.wav\ttwo\n2.wav\tthree\ncarol/1.wav\tfour\n"
    files = {"all.tsv": table.encode(), "alice/1.wav": as_file(tone(8000), 8000)}
    files |= {"bob/1.wav": as_file(tone(8000, 0.2), 8000), "bob/2.wav": as_file(tone(8000), 8000)}
    with tarfile.open(tmp_path / "all.tar", "w") as tar:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    faults = Faults(skip=True)
    found = list(read([tmp_path / "all.tar"], "audio", "text", "", faults))
    assert [(one.text, len(one.content)) for one in found] == [
        ("two", len(files["bob/1.wav"])), ("three", len(files["bob/2.wav"])),
    ]  # fmt: skip
    assert faults.count == 2  # whose is 1.wav?


def test_a_sound_that_is_too_long_or_does_not_say_how_long_is_told():
    content = bytearray(as_file(tone(8000, 2.0), 8000, "FLAC"))
    with pytest.raises(SoundError, match="it may last 1 seconds, but lasts 2"):
        decode(bytes(content), 8000, most=1)
    content[21:26] = bytes([content[21] & 0xF0, 0, 0, 0, 0])  # the number of samples: not known
    with pytest.raises(SoundError, match="its head must say how long it is"):
        decode(bytes(content), 8000)
