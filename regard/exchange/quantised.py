"""T5 from two ONNX graphs, an encoder's and a decoder's, whose weights may be eight-bit integers.

A graph has no list of parts, but each of its nodes is named by the part that it was made of, and so
tells whose its weights are. Integers become numbers by their scale and zero point; that activations
were rounded too, anew at every product, is not taken over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import RunError

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
PRODUCTS = ("MatMul", "MatMulInteger")
GELU, RELU = "Tanh", "Relu"  # what a graph bends by where the feed-forward is gated, or not
KIND = {"float32": np.float32, "int8": np.int8, "uint8": np.uint8}


def config_of(folder: Path) -> dict[str, Any]:
    """What such a folder says by its graphs, as T5's config would."""
    path = folder / ENCODER
    shapes = {name: list(tensor.shape) for name, tensor in tensors(path, shapes_alone=True).items()}
    graphs = {name: graph_of(folder / name) for name in (ENCODER, DECODER)}
    nodes = [node for graph in graphs.values() for node in graph.node]
    kinds = {node.op_type for node in nodes if "DenseReluDense" in node.name}
    block = "encoder.block.0.layer"
    try:
        words, width = shapes["shared.weight"]
        buckets, heads = shapes[f"{block}.0.SelfAttention.relative_attention_bias.weight"]
        gated = f"{block}.1.DenseReluDense.wi_0.weight" in shapes
        hidden = shapes[f"{block}.1.DenseReluDense.{'wi_0' if gated else 'wi'}.weight"][0]
        kept = shapes[f"{block}.0.SelfAttention.q.weight"][0]
        if (GELU if gated else RELU) not in kinds or (RELU if gated else GELU) in kinds:
            raise ValueError("its feed-forward must bend by relu, or by a gate with gelu")
        if kept % heads:
            raise ValueError(f"{heads} heads cannot share {kept}")
        return {
            "model_type": "t5",
            "architectures": ["T5ForConditionalGeneration"],
            "vocab_size": words,
            "d_model": width,
            "d_kv": kept // heads,
            "d_ff": hidden,
            "num_layers": depth_of(shapes, "encoder"),
            "num_decoder_layers": depth_of(shapes, "decoder"),
            "num_heads": heads,
            "relative_attention_num_buckets": buckets,
            "relative_attention_max_distance": farthest_of(graphs[ENCODER], buckets),
            "layer_norm_epsilon": epsilon_of(graphs[ENCODER]),
            "feed_forward_proj": "gated-gelu" if gated else "relu",
            "tie_word_embeddings": False,
            "scale_decoder_outputs": scales(graphs[DECODER]),
            "eos_token_id": 1,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
        }
    except (KeyError, ValueError, IndexError, OverflowError, StopIteration) as error:
        raise RunError(
            f"{folder}: {ENCODER} and {DECODER} must be the two graphs of a T5, but are not "
            f"({error})."
        ) from error


def depth_of(shapes: dict[str, list[int]], side: str) -> int:
    return len({name.split(".")[2] for name in shapes if name.startswith(f"{side}.block.")})


def farthest_of(graph: Any, buckets: int) -> int:
    """The distance from which all are in one bucket, of which its logarithm stands in the graph."""
    exact = buckets // 4  # of each direction, half are for a distance each
    logs = {node.output[0] for node in graph.node if node.op_type == "Log"}
    divided = next(n for n in graph.node if n.op_type == "Div" and n.input[0] in logs)
    return round(exact * math.exp(constant(graph, divided.input[1])))


def epsilon_of(graph: Any) -> float:
    """What a norm adds to a variance, to as many digits as float32 has."""
    added = next(n for n in graph.node if n.op_type == "Add" and n.name.endswith("layer_norm/Add"))
    return float(f"{constant(graph, added.input[1]):.6g}")


def scales(graph: Any) -> bool:
    """Whether what is written with is divided by √width first: then it is not the norm itself."""
    last = next(n for n in graph.node if n.op_type in PRODUCTS and "/lm_head/" in n.name)
    return "final_layer_norm" not in last.input[0]


def constant(graph: Any, name: str) -> float:
    """A number that stands in a graph."""
    from onnx import numpy_helper

    node = next(n for n in graph.node if n.op_type == "Constant" and name in n.output)
    return float(numpy_helper.to_array(node.attribute[0].t))


# The weights.


def shapes(path: Path) -> dict[str, Tensor]:
    return tensors(path, shapes_alone=True)


def tensors(path: Path, shapes_alone: bool = False) -> dict[str, Tensor]:
    """The weights of both graphs under T5's own names; an embedding that both have, once."""
    found: dict[str, Tensor] = {}
    for file in (path, path.with_name(DECODER)):
        for name, values, layer in weights_of(file):
            whole = (
                torch.empty(values.shape, device="meta") if shapes_alone else dequantised(values)
            )
            tensor = whole.T if layer else whole
            if name in found and not (shapes_alone or tensor.equal(found[name])):
                raise RunError(f"{file}: '{name}' must be one in both graphs, but is not.")
            found[name] = tensor
    return found


