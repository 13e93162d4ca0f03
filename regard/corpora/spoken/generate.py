"""Numbers spoken by a synthesiser: `python -m regard.corpora.spoken.generate FOLDER`.

It needs espeak-ng and soundfile. Each part is a tar of Ogg files with a table of what is said in
them; who speaks in the test speaks nowhere else. What a synthesiser says is nobody's.
"""

from __future__ import annotations

import io
import random
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...data.sounds import decode

DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SIZES = {"train": 360, "valid": 40, "test": 80}
RATE = 8000
# Accents, and voices that speak with them.
ACCENTS = ["en", "en-us", "en-gb-scotland", "en-gb-x-rp", "en-029"]
VOICES = {
    "train": ["m1", "m2", "m3", "m4", "m5", "f1", "f2", "f3", "Andy", "Annie", "Denis", "linda"],
    "valid": ["m6", "f4"],
    "test": ["m7", "f5", "Michael", "Alicia"],
}


def say(text: str, voice: str, speed: int, pitch: int) -> bytes:
    """A WAV file."""
    command = ["espeak-ng", "-v", voice, "-s", str(speed), "-p", str(pitch), "--stdout", text]
    return subprocess.run(command, check=True, capture_output=True).stdout


def as_ogg(content: bytes) -> bytes:
    """The same at a telephone's rate, and small."""
    import soundfile

    file = io.BytesIO()
    samples = decode(content, RATE)
    soundfile.write(file, samples, RATE, format="OGG", subtype="OPUS", compression_level=1.0)
    return file.getvalue()


class Spoken(NamedTuple):
    """What is said, by whom, and how."""

    text: str
    voice: str
    accent: str
    speed: int
    pitch: int


def drawn(part: str) -> Iterator[Spoken]:
    """All that is said in a part, the same every time."""
    dice = random.Random(f"spoken {part}")
    for _ in range(SIZES[part]):
        text = " ".join(dice.choice(DIGITS) for _ in range(dice.randint(1, 4)))
        voice, accent = dice.choice(VOICES[part]), dice.choice(ACCENTS)
        yield Spoken(text, voice, accent, dice.randint(130, 190), dice.randint(30, 70))


def table(part: str) -> str:
    rows = [f"{number:03}.ogg\t{one.text}\t{one.voice}\n" for number, one in enumerate(drawn(part))]
    return "".join(["audio\ttext\tspeaker\n", *rows])


def write(folder: Path, part: str) -> None:
    files = [(f"{part}.tsv", table(part).encode())]
    for number, (text, voice, accent, speed, pitch) in enumerate(drawn(part)):
        files.append((f"{number:03}.ogg", as_ogg(say(text, f"{accent}+{voice}", speed, pitch))))
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / f"{part}.tar.gz", "w:gz", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))


if __name__ == "__main__":
    for part in SIZES:
        write(Path(sys.argv[1]), part)
