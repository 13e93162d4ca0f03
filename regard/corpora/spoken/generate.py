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
from pathlib import Path

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


def write(folder: Path, part: str, count: int) -> None:
    dice = random.Random(f"spoken {part}")
    files, rows = list[tuple[str, bytes]](), ["audio\ttext\tspeaker"]
    for number in range(count):
        said = " ".join(dice.choice(DIGITS) for _ in range(dice.randint(1, 4)))
        voice, accent = dice.choice(VOICES[part]), dice.choice(ACCENTS)
        content = say(said, f"{accent}+{voice}", dice.randint(130, 190), dice.randint(30, 70))
        files.append((f"{number:03}.ogg", as_ogg(content)))
        rows.append(f"{number:03}.ogg\t{said}\t{voice}")
    files.append((f"{part}.tsv", "".join(f"{row}\n" for row in rows).encode()))
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / f"{part}.tar.gz", "w:gz", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))


if __name__ == "__main__":
    for part, count in SIZES.items():
        write(Path(sys.argv[1]), part, count)
