"""Sound with what is said in it: tables that name files, or a tar with such a table inside.

A sound is handed on as the bytes of its file; `decode` makes samples of them. Whatever libsndfile
can read is read (WAV, FLAC, OGG, MP3), its channels mixed into one and brought to one rate.
"""

from __future__ import annotations

import io
import math
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .pictures import is_tar
from .read import Faults, kind_of
from .table import rows

LARGEST = 2**30  # bytes of a sound's file
SECONDS = 4 * 3600  # of a sound
UNKNOWN = 10**9  # seconds, which no sound lasts
LOWEST, HIGHEST = 1000, 400_000  # samples a second
MANY = 2**10  # places between two samples that are told apart one by one
AT_ONCE = 2**16  # new samples that are worked out together
ENDINGS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".au")
TABLES = (".tsv", ".csv", ".jsonl")
Samples = NDArray[np.float32]


class Sound(NamedTuple):
    """A sound's file, what is said in it and by whom, and where it stands."""

    content: bytes
    text: str
    speaker: str
    name: str
    where: str


class SoundError(ValueError):
    """Why a sound cannot be decoded."""


def read(
    files: Sequence[Path], audio: str, text: str, speaker: str, faults: Faults
) -> Iterator[Sound]:
    """Sounds with transcripts; a column that nobody names (`speaker`) may be empty.

    A table beside a tar says which of its sounds are meant; without one, that in the tar does.
    """
    tables = [path for path in files if kind_of(path) in TABLES]
    tars = [path for path in files if is_tar(path)]
    if not tables and not tars:
        raise DataError(
            f"{files[0]}: sounds must be named by a .tsv, .csv or .jsonl file, or lie in a tar "
            "beside one."
        )
    columns = [("task.audio", audio), ("task.text", text)]
    columns += [("task.speaker", speaker)] if speaker else []
    packed: dict[str, bytes] = {}
    twice: set[str] = set()
    inside: list[tuple[Path, str, bytes]] = []
    for tar in tars:
        for name, content in members(tar, faults):
            if PurePosixPath(name.removesuffix(".gz")).suffix in TABLES:
                inside += [(tar, name, content)] if not tables else []  # a table beside has the say
            else:
                short = PurePosixPath(name).name
                # A name without its folder will do where only one file has it.
                twice |= {short} if short in packed else set()
                packed |= {short: content, name: content}
    packed = {name: content for name, content in packed.items() if name not in twice}
    for path in tables:
        for where, (name, said, *who) in rows(path, columns, faults):
            yield from one(name, said, who, where, packed, path.parent, faults)
    for tar, member, content in inside:
        for place, (audio_name, told, *by) in packed_rows(tar, member, content, columns, faults):
            yield from one(audio_name, told, by, place, packed, None, faults)


def one(
    name: object,
    said: object,
    who: Sequence[object],
    where: str,
    packed: Mapping[str, bytes],
    folder: Path | None,
    faults: Faults,
) -> Iterator[Sound]:
    """The sound that a row names, in a tar or beside the table."""
    if not isinstance(name, str) or not name or not isinstance(said, str):
        faults.report(where, "there must be a sound's name and a text, but there are not")
        return
    content = packed.get(name)
    if content is None and folder is not None and not packed:
        path = folder / name
        try:
            if path.stat().st_size > LARGEST:
                raise OSError(0, f"it may have {LARGEST >> 20} MiB, but has more")
            content = path.read_bytes()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            faults.report(where, f"the sound {name} cannot be read ({reason})")
            return
    if content is None:
        faults.report(where, f"there is no sound '{name}' in the tar")
        return
    yield Sound(content, said.strip(), str(who[0]) if who else "", name, where)


def members(path: Path, faults: Faults) -> Iterator[tuple[str, bytes]]:
    """Sounds and tables in a tar; links and devices are passed over, and nothing is unpacked."""
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                name = PurePosixPath(member.name.removesuffix(".gz"))
                if not member.isreg() or name.suffix.lower() not in (*ENDINGS, *TABLES):
                    continue
                if member.size > LARGEST:
                    told = f"a sound may have {LARGEST >> 20} MiB, but has more"
                    faults.report(f"{path}:{member.name}", told)
                    continue
                file = tar.extractfile(member)
                assert file is not None
                yield member.name.removeprefix("./"), file.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}).") from error


