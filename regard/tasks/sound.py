"""What tasks that read sound share: how one is given, made frames, changed in training."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ..batch import Frames, Sizes
from ..data.draws import Draws
from ..data.order import Rows
from ..data.read import read_json
from ..data.sounds import ENDINGS, SECONDS, Samples, SoundError, decode, resample
from ..data.store import Field, Store
from ..errors import InputError, RecipeError, RunError
from ..parts.frames import FRAME_STEMS
from ..parts.mel import LOUDNESS, Mel
from .form import read_file, read_url
from .task import Axis, Rng

SEEN = 500  # sounds whose bands are looked at
MOST_SENT = 3600  # seconds of a sound over HTTP
KEPT = 32768  # what a sample of 1 is kept as
QUIET = 5.0  # seconds before a window's end in which it may end, where it is quietest
FASTER = 100  # speeds are told apart by hundredths
Norm = NDArray[np.float32]  # (2, F): mean and spread of each band


@dataclass(frozen=True)
class SoundSettings:
    """How sound is made frames, and changed in training."""

    rate: Annotated[int, Ge(1000), Le(192_000), "samples a second that it is brought to"] = 16000
    bands: Annotated[int, Gt(0), Le(512), "bands of frequencies of a frame"] = 80
    window: Annotated[float, Gt(0), Le(1), "seconds that a frame looks at"] = 0.025
    hop: Annotated[float, Gt(0), Le(1), "seconds from one frame to the next"] = 0.01
    loudness: Annotated[
        str, LOUDNESS, "log: the logarithm; whisper: as Whisper has it, from the loudest down"
    ] = "log"
    normalise: Annotated[
        Literal["global", "speaker", "clip", "none"],
        "bands around zero with a spread of one: over all data, each speaker's, each clip's",
    ] = "global"
    stem: Annotated[
        str,
        FRAME_STEMS,
        "how frames become vectors: each by a layer, four at a time (stack), by convolutions to a "
        "quarter of them (conv), or to half as Whisper has it",
    ] = "conv"
    speeds: Annotated[
        list[Annotated[float, Ge(0.5), Le(2)]],
        "in training, how fast it may be played; one of them is drawn",
    ] = field(default_factory=lambda: [1.0])
    time_masks: Annotated[int, Ge(0), Le(100), "in training, stretches that are hidden"] = 0
    time_mask: Annotated[int, Ge(0), Le(10_000), "frames of such a stretch at most"] = 40
    band_masks: Annotated[int, Ge(0), Le(100), "in training, groups of bands that are hidden"] = 0
    band_mask: Annotated[int, Ge(0), Le(512), "bands of such a group at most"] = 15
    longest: Annotated[
        float, Ge(1), Le(3600), "seconds that are answered at once; what is longer is cut"
    ] = 30.0
    fill: Annotated[bool, "what is shorter than that is filled up with silence"] = False

    def __post_init__(self) -> None:
        if not self.speeds:
            raise RecipeError("sound.speeds: there must be one at least; 1.0 is as it was.")
        if self.hop > self.window:
            raise RecipeError("sound.hop must be at most sound.window: between frames is nothing.")
        if self.samples < 2 or self.step < 1:
            raise RecipeError(
                f"sound.window and sound.hop: at a rate of {self.rate} they must be some samples "
                "long."
            )

    @property
    def samples(self) -> int:
        """Of a frame."""
        return round(self.rate * self.window)

    @property
    def step(self) -> int:
        """Samples from one frame to the next."""
        return round(self.rate * self.hop)

    @property
    def most(self) -> int:
        """Samples that are answered at once."""
        return round(self.rate * self.longest)

    @property
    def changes(self) -> bool:
        """Whether training hears sounds changed."""
        return bool(self.time_masks or self.band_masks or set(self.speeds) != {1.0})


class GivenSound(NamedTuple):
    """A sound that somebody gives, and what it is called."""

    samples: Samples  # (N,)
    name: str


class SoundForm:
    """A sound: typed as a path, sent as a data: URL; in Python also samples with their rate."""

    kind = "sound"
    from_file = True
    endings = ENDINGS
    labels: tuple[str, ...] = ("sound",)

    def __init__(self, rate: int) -> None:
        self.rate = rate

    def parse(self, word: str, number: int = 1) -> GivenSound:
        return self.decoded(read_file(word, number), word, number)

    def accept(self, sent: object, number: int = 1) -> GivenSound:
        if isinstance(sent, GivenSound):
            return sent
        if isinstance(sent, Path):
            return self.parse(str(sent), number)
        if isinstance(sent, dict) and "array" in sent:
            sent = (sent["array"], sent.get("sampling_rate"))
        if isinstance(sent, tuple):
            return self.as_array(sent, number)
        url = sent.get("audio") if isinstance(sent, dict) else sent
        wanted = 'a sound as a data: URL, {"audio": "data:audio/wav;base64,…"}'
        content = read_url(url, ("audio", "video"), wanted, number)
        return self.decoded(content, "sound", number, MOST_SENT)

    def as_array(self, sent: Sequence[object], number: int) -> GivenSound:
        """Samples and their rate."""
        samples, rate = sent if len(sent) == 2 else (None, None)
        fine = (
            isinstance(samples, np.ndarray)
            and samples.ndim == 1
            and len(samples)
            and samples.dtype.kind in "if"
        )
        if not fine or not isinstance(rate, int | np.integer) or not 1000 <= rate <= 400_000:
            raise InputError(
                f"input {number}: a sound in Python is a path, or an array of samples (N,) and its "
                "rate, such as (samples, 16000)."
            )
        assert isinstance(samples, np.ndarray)
        if samples.dtype.kind == "i":
            samples = samples / -float(np.iinfo(samples.dtype).min)
        samples = samples.astype(np.float32)
        if not np.isfinite(samples).all():
            raise InputError(f"input {number}: samples must be numbers.")
        return GivenSound(resample(samples.clip(-1, 1), int(rate), self.rate), "sound")

    def decoded(self, content: bytes, name: str, number: int, most: float = SECONDS) -> GivenSound:
        try:
            return GivenSound(decode(content, self.rate, most), name)
        except SoundError as error:
            raise InputError(f"input {number}: {name}: no sound ({error}).") from error

    def show(self, given: GivenSound) -> str:
        return given.name


class HasSound(Protocol):
    """An example that is a sound's file."""

    @property
    def content(self) -> bytes: ...
    @property
    def speaker(self) -> str: ...
    @property
    def where(self) -> str: ...


