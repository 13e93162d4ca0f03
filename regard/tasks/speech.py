"""Speech recognition: a sound in, what is said in it out."""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Batch, Frames, Sizes, Words, pad
from ..data.cut import Plan
from ..data.examples import Data, Examples, chunks
from ..data.order import Order, Rows, longest_first
from ..data.read import Faults
from ..data.sounds import Samples, Sound, SoundError
from ..data.sounds import read as read_sounds
from ..data.store import Chunk, Field, Store, ids_below
from ..decode import POLICIES, Hypothesis, Limits, follow, with_cuda_graphs
from ..decode import Settings as Decode
from ..decode.beam import Beam
from ..decode.ctc import CtcStepper, best_path
from ..decode.policy import Policy
from ..decode.stepper import Beside, Joined, Stepper, Together
from ..errors import InputError, RunError
from ..model import Model
from ..parts.frames import FRAME_STEMS
from ..score.errors import ErrorRate
from ..text import Settings as TextSettings
from ..text import Text, learn
from .form import Form
from .moments import MomentRule, pieces
from .prediction import Prediction
from .sound import Ear, GivenSound, Norm, SoundForm, SoundSettings, as_batch, sizes_of
from .task import Axis, Measured, Rng, Scores, Sections
from .writer import ContinuationTask, as_prompt
from .writing import GREEDY, WritesTarget, drained

USUAL = 400, 20  # frames and tokens of a sound, to reckon with
SIGNS = re.compile(r"[^\w\s']")
NO_MOMENTS = "<|notimestamps|>"


@dataclass(frozen=True)
class SpeechSettings:
    """Which columns of a table hold what, and what counts as an error."""

    audio: Annotated[str, "the column of the sound's file"] = "audio"
    text: Annotated[str, "the column of what is said"] = "text"
    speaker: Annotated[str, "the column of who says it; empty: nobody is told apart"] = ""
    compare: Annotated[Literal["exact", "words"], "words: case and punctuation are no errors"] = (
        "exact"
    )
    prompt: Annotated[
        list[str], "entries that every answer goes on from; none: a text begins as usual"
    ] = field(default_factory=list)
    never: Annotated[list[int], "entries that are never written"] = field(default_factory=list)
    never_first: Annotated[list[int], "entries that no answer begins with"] = field(
        default_factory=list
    )


class Language(NamedTuple):
    """A language model that says, too, what is likely."""

    model: Model
    first: list[int]  # what it has read when a text begins


class Window(NamedTuple):
    """Some of a sound that is answered at once, and from when to when it is."""

    start: float
    end: float
    frames: Frames


