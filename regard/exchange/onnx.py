"""ONNX out: one graph from ids to scores, for ONNX Runtime and others."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..batch import Batch, Ids, Label, Nothing, Running, Tokens, Words
from ..errors import RunError
from ..tasks.task import Labels
from ..training.checkpoint import write_text
from ..training.run import Run
from .architecture import looks_at_all
from .folder import must_be_new
from .hf import check_reads_text, texts_of, write_vocabulary


class Encoder(nn.Module):
    """input_ids, attention_mask and token_type_ids -> scores, or a vector for each text."""

    inputs: ClassVar[tuple[str, ...]] = ("input_ids", "attention_mask", "token_type_ids")

    def __init__(self, model: Any, normalise: bool = False) -> None:
        super().__init__()
        self.model, self.normalise = model, normalise

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        scores: Tensor = self.model(Batch(Ids(ids, mask.sum(1), segments), Nothing()))
        if self.normalise:
            scores = nn.functional.normalize(scores, dim=-1)
        # One vector of a text has no places.
        return scores[:, 0] if self.model.asked in (Label, Nothing) else scores


class Reader(Encoder):
    """The same of a model that does not tell segments apart."""

    inputs = ("input_ids", "attention_mask")

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(ids, mask, torch.zeros_like(ids))


class NextToken(Encoder):
    """input_ids -> scores of the token after each."""

    inputs = ("input_ids",)

    def forward(self, ids: Tensor) -> Tensor:  # type: ignore[override]
        label_range = ids.new_zeros(ids.shape[0], 2)  # len() would fix how many rows there are
        scores: Tensor = self.model(Batch(Running(ids), Tokens(ids, label_range)))
        return scores


class Judge(Encoder):
    """input_ids and attention_mask -> scores of classes, by a model that reads one way."""

    inputs = ("input_ids", "attention_mask")

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        scores: Tensor = self.model(Batch(Ids(ids, mask.sum(1)), Nothing()))
        return scores[:, 0]


class Translator(Encoder):
    """input_ids, attention_mask and decoder_input_ids -> scores of the token after each."""

    inputs = ("input_ids", "attention_mask", "decoder_input_ids")

    def forward(self, ids: Tensor, mask: Tensor, written: Tensor) -> Tensor:
        padded = torch.cat((written, written[:, :1]), 1)
        lengths = ids.new_ones(ids.shape[0])
        scores: Tensor = self.model(Batch(Ids(ids, mask.sum(1)), Words(padded, lengths)))
        return scores


def write(run: Run, folder: Path) -> str:
    """Make a folder with model.onnx and its vocabulary; a word on what it is."""
    must_be_new(folder)
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise RunError("--to onnx needs its exporter; pip install 'regard[onnx]'.") from error
    looks_at_all(run.model.settings)
    kind = kind_of(run)
    folder.mkdir(parents=True, exist_ok=True)
    rows, width = torch.export.Dim("rows", min=1, max=2**16), torch.export.Dim("width", min=2)
    shapes = [{0: rows, 1: width} for _ in kind.inputs]
    example = [torch.ones(2, 8, dtype=torch.long) for _ in kind.inputs]
    if kind.inputs[-1] == "decoder_input_ids":
        shapes[-1] = {0: rows, 1: torch.export.Dim("written", min=2)}
        example[-1] = torch.ones(2, 5, dtype=torch.long)
    for part in run.model.modules():  # packed products are for torch alone
        vars(part).pop("forward", None)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            kind(run.model, vars(run.recipe.task).get("normalise", False)).eval(),
            tuple(example),
            str(folder / "model.onnx"),
            input_names=list(kind.inputs),
            output_names=["scores"],
            dynamic_shapes=shapes,
            dynamo=True,
            verbose=False,
            external_data=False,
        )
    text = texts_of(run)[-1]
    config = {"is_encoder_decoder": True} if kind is Translator else {}
    # What the vocabulary makes of a text is what the graph takes.
    write_vocabulary(run, folder, config, [n for n in kind.inputs if n != "decoder_input_ids"])
    about: dict[str, object] = {"bos": text.bos, "eos": text.eos, "pad": text.pad}
    if isinstance(run.task, Labels) and run.task.labels:
        about["labels"] = run.task.labels
    write_text(folder / "regard.json", json.dumps({"task": run.recipe.task_kind, **about}) + "\n")
    return f"model.onnx ({', '.join(kind.inputs)} -> scores)"


def kind_of(run: Run) -> type[Encoder]:
    check_reads_text(run)
    model = run.recipe.model_kind
    if model == "bert":
        return Encoder if run.recipe.model.segments > 1 else Reader
    if model == "gpt":
        return Judge if run.task.sizes.asked is Label else NextToken
    if model in ("transformer", "t5"):
        return Translator
    raise RunError(
        f"{run.folder}: a model of the kind {model} has no graph of one pass to write; bert, gpt, "
        "t5 and transformer have."
    )
