"""Multi30k English to German by the published protocol: several seeds, tokenised and plain BLEU.

    python benchmarks/multi30k.py --root FOLDER [--seeds 0 1 2] [--parallel 3] [KEY=VALUE …]

The published 41.02 on test 2016 was computed on lower-cased, punctuation-normalised, Moses-
tokenised
text; `bleu_tokenised` is that, `bleu_13a` the cased score of the raw text.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]


def train(seed: int, folder: Path, settings: list[str]) -> dict[str, object]:
    """One seed in a process of its own, scored on validation and test."""
    command = [sys.executable, __file__, "--one", str(seed), str(folder), *settings]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        return {"seed": seed, "error": done.stderr[-2000:]}
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def one(seed: int, folder: Path, settings: list[str]) -> dict[str, object]:
    import regard
    from regard.data.read import Faults

    name = folder / f"seed-{seed}"
    run = regard.train("translate-multi30k-en-de", f"train.seed={seed}", *settings, run=name)
    cost = json.loads((name / "cost.json").read_text())
    result: dict[str, object] = {
        "seed": seed,
        "seconds": cost["seconds"],
        "steps": cost["steps"],
        "tokens_per_second": cost["tokens_per_second"],
        "device": cost["device"],
    }
    for part in ("valid", "test"):
        files = run.recipe.data.files(part)
        examples = run.task.examples(run.recipe.task, files, folder / ".cache", Faults())
        references = [example.target for example in examples]
        outputs = [answer.output for answer in run.predict([e.source for e in examples])]
        result |= {f"{part}_{key}": value for key, value in scores(outputs, references).items()}
    return result


def scores(outputs: list[str], references: list[str]) -> dict[str, object]:
    """BLEU by the published protocol, and cased 13a beside it."""
    from sacrebleu.metrics import BLEU
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normaliser, tokeniser = MosesPunctNormalizer("de"), MosesTokenizer("de")

    def words(line: str) -> str:
        plain = normaliser.normalize(line.lower())
        tokenised: str = tokeniser.tokenize(
            plain, aggressive_dash_splits=False, return_str=True, escape=False
        )
        return tokenised

    published = BLEU(tokenize="none", force=True)
    result = published.corpus_score([words(o) for o in outputs], [[words(r) for r in references]])
    plain = BLEU()
    return {
        "bleu_tokenised": round(result.score, 2),
        "reference_words": result.ref_len,
        "bleu_13a": round(plain.corpus_score(outputs, [references]).score, 2),
        "signature": str(published.get_signature()),
    }


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", required=True, help="the folder with the Multi30k files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--parallel", type=int, default=1, help="seeds trained at a time")
    parser.add_argument("settings", nargs="*", help="settings, such as train.steps=4000")
    given = parser.parse_args()
    settings = [f"data.root={Path(given.root).resolve()}", *given.settings]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.parallel) as pool:
        results = []
        for result in pool.map(lambda seed: train(seed, Path(folder), settings), given.seeds):
            print(json.dumps(result), flush=True)
            results.append(result)
    good = [result for result in results if "error" not in result]
    if good:
        mean = {
            key: round(sum(float(str(r[key])) for r in good) / len(good), 2)
            for key in ("valid_bleu_tokenised", "test_bleu_tokenised", "test_bleu_13a", "seconds")
        }
        print(json.dumps({"what": "mean", "seeds": len(good), **mean, "settings": given.settings}))


if __name__ == "__main__":
    main()