class Speech(WritesTarget[SpeechSettings, Sound, Rows]):
    """Sounds with what is said in them; scored by word error rate."""

    Settings = SpeechSettings
    Example = Sound
    sections: ClassVar[Mapping[str, type]] = {"sound": SoundSettings, "text": TextSettings}
    row_files = ()
    keeps = ("tokenizer.json", "sound.json")
    loss = "heard"
    metric = "wer"
    higher_is_better = False
    wanted = "a sound with what is said in it"

    def __init__(self, settings: SpeechSettings, ear: Ear, target: Text) -> None:
        self.settings, self.ear, self.sound, self.target = settings, ear, ear.sound, target
        self.draws = ear.sound.changes
        self.language: Language | None = None
        self.prompt = [self.entry(name) for name in settings.prompt] or [target.bos]
        # Whisper's: behind the entry that says there are no moments there is nothing else.
        without: int | None = target.tokenizer.token_to_id(NO_MOMENTS)
        self.moments = 0 if without is None else 1 + without
        # What a text without moments begins with.
        self.opening = self.prompt if without is None else [*self.prompt, without]

        odd = [i for i in (*settings.never, *settings.never_first) if not 0 <= i < target.size]
        if odd:
            raise RunError(
                f"task.never: an entry must be from 0 to {target.size - 1}, but one is {odd[0]}."
            )

    def entry(self, name: str) -> int:
        found: int | None = self.target.tokenizer.token_to_id(name)
        if found is None:
            raise RunError(f"tokenizer.json: there must be an entry '{name}', but there is none.")
        return found

    @property
    def never_written(self) -> tuple[int, ...]:
        return tuple(sorted({*super().never_written, *self.settings.never}))

    @classmethod
    def imported(
        cls,
        settings: SpeechSettings,
        sections: Sections,
        texts: Sequence[Text],
        labels: list[str],
        config: Mapping[str, object],
    ) -> Self:
        """Somebody else's, who hears as the section says."""
        return cls(settings, Ear(sections["sound"]), texts[0])

    @property
    def gives(self) -> Form[GivenSound]:
        return SoundForm(self.sound.rate)

    @property
    def sizes(self) -> Sizes:
        return replace(self.ear.sizes, target=self.target.size, asked=Words)

    @classmethod
    def usual_sizes(cls, settings: SpeechSettings, sections: Sections) -> Sizes:
        return replace(sizes_of(sections["sound"]), target=sections["text"].size, asked=Words)

    @property
    def texts(self) -> Mapping[str, Text]:
        return {"tokenizer.json": self.target}

    @property
    def notes(self) -> list[str]:
        return [self.target.note] if self.target.note else []

    def fuse(self, other: object, model: Model) -> str:
        """Let a language model say, too, what is likely.  -> why it cannot; "" where it can"""
        if not isinstance(other, ContinuationTask):
            return "it must be a language model's, but is none"
        if other.text.tokenizer.to_str() != self.target.tokenizer.to_str():
            return (
                "it must have this run's vocabulary, but has another; train it with "
                "text.vocabulary set to this run's tokenizer.json"
            )
        self.language = Language(model, other.ids(""))
        return ""

    def words(self, rows: Sequence[Sequence[int]]) -> Words:
        framed = [[*self.opening, *ids, self.target.eos] for ids in rows]
        return Words(pad(framed), torch.tensor([len(row) - 1 for row in framed]))

    def written_axes(self, target: str) -> tuple[list[int], dict[str, Axis]]:
        ids = self.target.encode([target])[0]
        named = self.target.tokens([*self.opening, *ids, self.target.eos])
        return ids, {"inputs": Axis(named[:-1]), "outputs": Axis(named[1:])}

    # From files to batches.

    @staticmethod
    def read(settings: SpeechSettings, files: Sequence[Path], faults: Faults) -> Iterator[Sound]:
        return read_sounds(files, settings.audio, settings.text, settings.speaker, faults)

    @classmethod
    def learn(cls, settings: SpeechSettings, sections: Sections, examples: Examples[Sound]) -> Self:
        ear = Ear.learn(sections["sound"], examples)  # type: ignore[arg-type]
        target = learn((one.text for one in examples), sections["text"])
        return cls(settings, ear, target)

    def artefacts(self) -> Mapping[str, str]:
        vocabulary = self.target.tokenizer.to_str(pretty=True)
        return {"tokenizer.json": vocabulary, "sound.json": self.ear.artefact()}

    @classmethod
    def load(cls, settings: SpeechSettings, sections: Sections, folder: Path) -> Self:
        ear = Ear.load(sections["sound"], folder)
        return cls(settings, ear, Text.load(folder / "tokenizer.json"))

    @property
    def fields(self) -> Mapping[str, Field]:
        """`example`: which of the examples it is, for some cannot be read."""
        text = ids_below(self.target.size)
        return {**self.ear.fields, "text": text, "example": Field("int64")}

    @property
    def marks(self) -> tuple[str, ...]:
        sound = self.sound
        bands = (sound.bands, sound.window, sound.hop, sound.loudness)
        by_speaker = repr(bands) if sound.normalise == "speaker" else ""
        return (self.target.tokenizer.to_str(), str(sound.rate), str(sound.longest), by_speaker)

    def encode(self, examples: Examples[Sound], longest: int, faults: Faults) -> Iterator[Chunk]:
        norms = self.ear.speakers(examples) if "norm" in self.ear.fields else None
        number = -1
        for some in chunks(examples, 64):
            kept: dict[str, list[Any]] = {name: [] for name in self.fields}
            for example, ids in zip(
                some, self.target.encode([one.text for one in some]), strict=True
            ):
                number += 1
                try:
                    samples = self.ear.encode(example.content)
                except SoundError as error:
                    faults.report(example.where, f"the sound cannot be read ({error})")
                    continue
                # What is only scored may be as long as it likes.
                if len(ids) >= longest or (longest < 10**9 and len(samples) > self.sound.most):
                    faults.report(
                        example.where,
                        f"a sound may last {self.sound.longest:g} seconds (sound.longest) and its "
                        f"text have {longest} tokens with its end (data.max_length), but it has "
                        f"{len(samples) / self.sound.rate:.1f} and {len(ids) + 1}",
                    )
                    continue
                kept["samples"].append(samples)
                kept["text"].append(ids)
                kept["example"].append([number])
                if norms is not None:
                    kept["norm"].append(norms[example.speaker][None])
            yield kept

    def lengths(self, store: Store) -> NDArray[np.int32]:
        """Frames and tokens of each row, its end counted.  -> (N, 2)"""
        frames = self.ear.count(store.lengths("samples"))
        return np.stack((frames, store.lengths("text") + 1), 1)

    def plan(self, store: Store, budget: int, seed: int) -> Plan[Rows]:
        return Order(self.lengths(store), budget, seed)

    def batch(self, store: Store, rows: Rows, rng: Rng | None = None) -> Batch[Frames, Words]:
        words = self.words([store.row("text", row) for row in np.asarray(rows).tolist()])
        return Batch(self.ear.read(store, rows, rng), words)

    def evaluation_batches(
        self, store: Store, budget: int, thorough: bool = False
    ) -> Iterator[Batch[Frames, Words]]:
        """Every row once that is answered at once, the longest first."""
        short = np.flatnonzero(store.lengths("samples") <= self.sound.most)
        for rows in longest_first(self.lengths(store).max(1)[short], budget):
            yield self.batch(store, short[rows])

    @staticmethod
    def sample_batch(
        settings: SpeechSettings, budget: int, sections: Sections | None = None
    ) -> Batch[Frames, Words]:
        sound = sections["sound"] if sections else SoundSettings()
        frames, tokens = USUAL
        rows = max(1, budget // frames)
        values = torch.zeros(rows, frames, sound.bands)
        ids = torch.zeros(rows, tokens + 1, dtype=torch.long)
        read = Frames(values, torch.full((rows,), frames))
        return Batch(read, Words(ids, torch.full((rows,), tokens)))

    # Answers.

    def predict(
        self,
        model: Model,
        inputs: Sequence[GivenSound],
        decode: Decode,
        longest: int,
        first: int = 1,
    ) -> list[Prediction]:
        return drained(self.turns(model, inputs, decode))

    def turns(
        self, model: Model, inputs: Sequence[GivenSound], decode: Decode
    ) -> Generator[None, None, list[Prediction]]:
        return self.recognise(model, inputs, [None] * len(inputs), decode)

    def recognise(
        self,
        model: Model,
        inputs: Sequence[GivenSound],
        norms: Sequence[Norm | None],
        decode: Decode,
    ) -> Generator[None, None, list[Prediction]]:
        """An answer to each sound, of which there are several windows where it is long; where it
        yields, another may use the model."""
        found: dict[int, Prediction] = {}
        windows: dict[int, list[Window]] = {}
        for i, (given, norm) in enumerate(zip(inputs, norms, strict=True)):
            if self.tells_moments(given.samples, decode):
                found[i] = yield from self.by_moments(model, given, norm, decode)
            else:
                windows[i] = self.windows(given.samples, norm)
        stride = FRAME_STEMS[self.sound.stem].stride
        every = [(inputs[i], window.frames) for i, some in windows.items() for window in some]
        sizes = [frames.width // stride + 1 for _, frames in every]
        told = yield from self.write_in_turns(
            model, [g for g, _ in every], [f for _, f in every], sizes, decode
        )
        for i, some in windows.items():
            own, told = told[: len(some)], told[len(some) :]
            found[i] = joined(some, own)
        return [found[i] for i in range(len(inputs))]

    def windows(self, samples: Samples, norm: Norm | None = None) -> list[Window]:
        """What is answered at once."""
        rate, found = self.sound.rate, []
        for first, piece in self.ear.windows(samples):
            frames = self.ear.normed(self.ear.hear(piece), norm)
            found.append(Window(first / rate, (first + len(piece)) / rate, as_batch([frames])))
        return found

    def tells_moments(self, samples: Samples, decode: Decode) -> bool:
        """Whether moments are written among the words."""
        wish, is_long = decode.timestamps, len(samples) > self.sound.most
        return bool(self.moments) and (wish == "always" or (wish == "long" and is_long))

    def by_moments(
        self, model: Model, given: GivenSound, norm: Norm | None, decode: Decode
    ) -> Generator[None, None, Prediction]:
        """A sound of any length: each window begins where the last piece of the one before ended
        (Radford et al. 2022, section 3.8)."""
        began, sound, hop = time.perf_counter(), self.sound, self.sound.hop
        # The whole is heard at once, since how loud it is counts; behind its end there is silence.
        whole = self.ear.hear(np.pad(given.samples, (0, sound.most)))
        last, most = len(given.samples) // sound.step, round(sound.longest / hop)
        segments, score, place = list[tuple[float, float, str]](), 0.0, 0
        while place < last:
            heard = as_batch([self.ear.normed(whole[place : place + most], norm)])
            batch, limits = self.begin(model, [heard], decode, moments=True)
            (answers,) = self.search(model, batch, limits, decode)
            ids = answers[0].ids if answers else []
            score += answers[0].score if answers else 0.0
            told, after = pieces(ids, self.moments, min(most, last - place) * hop)
            for start, end, words in told:
                (said,) = self.target.decode([words])
                if said.strip():
                    begin, stop = (round(place * hop + moment, 2) for moment in (start, end))
                    segments.append((begin, stop, said.strip()))
            place += max(round(after / hop), 1)
            yield
        output = " ".join(text for _, _, text in segments)
        seconds = time.perf_counter() - began
        name = self.gives.show(given)
        return Prediction(name, output, score, seconds=seconds, segments=tuple(segments))

    def begin(
        self, model: Model, rows: Sequence[Frames], decode: Decode, moments: bool = False
    ) -> tuple[Batch[Frames, Words], Limits]:
        device = next(model.parameters()).device
        width = max(read.width for read in rows)
        values = torch.cat(
            [torch.nn.functional.pad(r.values, (0, 0, 0, width - r.width)) for r in rows]
        )
        read = Frames(values, torch.cat([r.lengths for r in rows]))
        batch = Batch(read, self.words([[] for _ in rows])).to(device)
        prompt = self.prompt if moments else self.opening
        most = min(decode.max_new_tokens, (model.longest or ANY) - len(prompt))
        if self.language is not None and self.language.model.longest is not None:
            most = min(most, self.language.model.longest - len(self.language.first))
        longest = torch.full((len(batch),), most, device=device)
        told = torch.tensor([prompt] * len(batch), device=device)
        rule = MomentRule(self.moments, self.target.eos) if moments else None
        first = tuple(self.settings.never_first)
        return batch, Limits(told, self.target.eos, longest, self.never_written, first, rule)

    def answer(
        self,
        given: GivenSound,
        read: object,
        hypotheses: Sequence[Hypothesis],
        decode: Decode,
        seconds: float,
    ) -> Prediction:
        """What is said, without moments that were written all the same."""
        if self.moments:
            said = [[i for i in h.ids if i < self.moments] for h in hypotheses]
            hypotheses = [replace(h, ids=ids) for h, ids in zip(hypotheses, said, strict=True)]
        found = super().answer(given, read, hypotheses, decode, seconds)
        return replace(found, output=found.output.strip())

    @torch.inference_mode()
    def search(
        self, model: Model, batch: Batch[Frames, Words], limits: Limits, decode: Decode
    ) -> list[list[Hypothesis]]:
        """By attention, by CTC, or by both together and what a language model finds likely
        (Watanabe et al. 2017)."""
        quick, weight = with_cuda_graphs(model, decode), decode.ctc_weight
        alone = not weight and self.language is None
        policy: Policy
        if decode.kind == "beam":
            policy = Beam(limits, decode, sums=not alone)
        else:
            policy = POLICIES[decode.kind](limits, decode)
        attention = Together(quick, batch, policy.copies, limits.prompt)
        if alone:
            return follow(policy, attention)
        parts: list[tuple[float, Stepper]] = [(1 - weight, attention)] if weight < 1 else []
        if weight:
            heard, text = attention.state.heard, self.target
            if heard is None:
                raise InputError(
                    "decode.ctc_weight: this run's model has no CTC to ask (model.ctc is false); "
                    "set it to 0."
                )
            if weight == 1 and decode.kind == "greedy" and self.language is None:
                never = [*limits.banned, text.eos]
                return [[one] for one in best_path(*heard, never, limits.longest)]
            ctc = CtcStepper(*heard, policy.copies, text.eos)
            parts.append((weight, ctc))
        if self.language is not None:
            own, first = self.language
            prompt = torch.tensor([first] * len(batch), device=limits.longest.device)
            beside = Beside(own, as_prompt(prompt), policy.copies, first[-1])  # type: ignore[arg-type]
            parts.append((decode.fusion_weight, beside))
        return follow(policy, Joined(parts))

    def trace(self, given: GivenSound, target: str) -> tuple[Batch[Frames, Words], dict[str, Axis]]:
        """The first window of a sound, with what is said in it."""
        ids, sides = self.written_axes(target)
        first = self.looked_at(given)
        batch = Batch(self.ear.given([first]), self.words([ids]))
        return batch, {"source": self.ear.axis(first), **sides}

    def looked_at(self, given: GivenSound) -> GivenSound:
        """Its first window."""
        return GivenSound(self.ear.windows(given.samples)[0][1], given.name)

    def as_given(self, example: Sound) -> GivenSound:
        return SoundForm(self.sound.rate).decoded(example.content, example.name, 1)

    def example(self, examples: Examples[Sound], longest: int | None = None) -> str:
        return "clip.wav"

    # Scores.

    def answers(
        self, model: Model, data: Data, decode: Decode, count: int
    ) -> tuple[list[str], list[str]]:
        """The first sounds' answers and what is right, as the vocabulary sees it."""
        outputs: list[str] = []
        right: list[str] = []
        for some in chunks(range(min(count, data.store.rows)), 256):
            given = [GivenSound(self.ear.samples(data.store, row), "") for row in some]
            norms = [self.ear.norm_of(data.store, row) for row in some]
            found = drained(self.recognise(model, given, norms, decode))
            outputs += [one.output for one in found]
            examples = [data.examples[data.store.row("example", row)[0]] for row in some]
            right += [self.target.normalise(one.text) for one in examples]
        return outputs, right

    def rates(self, outputs: Sequence[str], right: Sequence[str]) -> tuple[ErrorRate, ErrorRate]:
        words, letters = ErrorRate(), ErrorRate()
        for said, told in zip(right, outputs, strict=True):
            if self.settings.compare == "words":
                said, told = (SIGNS.sub(" ", text.lower()) for text in (said, told))
            said, told = (" ".join(text.split()) for text in (said, told))
            words.add(said.split(), told.split())
            letters.add(said, told)
        return words, letters

    def quick_scores(self, model: Model, data: Data, decode: Decode, count: int) -> Scores:
        greedy = replace(decode, **GREEDY)
        words, letters = self.rates(*self.answers(model, data, greedy, count))
        return {"wer": round(100 * words.rate(), 2), "cer": round(100 * letters.rate(), 2)}

    def evaluate(self, model: Model, data: Data, decode: Decode, loss: Measured) -> Scores:
        began = time.perf_counter()
        outputs, right = self.answers(model, data, decode, data.store.rows)
        seconds = time.perf_counter() - began
        words, letters = self.rates(outputs, right)
        heard = float(data.store.lengths("samples").sum()) / self.sound.rate
        search = {k: v for k, v in asdict(decode).items() if k not in ("batch_tokens", "compile")}
        found: Scores = {}
        for name, rate in (("wer", words), ("cer", letters)):
            found[name] = round(100 * rate.rate(), 2)
            found[f"{name}_interval"] = [round(100 * end, 2) for end in rate.interval()]
            found[f"{name}_edits"] = rate.parts()
        return {
            **found,
            "loss": round(loss.nll / loss.tokens, 5),
            "decode": search,
            "real_time_factor": round(seconds / heard, 5),
            "heard_seconds": round(heard, 1),
            "examples": len(outputs),
        }


ANY = 2**31  # tokens


def joined(windows: Sequence[Window], parts: Sequence[Prediction]) -> Prediction:
    """The answers to a sound's windows as one, with when each is said."""
    if len(parts) == 1:
        return parts[0]
    told = [
        (round(window.start, 2), round(window.end, 2), part.output)
        for window, part in zip(windows, parts, strict=True)
        if part.output
    ]
    output = " ".join(text for _, _, text in told)
    score = sum(part.score or 0.0 for part in parts)
    seconds = sum(part.seconds or 0.0 for part in parts)
    return Prediction(parts[0].input, output, score, seconds=seconds, segments=tuple(told))
