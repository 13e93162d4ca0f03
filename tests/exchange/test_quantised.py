"""T5 from two ONNX graphs of eight-bit weights: what is the same as there, and what is refused."""

import shutil
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers as hf
from onnxruntime.quantization import quantize_dynamic
from torch import nn

import regard
from regard.batch import Batch, Ids, Words
from regard.errors import RunError
from regard.exchange.hf import read
from regard.parts.output import Output
from tests.exchange.folders import pieces, sentences

LINES = sentences(4, seed=7)


class Encoder(nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.enc = whole.encoder

    def forward(self, ids, mask):
        return self.enc(input_ids=ids, attention_mask=mask).last_hidden_state


class Decoder(nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.m = whole

    def forward(self, ids, memory, mask):
        told = {"encoder_hidden_states": memory, "encoder_attention_mask": mask}
        x = self.m.decoder(input_ids=ids, use_cache=False, **told).last_hidden_state
        return self.m.lm_head(x)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A T5 of random weights as others take theirs out: two graphs, their weights as integers."""
    folder = tmp_path_factory.mktemp("graphs")
    model = pieces(folder, "spiece.model", sentences(), 60, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    words = (model.vocab_size() + 100 + 7) // 8 * 8
    config = hf.T5Config(
        vocab_size=words, d_model=24, num_layers=2, num_heads=4, d_kv=8, d_ff=48,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0,
    )  # fmt: skip
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    whole = hf.T5ForConditionalGeneration(config).eval()
    for name, weight in whole.named_parameters():
        if name.endswith("layer_norm.weight"):  # equal ones would be written once
            nn.init.uniform_(weight, 0.5, 1.5)
    ids, memory = torch.ones(1, 5, dtype=torch.long), torch.randn(1, 5, 24)
    graphs = {
        "encoder": (Encoder(whole), (ids, ids), ["input_ids", "attention_mask"]),
        "decoder": (Decoder(whole), (ids, memory, ids), ["input_ids", "memory", "mask"]),
    }
    for name, (part, given, names) in graphs.items():
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                part, given, str(folder / "float.onnx"), input_names=names, opset_version=18,
                dynamic_axes={n: {1: f"{n}_length"} for n in names}, dynamo=False,
            )  # fmt: skip
        quantize_dynamic(folder / "float.onnx", folder / f"{name}.onnx")
    (folder / "float.onnx").unlink()
    return folder


@pytest.fixture(scope="module")
def imported(folder, tmp_path_factory):
    run = tmp_path_factory.mktemp("imported") / "run"
    said = read(folder, run)
    assert said.startswith("T5ForConditionalGeneration as a run for the task text-to-text")
    return regard.load(run, device="cpu")


def rounded(module, given):
    """What goes into a product as whole numbers from 0 to 255, the zero among them: ONNX's
    DynamicQuantizeLinear."""
    x = given[0]
    low, high = x.min().clamp_max(0), x.max().clamp_min(0)
    scale = (high - low) / 255
    zero = (-low / scale).round().clamp(0, 255)
    whole = ((x / scale).round() + zero).clamp(0, 255)
    return ((whole - zero) * scale, *given[1:])


def test_with_activations_rounded_as_there_it_says_the_same(folder, imported):
    """So every weight stands where it should: another place for one of them would show at once."""
    sessions = [onnxruntime.InferenceSession(folder / f"{n}.onnx") for n in ("encoder", "decoder")]
    hooks = [
        part.register_forward_pre_hook(rounded)
        for part in imported.model.modules()
        if isinstance(part, nn.Linear | Output)
    ]
    try:
        for line in LINES:
            ids = torch.tensor([imported.task.read_ids(line)])
            written = torch.tensor([[0, 3, 9, 4, 17, 1]])
            mask = np.ones(ids.shape, np.int64)
            read_ids, asked = Ids(ids, torch.tensor([ids.shape[1]])), torch.tensor([5])
            with torch.no_grad():
                own = imported.model(Batch(read_ids, Words(written, asked))).numpy()
            (memory,) = sessions[0].run(None, {"input_ids": ids.numpy(), "attention_mask": mask})
            given = {"input_ids": written[:, :-1].numpy(), "memory": memory, "mask": mask}
            (theirs,) = sessions[1].run(None, given)
            # Where a number lies in the middle of two whole ones, a last bit decides.
            assert np.abs(own - theirs).mean() < 0.02 * theirs.std()
    finally:
        for hook in hooks:
            hook.remove()


def test_what_a_graph_alone_says_becomes_settings(imported):
    settings = imported.recipe.model
    assert (settings.width, settings.depth, settings.heads, settings.head_width) == (24, 2, 4, 8)
    assert (settings.buckets, settings.farthest, settings.epsilon) == (32, 128, 1e-6)
    assert (settings.feedforward, settings.tie, settings.scaled) == ("gated-gelu", False, False)


# What is wrong with such a folder is named, and nothing is left of it.


def changed(change):
    def apply(folder):
        graph = onnx.load(folder / "encoder.onnx")
        change(graph.graph)
        onnx.save(graph, folder / "encoder.onnx")

    return apply


def tensor_of(graph, name):
    return next(tensor for tensor in graph.initializer if tensor.name == name)


TABLE = "enc.embed_tokens.weight"
CASES = {
    "a file cut off": (
        lambda folder: (folder / "encoder.onnx").write_bytes(
            (folder / "encoder.onnx").read_bytes()[:1000]
        ),
        "not a whole ONNX file",
    ),
    "a tensor that is said to be larger": (
        changed(lambda graph: tensor_of(graph, f"{TABLE}_quantized").dims.append(10**9)),
        "the tensors must lie in it",
    ),
    "a tensor outside": (
        changed(lambda graph: tensor_of(graph, f"{TABLE}_quantized").external_data.add(
            key="location", value="/etc/passwd"
        )),
        "the tensors must lie in it",
    ),
    "a number cut off": (
        changed(lambda graph: setattr(
            next(t for t in graph.initializer if t.name.endswith("layer_norm.weight")),
            "raw_data", b"abc",
        )),
        "the tensors must lie in it",
    ),
    "an embedding of its own": (
        changed(lambda graph: tensor_of(graph, f"{TABLE}_scale").CopyFrom(
            onnx.numpy_helper.from_array(np.float32(2.0), f"{TABLE}_scale")
        )),
        "'shared.weight' must be one in both graphs",
    ),
    "no scale": (
        changed(lambda graph: graph.initializer.remove(tensor_of(graph, f"{TABLE}_scale"))),
        "must have a scale and a zero point",
    ),
    "another model": (
        changed(lambda graph: [graph.node.remove(n) for n in list(graph.node) if "q/" in n.name]),
        "must be told by one node",
    ),
    "a link out": (
        lambda folder: ((folder / "decoder.onnx").unlink(),
                        (folder / "decoder.onnx").symlink_to("/etc/hostname")),
        "a link must stay in its folder",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_folder_that_is_not_what_it_seems(name, folder, tmp_path):
    change, wanted = CASES[name]
    shutil.copytree(folder, tmp_path / "in")
    change(tmp_path / "in")
    with pytest.raises(RunError) as told:
        read(tmp_path / "in", tmp_path / "run")
    assert wanted in str(told.value), str(told.value)
    assert "\n" not in str(told.value) and not Path(tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("google/flan-t5-small", "hf download google/flan-t5-small --local-dir flan-t5-small"),
        ("bert-base-uncased", "hf download bert-base-uncased --local-dir bert-base-uncased"),
        ("models/of/mine", ""),
    ],
)
def test_a_name_of_a_hub_is_no_folder(name, hint, tmp_path):
    with pytest.raises(RunError, match="there must be a Hugging Face folder") as told:
        read(Path(name), tmp_path / "run")
    assert hint in str(told.value)
    assert ("it must hold config.json" in str(told.value)) == bool(hint)
