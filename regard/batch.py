"""The narrow waist: the kinds of batch that reach a model, and the sizes only data can tell."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Sizes:
    """What a model cannot know before it has seen the data; the task reports it."""

    source: int  # vocabulary read
    target: int  # vocabulary written
    shared: bool  # whether both are one vocabulary


@dataclass(frozen=True)
class Pairs:
    """Sentences with their translations, padded on the right.

    A target row is `bos y1 … yn eos`: the model reads all but the last and predicts all but the
    first, so with n words both `inputs` and `labels` have n + 1 columns.
    """

    source: Tensor  # (B, S) ids
    source_lengths: Tensor  # (B,)
    target: Tensor  # (B, T + 1) ids
    target_lengths: Tensor  # (B,) real columns of `labels`

    @property
    def inputs(self) -> Tensor:
        return self.target[:, :-1]  # (B, T)

    @property
    def labels(self) -> Tensor:
        return self.target[:, 1:]  # (B, T)

    def to(self, device: torch.device) -> Pairs:
        return Pairs(*(t.to(device, non_blocking=True) for t in self.tensors()))

    def pin(self) -> Pairs:
        return Pairs(*(t.pin_memory() for t in self.tensors()))

    def __len__(self) -> int:
        return len(self.source)

    @property
    def tokens(self) -> int:
        """Words to predict, `eos` counted, padding not; asked for while still on the CPU."""
        return int(self.target_lengths.sum())

    def tensors(self) -> tuple[Tensor, ...]:
        return self.source, self.source_lengths, self.target, self.target_lengths

    def widen(self, multiple: int) -> Pairs:
        """Padded on to a multiple, so that there are few shapes; `inputs` counts, not `target`."""
        source, target = (-self.source.shape[1]) % multiple, (1 - self.target.shape[1]) % multiple
        return Pairs(
            nn.functional.pad(self.source, (0, source)),
            self.source_lengths,
            nn.functional.pad(self.target, (0, target)),
            self.target_lengths,
        )

    def share(self, part: int, parts: int) -> Pairs:
        """Every `parts`-th row, from `part` on; may be empty."""
        return Pairs(*(t[part::parts] for t in self.tensors()))

    def repeat(self, count: int) -> Pairs:
        """The whole batch `count` times, one copy after the other."""
        return Pairs(*(t.repeat(count, *(1,) * (t.dim() - 1)) for t in self.tensors()))
