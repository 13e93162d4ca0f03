"""Recurrent visual attention: a model that sees a picture through glimpses, and chooses where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn

from ..batch import Asked, Batch, Label, ModelOutput, Nothing, Pixels, Sizes, Tensors
from ..model import Looks, Model
from ..parts.attention import Attend
from ..parts.output import Output
from ..parts.score import Dot
from .door import Retina


@dataclass(frozen=True)
class GlimpseSettings:
    """Sizes and choices; the defaults are those of the paper for digits in their place."""

    glimpses: Annotated[int, Gt(0), Le(1000), "looks at a picture before it is told"] = 6
    size: Annotated[int, Gt(0), Le(1024), "height and width of what a look sees sharply"] = 8
    scales: Annotated[int, Gt(0), Le(8), "squares around one place, each twice as wide"] = 1
    width: Annotated[int, Gt(0), Le(2**16), "size of what is made of a look, and of a place"] = 128
    hidden: Annotated[int, Gt(0), Le(2**16), "size of what is remembered"] = 256
    spread: Annotated[float, Gt(0), Le(2), "of the places drawn around the one chosen"] = 0.1
    reward: Annotated[float, Ge(0), Le(1000), "weight of learning where to look"] = 1.0
    dropout: Annotated[float, Ge(0), Lt(1), "before the class is told"] = 0.0


class Glimpse(Model):
    """See, remember, choose where to look next; at the end, tell (Mnih et al. 2014).

    What an answer costs depends on the glimpses, not on the picture.  -> scores (B, 1, C)
    """

    Settings = GlimpseSettings
    reads = (Pixels,)
    answers = (Label, Nothing)
    doors, heads = ("retina", "what", "where", "both", "core"), ("next", "baseline", "output")
    looks: ClassVar[Looks] = {"path": ("steps", "inputs")}

    def __init__(self, sizes: Sizes, settings: GlimpseSettings = GlimpseSettings()) -> None:
        super().__init__(sizes, settings)
        s, self.asked = settings, sizes.asked
        self.retina = Retina(sizes)
        seen = sizes.item[0] * s.scales * s.size**2
        self.what, self.where = nn.Linear(seen, s.width), nn.Linear(2, s.width)
        self.both = nn.Linear(2 * s.width, s.hidden)
        self.core = nn.Linear(2 * s.hidden, s.hidden)
        self.next, self.baseline = nn.Linear(s.hidden, 2), nn.Linear(s.hidden, 1)
        nn.init.zeros_(self.next.weight)  # at first all looks are around the middle
        nn.init.zeros_(self.next.bias)
        self.path = Path(sizes.grid)
        self.dropout = nn.Dropout(s.dropout)
        if self.asked is not Nothing:
            self.output = Output(s.hidden, sizes.classes, bias=True)

    def forward(self, batch: Batch[Tensors, Asked]) -> Tensor:
        return self.states(batch).states if self.asked is Nothing else super().forward(batch)

    def states(self, batch: Batch[Tensors, Asked]) -> ModelOutput:
        assert isinstance(batch.read, Pixels)
        picture = self.retina(batch.read)  # (B, C, H, W)
        memory, chances, guesses, places = self.look(picture)
        self.path(places[:, None])
        states = self.dropout(memory)[:, None]
        if not self.training or not isinstance(batch.asked, Label) or self.asked is Nothing:
            return ModelOutput(states)
        return ModelOutput(states, penalty=self.learn_where(memory, chances, guesses, batch.asked))

    def look(self, picture: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All glimpses.  -> what is remembered (B, W), log-chances and expectations of each choice
        (B, n - 1), places (B, n, 2) from -1 to 1, across and down"""
        s = self.settings
        memory = picture.new_zeros(picture.shape[0], s.hidden)
        place = picture.new_zeros(picture.shape[0], 2)  # the first look is at the middle
        places, chances, guesses = [], [], []
        for number in range(s.glimpses):
            places.append(place)
            what = self.what(glimpse(picture, place, s.size, s.scales)).relu()
            where = self.where(place.to(what.dtype)).relu()
            look = self.both(torch.cat((what, where), -1)).relu()
            memory = self.core(torch.cat((memory, look), -1)).relu()
            if number == s.glimpses - 1:
                break
            place, chance = self.choose(memory)
            chances.append(chance)
            guesses.append(self.baseline(known(memory))[:, 0].float())
        none = memory.new_zeros(memory.shape[0], 0)
        told = torch.stack(chances, 1) if chances else none
        expected = torch.stack(guesses, 1) if guesses else none
        return memory, told, expected, torch.stack(places, 1)

    def choose(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Where to look next: around a place in training, at it otherwise; and how likely that was.

        The choice learns by reward alone, and changes nothing that is remembered.
        """
        spread = self.settings.spread
        mean = self.next(known(memory)).float().tanh()  # (B, 2)
        if not self.training:
            return mean, mean.new_zeros(mean.shape[0])
        place = (mean + spread * torch.randn_like(mean)).detach()
        chance = -((place - mean) ** 2).sum(-1) / (2 * spread**2)
        return place.clamp(-1, 1), chance

    def learn_where(self, memory: Tensor, chances: Tensor, guesses: Tensor, asked: Label) -> Tensor:
        """The sampled gradient: 1 for a right answer, less what was expected, times the gradient of
        the choices' own log-chances (Williams 1992); what is expected is learned beside it."""
        with torch.no_grad():
            right = (self.output(memory).argmax(-1) == asked.label).float()[:, None]  # (B, 1)
        gain = right - guesses.detach()
        loss = (guesses - right) ** 2 - self.settings.reward * gain * chances
        mean: Tensor = loss.sum(1).mean()
        return mean


def known(memory: Tensor) -> Tensor:
    """What the choice and the expectation see of a memory: nothing they learn reaches back.

    Of length one, however large or wide the memory: a step of the optimizer then moves a look by a
    small part of the picture, which its noisy reward cannot do without.
    """
    return F.normalize(memory.detach(), dim=-1)


def glimpse(picture: Tensor, place: Tensor, size: int, scales: int) -> Tensor:
    """Squares around a place, each twice as wide as the one before and seen as coarsely.

    (B, C, H, W), (B, 2) from -1 to 1 -> (B, scales · C · size²); beyond the edge it is dark.
    """
    tall, wide = picture.shape[2:]
    found = []
    dark = picture.amin((2, 3), keepdim=True)
    steps = (torch.arange(size, device=picture.device) - (size - 1) / 2).to(place.dtype)
    for scale in range(scales):
        factor = 2**scale
        fine = steps
        if factor > 1:  # each coarse pixel is the mean of those that it covers
            inner = (torch.arange(factor, device=picture.device) - (factor - 1) / 2).to(place.dtype)
            fine = (factor * steps[:, None] + inner).flatten()
        across = place[:, :1] + 2 * fine / wide  # (B, n)
        down = place[:, 1:] + 2 * fine / tall
        grid = torch.stack(
            (across[:, None].expand(-1, len(fine), -1), down[:, :, None].expand(-1, -1, len(fine))),
            -1,
        )
        seen = F.grid_sample(picture - dark, grid.to(picture.dtype), align_corners=False) + dark
        found.append(F.avg_pool2d(seen, factor) if factor > 1 else seen)
    return torch.cat(found, 1).flatten(1)


class Path(Attend):
    """Where the looks went: nothing is mixed here, it is only seen by those who watch."""

    def __init__(self, grid: tuple[int, ...]) -> None:
        super().__init__(Dot())
        self.grid = grid

    def forward(self, places: Tensor) -> Tensor:  # type: ignore[override]
        """(B, 1, n, 2), across and down -> the same"""
        return places

    def seen(
        self,
        inputs: tuple[Any, ...],
        result: Any,
        heads: list[int],
        rows: Sequence[int] | None = None,
    ) -> Tensor:
        """One patch a look.  -> (B, 1, n, S)"""
        tall, wide = self.grid
        across = ((inputs[0][..., 0] + 1) / 2 * wide).long().clamp(0, wide - 1)
        down = ((inputs[0][..., 1] + 1) / 2 * tall).long().clamp(0, tall - 1)
        return F.one_hot(down * wide + across, tall * wide).float()