def packed_rows(
    tar: Path, member: str, content: bytes, columns: Sequence[tuple[str, str]], faults: Faults
) -> Iterator[tuple[str, list[object]]]:
    """Rows of a table that lies in a tar; small enough to be held."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / PurePosixPath(member).name
        path.write_bytes(content)
        for where, found in rows(path, columns, faults):
            yield f"{tar}:{member}{where.removeprefix(str(path))}", found


def decode(content: bytes, rate: int, most: float = SECONDS) -> Samples:
    """A sound's samples between -1 and 1, one channel at the asked rate.  -> (N,)

    What is damaged, empty or longer than `most` seconds raises a SoundError.
    """
    try:
        import soundfile
    except ImportError as error:
        raise DataError(
            "sound needs soundfile, which is not installed: pip install 'regard[sound]'."
        ) from error
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            seconds = file.frames / max(file.samplerate, 1)
            if seconds > UNKNOWN:  # written into a pipe, say
                raise SoundError("its head must say how long it is, but does not; convert it")
            if seconds > most:
                raise SoundError(f"it may last {most:,.0f} seconds, but lasts {seconds:,.0f}")
            own = int(file.samplerate)
            if not LOWEST <= own <= HIGHEST:
                raise SoundError(f"its rate must be {LOWEST} to {HIGHEST} Hz, but is {own}")
            # A few seconds at a time: hours of several channels are more than what is made of them.
            blocks = file.blocks(AT_ONCE, dtype="float32", always_2d=True)
            pieces = (piece.mean(1) for piece in blocks)
            found = np.concatenate([np.zeros(0, np.float32), *resampled(pieces, own, rate)])
    except SoundError:
        raise
    except Exception as error:  # the library raises whatever its decoders meet
        why = str(error).rpartition(">: ")[2].strip(" .")  # before it stand Python's own names
        raise SoundError(why or type(error).__name__) from error
    if not len(found):
        raise SoundError("it has no samples")
    if not np.isfinite(found).all():
        raise SoundError("its samples must be numbers")
    return np.clip(found, -1, 1, out=found)


CROSSINGS, ROLLOFF = 16, 0.95  # of the filter: zeros to either side, and how much of the band stays


@lru_cache(8)
def kernels(up: int, down: int) -> tuple[Samples, int]:
    """A windowed sinc for each of the `up` places between samples.  -> (up, K), and its reach"""
    band = min(1.0, up / down) * ROLLOFF
    reach = math.ceil(CROSSINGS / band)
    offsets = np.arange(-reach, reach + 1)[None] - (np.arange(up) * down / up % 1)[:, None]
    window = np.cos(np.pi / 2 * np.clip(offsets * band / CROSSINGS, -1, 1)) ** 2
    return (band * np.sinc(band * offsets) * window).astype(np.float32), reach


def resample(x: Samples, old: int, new: int) -> Samples:
    """The same sound at another rate."""
    pieces = (x[first : first + AT_ONCE] for first in range(0, len(x), AT_ONCE))
    return np.concatenate([np.zeros(0, np.float32), *resampled(pieces, old, new)])


def resampled(pieces: Iterable[Samples], old: int, new: int) -> Iterator[Samples]:
    """A sound in pieces at another rate: each new sample is a weighted sum of those around it, of
    which nothing too high for the new rate is left."""
    shared = math.gcd(old, new)
    up, down = new // shared, old // shared
    if up == down:
        yield from pieces
        return
    table, reach = kernels(up, down)
    kept, first, done = np.zeros(reach, np.float32), -reach, 0  # samples from `first` on; new ones

    def make(count: int) -> Samples:
        """New samples from `done` on, up to `count`."""
        places = np.arange(done, count)
        around = np.lib.stride_tricks.sliding_window_view(kept, 2 * reach + 1)
        if up > MANY:  # hardly two new samples lie alike between the old ones
            index = places * down // up - reach - first
            rows = np.split(np.arange(len(places)), range(MANY, len(places), MANY))
            mixed = [(around[index[r]] * table[places[r] % up]).sum(1) for r in rows]
            return np.concatenate(mixed).astype(np.float32)
        out = np.empty(len(places), np.float32)
        for phase in range(min(up, len(places))):
            own = places[phase::up]
            out[phase::up] = around[own * down // up - reach - first] @ table[own[0] % up]
        return out

    for piece in pieces:
        kept = np.concatenate((kept, piece))
        count = max(done, (first + len(kept) - reach - 1) * up // down)
        if count > done:
            yield make(count)
        done = count
        gone = max(0, done * down // up - reach - first)  # what nothing new will look at
        kept, first = kept[gone:], first + gone
    heard = first + len(kept)
    kept = np.concatenate((kept, np.zeros(reach + down, np.float32)))
    count = -(-heard * up // down)
    if count > done:
        yield make(count)