def sizes_of(sound: SoundSettings) -> Sizes:
    """Of what is read; a task adds what is asked."""
    frames = sound.most // sound.step + (sound.loudness != "whisper")
    places = -(-frames // FRAME_STEMS[sound.stem].stride)
    return Sizes(0, 0, False, 0, Frames, item=(sound.bands,), grid=(places,), stem=sound.stem)


class Spread:
    """The mean and the spread of bands, over frames that come bit by bit."""

    def __init__(self, bands: int) -> None:
        self.count, self.sums = 0, np.zeros((2, bands))

    def add(self, frames: Tensor) -> None:
        own = frames.double()
        self.count += len(own)
        self.sums += torch.stack((own.sum(0), own.square().sum(0))).numpy()

    def norm(self) -> Norm:
        mean, squares = self.sums / max(self.count, 1)
        spread = np.sqrt(np.maximum(squares - mean**2, 0))
        return np.stack((mean, np.maximum(spread, 1e-3))).astype(np.float32)


class Ear:
    """Sounds on their way into a model: as rows of a store, as frames, as what is looked at."""

    def __init__(self, sound: SoundSettings, norm: Norm | None = None) -> None:
        self.sound, self.norm, self.sizes = sound, norm, sizes_of(sound)
        self.mel = Mel(sound.rate, sound.bands, sound.samples, sound.step, sound.loudness)

    @property
    def fields(self) -> Mapping[str, Field]:
        own = {"samples": Field("int16")}
        if self.sound.normalise == "speaker":
            own["norm"] = Field("float32", (2, self.sound.bands))
        return own

    @classmethod
    def learn(cls, sound: SoundSettings, examples: Sequence[HasSound]) -> Ear:
        """With the spread of each band, over sounds from all of the data that can be read."""
        ear = cls(sound)
        if sound.normalise != "global":
            return ear
        spread = Spread(sound.bands)
        for place in range(0, len(examples), -(-len(examples) // SEEN) or 1):
            try:
                spread.add(ear.hear(decode(examples[place].content, sound.rate)))
            except SoundError:
                continue  # told when it is encoded
        return cls(sound, spread.norm().round(5))

    def artefact(self) -> str:
        named = (
            {}
            if self.norm is None
            else dict(zip(("mean", "spread"), self.norm.tolist(), strict=True))
        )
        return json.dumps({k: [round(n, 5) for n in v] for k, v in named.items()}) + "\n"

    @classmethod
    def load(cls, sound: SoundSettings, folder: Path) -> Ear:
        path = folder / "sound.json"
        try:
            said = read_json(path)
            if sound.normalise != "global":
                return cls(sound)
            norm = np.array([said[name] for name in ("mean", "spread")], np.float32)
            if norm.shape != (2, sound.bands) or not np.isfinite(norm).all():
                raise ValueError("not a number for each band")
            return cls(sound, norm)
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: the spread of each band must be there, but is not.") from error

    # From samples to frames.

    def hear(self, samples: Samples) -> Tensor:
        """Loudness of each band, frame by frame.  (N,) -> (S, F)"""
        sound = self.sound
        if sound.fill and len(samples) < sound.most:
            samples = np.pad(samples, (0, sound.most - len(samples)))
        if len(samples) < sound.samples:
            samples = np.pad(samples, (0, sound.samples - len(samples)))
        with torch.inference_mode():
            found: Tensor = self.mel(torch.from_numpy(samples)[None])[0]
        return found.clone()

    def normed(self, frames: Tensor, norm: Norm | None) -> Tensor:
        if self.sound.normalise == "none":
            return frames
        norm = self.norm if norm is None else norm
        if norm is None:  # a clip's own; so is that of a speaker nobody knows
            spread = Spread(self.sound.bands)
            spread.add(frames)
            norm = spread.norm()
        mean, width = torch.from_numpy(norm.copy())
        found: Tensor = (frames - mean) / width
        return found

    def count(self, samples: NDArray[np.int32]) -> NDArray[np.int32]:
        """Frames that so many samples become, played as slowly as they may be."""
        longer = samples / min(1.0, *self.sound.speeds) if self.sound.changes else samples
        least = self.sound.most if self.sound.fill else self.sound.samples
        found = np.maximum(np.ceil(longer), least) // self.sound.step + 1
        return found.astype(np.int32)

    def encode(self, content: bytes) -> NDArray[np.int16]:
        """A file's content as a row of a store."""
        samples = decode(content, self.sound.rate)
        return np.clip(np.round(samples * KEPT), -KEPT, KEPT - 1).astype(np.int16)

    def speakers(self, examples: Iterable[HasSound]) -> dict[str, Norm]:
        """Each speaker's spread of bands, over all that he says here."""
        heard: dict[str, Spread] = {}
        for example in examples:
            try:
                frames = self.hear(decode(example.content, self.sound.rate))
            except SoundError:
                continue
            heard.setdefault(example.speaker, Spread(self.sound.bands)).add(frames)
        return {name: spread.norm() for name, spread in heard.items()}

    def samples(self, store: Store, row: int) -> Samples:
        found: Samples = store.array("samples", row).astype(np.float32) / np.float32(KEPT)
        return found

    def norm_of(self, store: Store, row: int) -> Norm | None:
        if self.sound.normalise != "speaker":
            return None
        found: Norm = store.array("norm", row)[0]
        return found

    def read(self, store: Store, rows: Rows, rng: Rng | None) -> Frames:
        """Rows of a store, as training hears them where `rng` is given."""
        drawn = None
        if rng is not None and self.sound.changes:
            assert isinstance(rng, Draws)
            drawn = rng.uniform(1 + 2 * (self.sound.time_masks + self.sound.band_masks))
        found = []
        for number, row in enumerate(np.asarray(rows).tolist()):
            samples = self.samples(store, row)
            if drawn is not None:
                samples = self.play(samples, drawn[number, 0])
            frames = self.normed(self.hear(samples), self.norm_of(store, row))
            if drawn is not None:
                self.hide(frames, drawn[number, 1:])
            found.append(frames)
        return as_batch(found)

    def play(self, samples: Samples, u: float) -> Samples:
        """As fast as was drawn (Ko et al. 2015)."""
        speeds = self.sound.speeds
        speed = round(FASTER * speeds[int(u * len(speeds))])
        return resample(samples, speed, FASTER)

    def hide(self, frames: Tensor, u: NDArray[np.float64]) -> None:
        """Some stretches and some bands become zero, which is their mean where they are normalised
        (Park et al. 2019).  (S, F)"""
        sound = self.sound
        masks = [(0, sound.time_mask)] * sound.time_masks + [
            (1, sound.band_mask)
        ] * sound.band_masks
        for (axis, most), (length, place) in zip(masks, u.reshape(-1, 2).tolist(), strict=True):
            size = frames.shape[axis]
            # No more than a fifth of a short sound is hidden at once.
            count = int(length * (min(most, size // 5 if axis == 0 else size) + 1))
            first = int(place * (size - count + 1))
            frames.narrow(axis, first, count).zero_()

    def given(self, inputs: Sequence[GivenSound]) -> Frames:
        return as_batch([self.normed(self.hear(one.samples), None) for one in inputs])

    def windows(self, samples: Samples) -> list[tuple[int, Samples]]:
        """Pieces that are answered at once, each from where it begins; cut where it is quiet."""
        most, step, found, first = self.sound.most, self.sound.step, [], 0
        while len(samples) - first > most:
            last = first + most
            begin = max(first + most // 2, last - round(QUIET * self.sound.rate))
            end = begin + (last - begin) // step * step
            loud = np.square(samples[begin:end]).reshape(-1, step).mean(1)
            wide = min(9, len(loud))
            smooth = np.convolve(loud, np.ones(wide) / wide, "valid")
            cut = begin + (int(smooth.argmin()) + wide // 2) * step
            found.append((first, samples[first:cut]))
            first = cut
        return [*found, (first, samples[first:])]

    # What is looked at.

    def axis(self, given: GivenSound) -> Axis:
        """A sound's places, by the second at which each begins, and its spectrogram."""
        frames = self.hear(given.samples)[: len(given.samples) // self.sound.step + 1]
        stride = FRAME_STEMS[self.sound.stem].stride
        count = -(-len(frames) // stride)
        names = [f"{place * stride * self.sound.hop:.2f} s" for place in range(count)]
        return Axis(names, "frames", (count,), spectrogram(frames))


def as_batch(rows: Sequence[Tensor]) -> Frames:
    """Frames of several sounds as a rectangle; zeros are padding."""
    lengths = torch.tensor([len(row) for row in rows])
    return Frames(torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True), lengths)


def spectrogram(frames: Tensor) -> bytes:
    """Frames as a picture: time to the right, high bands above, loud is dark.  (S, F) -> PNG"""
    low, high = frames.quantile(0.02), frames.amax()
    shades = 255 - ((frames - low) / (high - low).clamp_min(1e-6)).clamp(0, 1) * 255
    file = io.BytesIO()
    Image.fromarray(shades.round().byte().T.flip(0).contiguous().numpy()).save(file, "PNG")
    return file.getvalue()
