"""What `[train]` may say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from .optim import OPTIMIZERS
from .schedule import SCHEDULES

Decay = Annotated[float, Ge(0), Lt(1)]


@dataclass(frozen=True)
class Settings:
    """How a model is trained."""

    steps: Annotated[int, Gt(0), Lt(2**53), "updates of the weights"] = 10000
    seed: Annotated[
        int, Ge(0), Lt(2**63), "the same seed on the same machine gives the same weights"
    ] = 0
    batch_tokens: Annotated[
        int, Gt(0), Lt(2**31), "tokens an update, padding counted, on the longer side"
    ] = 4096
    accumulate: Annotated[int, Gt(0), Le(1024), "pieces a batch is cut into to save memory"] = 1
    optimizer: Annotated[
        str,
        OPTIMIZERS,
        "adam: the decay is a part of the gradient; muon: orthogonal updates of the matrices; "
        "asgd: averaged once validation stalls",
    ] = "adamw"
    stall: Annotated[int, Gt(0), "asgd: validations without gain before averaging begins"] = 5
    rate: Annotated[float, Gt(0), "the highest learning rate"] = 0.001
    schedule: Annotated[str, SCHEDULES, "how the rate goes on after warm-up"] = "inverse-sqrt"
    warmup: Annotated[int, Ge(0), "steps in which the rate rises from zero"] = 1000
    final_rate: Annotated[
        float, Ge(0), Le(1), "the part of the rate that cosine and linear end at"
    ] = 0.0
    betas: Annotated[tuple[Decay, Decay], "AdamW's decay of the two moments"] = (0.9, 0.98)
    epsilon: Annotated[float, Gt(0), "AdamW's guard against division by zero"] = 1e-9
    weight_decay: Annotated[
        float, Ge(0), "decay of the weights; AdamW and Muon spare norms and biases"
    ] = 0.0
    clip: Annotated[float, Ge(0), "longest gradient, by its norm; 0: as it comes"] = 1.0
    smoothing: Annotated[
        float, Ge(0), Lt(1), "label smoothing: the part spread over all tokens"
    ] = 0.1
    r_drop: Annotated[
        float, Ge(0), "R-Drop: weight of the distance between two dropouts; 0: off"
    ] = 0.0
    teacher: Annotated[str, Path, "a run to learn from: its distribution is the target too"] = ""
    temperature: Annotated[float, Gt(0), "that the teacher's distribution is softened by"] = 2.0
    soft_weight: Annotated[float, Ge(0), "weight of the distance to the teacher"] = 5.0
    text_weight: Annotated[float, Ge(0), "weight of the text itself, beside a teacher"] = 2.0
    cosine_weight: Annotated[
        float, Ge(0), "weight of the angle between the last states, where they are as wide"
    ] = 1.0
    language_weight: Annotated[
        float, Ge(0), "classes: weight of the text's own words beside them (GPT)"
    ] = 0.0
    ctc_weight: Annotated[
        float, Ge(0), Le(1), "speech: how much CTC counts beside attention, where model.ctc is true"
    ] = 0.3
    encoder: Annotated[
        str, Path, "a run that reads the same kind of thing: the encoder begins with its weights"
    ] = ""
    freeze_encoder: Annotated[bool, "what came from train.encoder stays as it is"] = False
    layer_decay: Annotated[
        float, Gt(0), Le(1), "rate of each block as a part of the one above it; 1: all alike"
    ] = 1.0
    freeze: Annotated[
        int, Ge(0), "the first so many blocks, and what is below, stay as they are"
    ] = 0
    adapters: Annotated[
        int, Ge(0), "rank of low-rank adapters, trained in place of all; 0: none"
    ] = 0
    adapter_scale: Annotated[float, Gt(0), "how much an adapter adds, times its rank"] = 16.0
    save_every: Annotated[int, Gt(0), "steps between checkpoints"] = 1000
    evaluate_every: Annotated[int, Gt(0), "steps between validations"] = 1000
    evaluate_examples: Annotated[
        int, Ge(0), "validation lines answered and scored each time; 0: loss only"
    ] = 500
    patience: Annotated[int, Ge(0), "stop after this many validations without gain; 0: never"] = 0
    best_by: Annotated[Literal["loss", "metric"], "what makes a validation the best"] = "loss"
    keep: Annotated[Literal["best", "last", "average"], "which weights become the model"] = "best"
    average: Annotated[int, Gt(0), "how many last checkpoints `keep=average` averages"] = 5
    log_every: Annotated[int, Gt(0), "steps between lines of metrics.jsonl"] = 50
    tensorboard: Annotated[bool, "write a TensorBoard log beside metrics.jsonl"] = False
    wandb: Annotated[
        bool, "keep a Weights & Biases log in the run folder; offline, unless WANDB_MODE says other"
    ] = False
    device: Annotated[str, "auto, cpu, mps, cuda, cuda:1, …"] = "auto"
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        "of the products; auto: bfloat16 where the GPU has it",
    ] = "auto"
    shard: Annotated[
        bool, "on several ranks: each holds a part of weights, gradients and optimizer, not a copy"
    ] = False
    checkpoint_activations: Annotated[
        bool, "keep of each block its input alone, and compute the rest again: less memory"
    ] = False
    compile: Annotated[
        Literal["auto", "off", "graph", "full"],
        "graph: captured CUDA graphs, on one GPU; full: compiled blocks in them; auto: full where "
        "training is long",
    ] = "auto"
    watts: Annotated[
        float, Ge(0), "power to estimate energy by where none can be read; 0: by device"
    ] = 0.0
    grams_per_kwh: Annotated[float, Ge(0), "CO2e of a kilowatt-hour where it is used"] = 445.0
    price_per_hour: Annotated[float, Ge(0), "of a device that is rented; 0: none is told"] = 0.0
    flops_per_second: Annotated[
        float, Ge(0), "regard cost: to reckon with; 0: half of what a matrix product reaches here"
    ] = 0.0
