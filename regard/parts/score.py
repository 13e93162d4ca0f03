"""How well a query and a key fit: raw scores, before mask and softmax.

Every score has the same shapes, (B, H, T, K) and (B, H, S, K) -> (B, H, T, S), and is made with the
head width K and the number of heads, each of which has weights of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

# Numbers of (B, H, T, S, K) held at a time by the scores that need it: 128 MiB in float32.
CHUNK = 2**25


class Score(nn.Module):
    """What can be done once for every key, and the comparison that each query then needs."""

    def prepare(self, k: Tensor) -> Tensor:
        return k

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.compare(q, self.prepare(k))


class Dot(Score):
    """s·h, times a scale.

    The only score with a fused kernel: `Attend` asks for the scale and takes it.
    """

    def __init__(self, head_width: int = 1, heads: int = 1, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) * self.scale


class ScaledDot(Dot):
    """q·k / √K, which keeps the scores' variance at one (Vaswani et al. 2017, eq. 1).

    Scores 112 and 96 with K = 64 become 14 and 12, and the softmax 0.88 and 0.12.
    """

    def __init__(self, head_width: int, heads: int = 1) -> None:
        assert head_width > 0, f"{heads} heads cannot share a smaller width"
        super().__init__(head_width, heads, head_width**-0.5)


class General(Score):
    """q·W k (Luong et al. 2015, eq. 8): a dot product between two spaces."""

    def __init__(self, head_width: int, heads: int = 1) -> None:
        super().__init__()
        self.weight = _weight(heads, head_width, head_width)  # (H, K, K)

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        return by_head(q, self.weight) @ k.transpose(-2, -1)


class Additive(Score):
    """v·tanh(W q + U k) (Bahdanau et al. 2015, A.1.2), which is v·tanh(W [q; k]).

    Where (B, H, T, S, K) would be large, the sum is made for a few queries at a time, and again for
    the backward pass.
    """

    def __init__(self, head_width: int, heads: int = 1) -> None:
        super().__init__()
        self.query = _weight(heads, head_width, head_width)  # (H, K, K)
        self.key = _weight(heads, head_width, head_width)
        self.value = _weight(heads, head_width, 1)  # (H, K, 1)

    def prepare(self, k: Tensor) -> Tensor:
        return by_head(k, self.key)

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        return in_chunks(self.fit, by_head(q, self.query), k, self.value)

    @staticmethod
    def fit(q: Tensor, k: Tensor, value: Tensor) -> Tensor:
        """(B, H, t, K), (B, H, S, K) -> (B, H, t, S)"""
        return by_head((q[:, :, :, None] + k[:, :, None]).tanh(), value)[..., 0]


class MLP(Score):
    """v·relu(W [q; k] + b): a small net that looks at both.

    A last bias would move all scores of a query alike, which the softmax does not see.
    """

    def __init__(self, head_width: int, heads: int = 1) -> None:
        super().__init__()
        self.query = _weight(heads, head_width, head_width)
        self.key = _weight(heads, head_width, head_width)
        self.bias = nn.Parameter(torch.zeros(heads, 1, head_width))
        self.value = _weight(heads, head_width, 1)

    def prepare(self, k: Tensor) -> Tensor:
        return by_head(k, self.key)

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        return in_chunks(self.fit, by_head(q, self.query) + self.bias, k, self.value)

    @staticmethod
    def fit(q: Tensor, k: Tensor, value: Tensor) -> Tensor:
        return by_head((q[:, :, :, None] + k[:, :, None]).relu(), value)[..., 0]


class Cosine(Score):
    """β q·k / (‖q‖ ‖k‖) (Graves et al. 2014), with a learned β; a zero vector fits nothing."""

    def __init__(self, head_width: int, heads: int = 1) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.zeros(heads, 1, 1))  # log β, each head's own

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        cosine = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        return cosine * self.sharpness.exp()


class Location(Score):
    """(W q)_i (Luong et al. 2015, eq. 8): where to look, whatever is there; no key at all.

    W has a row for each of `places` keys; those further on have no score of their own and share
    the last one's.
    """

    def __init__(self, head_width: int, heads: int = 1, places: int = 256) -> None:
        super().__init__()
        self.weight = _weight(heads, head_width, places)  # (H, K, P)

    def compare(self, q: Tensor, k: Tensor) -> Tensor:
        place = torch.arange(k.shape[-2], device=k.device).clamp_max(self.weight.shape[-1] - 1)
        return by_head(q, self.weight[..., place])


SCORES: dict[str, Callable[..., Score]] = {
    "dot": Dot,
    "scaled-dot": ScaledDot,
    "general": General,
    "additive": Additive,
    "mlp": MLP,
    "cosine": Cosine,
    "location": Location,
}


def in_chunks(fit: Callable[..., Tensor], q: Tensor, k: Tensor, value: Tensor) -> Tensor:
    """A score that compares element by element, for as many queries at a time as memory allows."""
    batch, heads, queries, width = q.shape
    rows = max(1, CHUNK // max(1, batch * heads * k.shape[2] * width))
    if rows >= queries:
        return fit(q, k, value)
    parts = [checkpoint(fit, part, k, value, use_reentrant=False) for part in q.split(rows, 2)]
    return torch.cat(parts, 2)


def by_head(x: Tensor, weight: Tensor) -> Tensor:
    """Each head's vectors times its own matrix, as one product a head.

    (B, H, …, K), (H, K, N) -> (B, H, …, N)
    """
    rows = x.transpose(0, 1).flatten(1, -2)  # (H, B·…, K)
    out: Tensor = (rows @ weight).unflatten(1, (x.shape[0], *x.shape[2:-1])).transpose(0, 1)
    return out


def _weight(heads: int, width: int, out: int) -> nn.Parameter:
    bound = (6 / (width + out)) ** 0.5
    return nn.Parameter(torch.empty(heads, width, out).uniform_(-bound, bound))
