"""Translation scores by sacreBLEU, with their signatures and bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER

from ..progress import tell

RESAMPLES = 1000


def bleu_alone(
    outputs: Sequence[str], references: Sequence[str], tokenize: str, lowercase: bool
) -> dict[str, object]:
    """BLEU without interval: quick enough for validation."""
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    return {"bleu": round(metric.corpus_score(list(outputs), [list(references)]).score, 2)}


def several_references(
    outputs: Sequence[str], references: Sequence[Sequence[str]], interval: bool = True
) -> dict[str, object]:
    """BLEU-4 against several references each, in small letters, with signature and interval."""
    most = max(map(len, references))
    # Where one has fewer references than others, its first stands again, which changes nothing.
    sides = [[row[i] if i < len(row) else row[0] for row in references] for i in range(most)]
    metric = BLEU(lowercase=True, force=True)
    if not interval:
        return {"bleu": round(metric.corpus_score(list(outputs), sides).score, 2)}
    result = metric.corpus_score(list(outputs), sides, n_bootstrap=RESAMPLES)
    mean, half = float(result._mean), float(result._ci)
    return {
        "bleu": round(result.score, 2),
        "bleu_interval": [round(mean - half, 2), round(mean + half, 2)],
        "bleu_signature": str(metric.get_signature()),
    }


class PlainCHRF(CHRF):
    """chrF in plain floats: the library mixes them with numpy's where a drawn sample scores zero,
    as with an empty answer, and then cannot take their mean."""

    def _compute_score_from_stats(self, stats: list[int]) -> Any:
        found = super()._compute_score_from_stats(stats)
        found.score = float(found.score)
        return found


def translation_scores(
    outputs: Sequence[str], references: Sequence[str], tokenize: str, lowercase: bool
) -> dict[str, object]:
    """BLEU, chrF2 and TER, each with its signature and its 95 % interval."""
    metrics = {
        "bleu": BLEU(tokenize=tokenize, lowercase=lowercase, force=True),
        "chrf": PlainCHRF(lowercase=lowercase),
        "ter": TER(case_sensitive=not lowercase),
    }
    scores: dict[str, object] = {}
    for name, metric in metrics.items():
        tell(f"resampling for {name}'s interval")
        result = metric.corpus_score(list(outputs), [list(references)], n_bootstrap=RESAMPLES)
        # The library gives the bootstrap's mean and half-width as strings' source fields.
        mean, half = float(result._mean), float(result._ci)
        scores[name] = round(result.score, 2)
        scores[f"{name}_interval"] = [round(mean - half, 2), round(mean + half, 2)]
        scores[f"{name}_signature"] = str(metric.get_signature())
        if name == "bleu" and not result.counts[-1]:
            scores["bleu_unit"] = "no four words in a row are right, of which BLEU makes 0"
    return scores