class Integers:
    """A weight as a graph keeps it."""

    def __init__(self, raw: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any]) -> None:
        self.raw, self.scale, self.zero = raw, scale, zero
        self.shape = raw.shape


def dequantised(weight: Integers) -> Tensor:
    """(integer - zero point) · scale, of the whole or of each column."""
    numbers = weight.raw.astype(np.float32)
    if weight.raw.dtype != np.float32:
        numbers = (numbers - weight.zero.astype(np.float32)) * weight.scale
    return torch.from_numpy(numbers)


def weights_of(path: Path) -> Iterator[tuple[str, Integers, bool]]:
    """Each weight's name, its numbers, and whether it is a layer's, kept as (in, out)."""
    graph = graph_of(path)
    stored = {tensor.name: tensor for tensor in graph.initializer}
    parts = {name.removesuffix("_quantized") for name in stored}
    beside = {f"{name}{end}" for name in parts for end in ("_scale", "_zero_point")}
    for name in stored.keys() - beside:
        users = [node for node in graph.node if name in node.input]
        own = name.removesuffix("_quantized")
        layer = all(node.op_type in PRODUCTS for node in users)
        if len(users) != 1 or not (layer or users[0].op_type in ("Gather", "Mul")):
            raise RunError(f"{path}: it must be told by one node what '{name}' is, but is not.")
        spelled = users[0].name.rpartition("/")[0] + ".weight" if layer else own
        yield renamed(spelled, path), read(stored, name, path), layer


def renamed(name: str, path: Path) -> str:
    """T5's own name of a weight: what exported it had the encoder and the whole under names of its
    own choice."""
    dotted = name.strip("/").replace("/", ".")
    inner = re.sub(r"^\w+\.(?=block\.|final_layer_norm\.|embed_tokens\.)", "encoder.", dotted)
    if path.name == DECODER:
        inner = re.sub(r"^\w+\.(?=decoder\.|shared\.|lm_head\.)", "", dotted)
    return "shared.weight" if inner.endswith("embed_tokens.weight") else inner


def read(stored: dict[str, Any], name: str, path: Path) -> Integers:
    own = name.removesuffix("_quantized")
    raw = numbers(stored[name], path)
    if own == name and raw.dtype == np.float32:
        return Integers(raw, np.ones((), np.float32), np.zeros((), np.float32))
    missing = [end for end in ("_scale", "_zero_point") if f"{own}{end}" not in stored]
    if missing or raw.dtype == np.float32 or raw.ndim != 2:
        raise RunError(f"{path}: '{own}' must have a scale and a zero point, but has not.")
    scale, zero = (numbers(stored[f"{own}{end}"], path) for end in ("_scale", "_zero_point"))
    if scale.shape not in ((), (raw.shape[1],)) or zero.shape != scale.shape:
        raise RunError(f"{path}: '{own}' must have one scale, or one for each column, but has not.")
    return Integers(raw, scale, zero)


def numbers(tensor: Any, path: Path) -> NDArray[Any]:
    """A tensor that lies in the file."""
    from onnx import TensorProto

    known = tensor.data_type in TensorProto.DataType.values()
    kind = TensorProto.DataType.Name(tensor.data_type).lower() if known else "an unknown form"
    dtype = {"float": "float32", "int8": "int8", "uint8": "uint8"}.get(kind, "")
    if not dtype:
        raise RunError(f"{path}: '{tensor.name}' is in {kind}; only float32 and int8 are read.")
    if len(tensor.raw_data) % np.dtype(KIND[dtype]).itemsize or min(tensor.dims, default=0) < 0:
        raise RunError(f"{path}: the tensors must lie in it, but '{tensor.name}' does not.")
    inside = np.frombuffer(tensor.raw_data, KIND[dtype])
    if not tensor.raw_data:  # single numbers are also said in a list
        listed = tensor.float_data if dtype == "float32" else tensor.int32_data
        inside = np.array(listed, KIND[dtype])
    if tensor.external_data or math.prod(tensor.dims) != inside.size:
        raise RunError(f"{path}: the tensors must lie in it, but '{tensor.name}' does not.")
    return inside.reshape(tuple(tensor.dims))


def graph_of(path: Path) -> Any:
    try:
        import onnx
    except ImportError as error:
        raise RunError(f"{path}: to read graphs, pip install 'regard[onnx]'.") from error
    try:
        return onnx.load(path, load_external_data=False).graph
    except Exception as error:  # a damaged or hostile one can fail in any way
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunError(f"{path}: not a whole ONNX file ({what}).") from error
