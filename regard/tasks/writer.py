"""How a language model writes on from a text, and how likely it finds one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from ..batch import Batch, Running, Tokens
from ..decode import Hypothesis, Limits, stream, with_cuda_graphs, write
from ..decode import Settings as Decode
from ..errors import InputError
from ..model import Model, WritesOn
from ..text import Text
from ..text.chat import FILE as CHAT
from ..text.chat import Chat, ChatFormat
from .form import Form, TextForm
from .growing import Growing, cut_at
from .prediction import Prediction
from .task import P, R, S
from .vocabulary import OneVocabulary

PIECE = 512  # tokens read at a time where the model sets no limit


class ContinuationTask(OneVocabulary[S, R, P]):
    """Prompts in, continuations out: at once, as they come, or behind a draft.

    `begins` says whether a text stands behind the end of another, `lines` whether its lines do.
    """

    keeps: ClassVar[tuple[str, ...]] = ("tokenizer.json", CHAT)
    kind: str  # the unit of its vocabulary
    chat: Chat | None  # how it converses, where it was taught to
    begins: bool
    lines: bool

    def artefacts(self) -> Mapping[str, str]:
        chat = {} if self.chat is None else {CHAT: self.chat.format.json()}
        return {**super().artefacts(), **chat}

    @property
    def gives(self) -> Form[str]:
        return TextForm("text to go on from")

    @property
    def written(self) -> Text:
        return self.text

    @property
    def writes_on(self) -> bool:
        return True

    def predict(
        self,
        model: Model,
        inputs: Sequence[str],
        decode: Decode,
        longest: int,
        first: int = 1,
        draft: Model | None = None,
    ) -> list[Prediction]:
        """How each text goes on; prompts of one length are continued together."""
        prompts = [
            self.read_input(model, line, decode, longest, number)
            for number, line in enumerate(inputs, first)
        ]
        alike: dict[int, list[int]] = {}
        for i, ids in enumerate(prompts):
            alike.setdefault(len(ids), []).append(i)
        answers: dict[int, Prediction] = {}
        batches = []
        for length, rows in alike.items():
            most = max(1, decode.batch_tokens // ((length + decode.max_new_tokens) * decode.rows))
            batches += [(length, rows[i : i + most]) for i in range(0, len(rows), most)]
        for length, rows in batches:
            began = time.perf_counter()
            fits = self.fits(length, model, decode)
            some = [prompts[i] for i in rows]
            if decode.kind == "beam" or (fits and not decode.stop and draft is None):
                found = self.search(model, some, decode)
            else:
                found = self.one_by_one(model, some, decode, draft)
            seconds = time.perf_counter() - began
            for i, hypotheses in zip(rows, found, strict=True):
                answers[i] = self.answer(inputs[i], prompts[i], hypotheses, decode, seconds)
        return [answers[i] for i in range(len(inputs))]

    def read_ids(self, given: str, number: int = 1) -> list[int]:
        return self.known_ids(given, number)

    def read_input(
        self, model: Model, given: str, decode: Decode, longest: int, number: int = 1
    ) -> list[int]:
        """A prompt's ids, all of them known, and as many as the model can place."""
        ids = self.known_ids(given, number)
        if decode.overflow == "refuse" and decode.max_new_tokens > (model.longest or math.inf):
            raise InputError(
                f"decode.max_new_tokens must be at most {model.longest}, which the model can "
                f"place, but is {decode.max_new_tokens}; or set decode.overflow=slide."
            )
        if decode.overflow == "refuse" and not self.fits(len(ids), model, decode):
            raise InputError(
                f"input {number}: with {decode.max_new_tokens} new tokens a prompt may have "
                f"{(model.longest or 0) + 1 - decode.max_new_tokens}, but has {len(ids)}; shorten "
                "it, lower decode.max_new_tokens, or set decode.overflow=slide to forget its "
                "beginning."
            )
        return ids

    def fits(self, length: int, model: Model, decode: Decode) -> bool:
        """Whether a prompt and its continuation can be placed; the last token need not be read."""
        return bool(length + decode.max_new_tokens - 1 <= (model.longest or math.inf))

    def known_ids(self, line: str, number: int = 1) -> list[int]:
        """A text's ids; a character that a model of characters has not met is refused."""
        ids = self.ids(TextForm().parse(line, number))
        if self.kind == "characters" and self.text.unk in ids:
            place = self.text.encode([line])[0].index(self.text.unk)
            raise InputError(
                f"input {number}: every character must be one that the model has met, but "
                f"'{self.text.normalise(line)[place]}' at position {place + 1} is not."
            )
        return ids

    def ids(self, line: str) -> list[int]:
        """A text behind the end of another, where the model has met such ends."""
        if not self.begins:
            first = self.text.frame.first if self.text.tokenizer.post_processor else []
            return [*first, *self.text.encode([line])[0]] or [self.text.eos]
        if not self.lines:
            return [self.text.eos, *self.text.encode([line])[0]]
        rows = self.text.encode(line.split("\n"))
        return [i for row in rows for i in (self.text.eos, *row)]

    def slides(self, line: str, model: Model, decode: Decode) -> bool:
        """Whether the beginning of the text will be forgotten."""
        count = len(self.known_ids(line))
        return decode.kind != "beam" and not self.fits(count, model, decode)

    def begin(
        self, model: Model, rows: Sequence[Sequence[int]], decode: Decode
    ) -> tuple[Batch[Running, Tokens], Limits]:
        """Prompts of one length."""
        device = next(model.parameters()).device
        prompt = torch.tensor(rows, device=device)
        longest = torch.full((len(prompt),), decode.max_new_tokens, device=device)
        return as_prompt(prompt), Limits(prompt, self.text.eos, longest, self.never_written)

    @property
    def never_written(self) -> tuple[int, ...]:
        """Entries of the vocabulary that are no text; somebody else's may write what it likes."""
        text = self.text
        never = {text.pad, text.bos, text.unk, text.mask} - {-1, text.eos}
        return tuple(sorted(never)) if text.unk >= 0 else ()

    def search(
        self, model: Model, prompts: Sequence[Sequence[int]], decode: Decode
    ) -> list[list[Hypothesis]]:
        """Prompts of one length, decoded together."""
        batch, limits = self.begin(model, prompts, decode)
        if model.longest is not None:
            room = model.longest + 1 - limits.prompt.shape[1]
            if room < 1:
                raise InputError(
                    f"a beam cannot slide: the prompt may have {model.longest} tokens, but has "
                    f"{limits.prompt.shape[1]}; shorten it, or set decode.kind=greedy."
                )
            limits = replace(limits, longest=limits.longest.clamp_max(room))
        return write(with_cuda_graphs(model, decode), batch, limits, decode)

    def one_by_one(
        self,
        model: Model,
        prompts: Sequence[Sequence[int]],
        decode: Decode,
        draft: Model | None = None,
    ) -> list[list[Hypothesis]]:
        """Prompts that may slide, stop at a text, or have a draft."""
        found = []
        for ids in prompts:
            copies = []
            for copy in range(decode.num_return_sequences):
                text = Growing(self.text, ids, decode.stop)
                for _ in self.grow(text, model, ids, decode, draft, copy):
                    pass
                copies.append(text.hypothesis)
            found.append(copies)
        return found

    def grow(
        self,
        text: Growing,
        model: Model,
        ids: Sequence[int],
        decode: Decode,
        draft: Model | None = None,
        copy: int = 0,
    ) -> Iterator[str]:
        """One continuation to its end.  -> its text, piece by piece"""
        _, limits = self.begin(model, [ids], decode)
        assert isinstance(model, WritesOn) and (draft is None or isinstance(draft, WritesOn))
        for token, score in stream(model, as_prompt, limits, decode, draft, copy):
            yield text.add(token, score)
            if text.ended:
                return
        yield text.finish()

    def stream(
        self, model: Model, line: str, decode: Decode, draft: Model | None = None
    ) -> Iterator[str]:
        """The continuation as it is written, in pieces of text; nothing of a stop text is shown."""
        yield from self.stream_ids(model, self.read_input(model, line, decode, 0), decode, draft)

    def stream_ids(
        self, model: Model, ids: Sequence[int], decode: Decode, draft: Model | None = None
    ) -> Iterator[str]:
        """The same behind tokens that are known already."""
        text = Growing(self.text, ids, decode.stop)
        yield from filter(None, self.grow(text, model, ids, decode, draft))

    def continued(self, ids: Sequence[int], new: Sequence[int]) -> str:
        """The text of new tokens after others: a space between the two is theirs."""
        before = list(ids)[-8:]  # enough to tell whether a space comes first
        whole, start = self.text.decode([[*before, *new], before])
        return whole[len(start) :] if whole.startswith(start) else self.text.decode([list(new)])[0]

    def answer(
        self,
        given: str,
        read: Sequence[int],
        hypotheses: Sequence[Hypothesis],
        decode: Decode,
        seconds: float,
    ) -> Prediction:
        texts = [cut_at(self.continued(read, h.ids), decode.stop)[0] for h in hypotheses]
        return Prediction.written(given, texts, [h.score for h in hypotheses], seconds)

    @torch.inference_mode()
    def logprobs(self, model: Model, line: str) -> list[tuple[str, float | None]]:
        """Each token of a text with its log-probability after those before it.

        The first has none, unless texts have ends that it can come after.
        """
        ids = self.known_ids(line)
        device = next(model.parameters()).device
        size = model.longest or PIECE
        # Windows overlap by half, so that what counts has at least that much before it; a model
        # that carries its state needs no overlap.
        stride = size if model.carries else max(1, size // 2)
        logs: list[float | None] = [None]
        past: tuple[Tensor, ...] = ()
        for start in range(0, len(ids) - 1, stride):
            piece = torch.tensor([ids[start : start + size + 1]], device=device)
            label_range = torch.tensor([[0, piece.shape[1] - 1]], device=device)
            read, asked = Running(piece[:, :-1]), Tokens(piece[:, 1:], label_range)
            passed = model.states(Batch(read, asked, past))
            past = passed.past
            scores = model.output(passed.states).float().log_softmax(-1)  # (1, T, V)
            found = scores.gather(2, piece[:, 1:, None])[0, :, 0].tolist()
            logs += found[len(logs) - 1 - start :]
            if start + size + 1 >= len(ids):
                break
        names = self.text.tokens(ids)
        pairs = list(zip(names, logs, strict=True))
        return pairs[1:] if self.begins else pairs


def load_text(folder: Path) -> tuple[Text, ChatFormat | None]:
    """A run's vocabulary, and its chat template, which has entries of its own."""
    chat_format = ChatFormat.load(folder)
    own = () if chat_format is None else (chat_format.eos, chat_format.controls)
    return Text.load(folder / "tokenizer.json", *own), chat_format


def as_prompt(ids: Tensor) -> Batch[Running, Tokens]:
    """Prompts as a batch: all but the last token are read by `start`.  (B, P)"""
    none = torch.tensor([[0, 0]], device=ids.device).expand(len(ids), -1)
    return Batch(Running(ids[:, :-1]), Tokens(ids[:, 1:], none))
