"""Watching models that somebody else wrote: nothing changes, the weights are theirs."""

import json

import numpy as np
import pytest
import torch
import transformers

import regard
from regard.errors import InputError
from regard.parts.live import weights_of

IDS = torch.tensor([[5, 9, 14, 7, 21], [8, 6, 30, 0, 0]])
SEEN = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
NO_WORDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
KINDS = {
    "bert": (transformers.BertModel, transformers.BertConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        vocab_size=40, **NO_WORDS)),
    "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config(
        n_embd=16, n_layer=3, n_head=2, vocab_size=40, **NO_WORDS)),
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=32, vocab_size=40, **NO_WORDS)),
    "t5": (transformers.T5ForConditionalGeneration, transformers.T5Config(
        d_model=16, num_layers=3, num_heads=2, d_kv=8, d_ff=32, vocab_size=40,
        decoder_start_token_id=0, **NO_WORDS)),
}  # fmt: skip


def build(kind, attention="sdpa"):
    torch.manual_seed(0)
    model_class, config = KINDS[kind]
    config = type(config)(**config.to_dict())
    config._attn_implementation = attention
    return model_class(config).eval()


def asked(kind):
    more = {"decoder_input_ids": IDS[:, :3]} if kind == "t5" else {}
    return {"input_ids": IDS, "attention_mask": SEEN, **more}


@torch.no_grad()
def outputs(model, kind, **more):
    return model(**asked(kind), **more)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_changes_and_the_weights_are_its_own(kind):
    model = build(kind)
    plain = outputs(model, kind)[0]
    with regard.watch(model) as seen:
        watched = outputs(model, kind)[0]
    assert torch.equal(plain, watched)  # bit for bit
    assert torch.equal(outputs(model, kind)[0], plain)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    theirs = outputs(build(kind, "eager"), kind, output_attentions=True)
    if kind == "t5":
        told = [*theirs.encoder_attentions, *theirs.decoder_attentions, *theirs.cross_attentions]
        order = ("encoder", "SelfAttention"), ("decoder", "SelfAttention"), ("decoder", "EncDec")
        names = [n for side, part in order for n in seen if n.startswith(side) and part in n]
    else:
        told, names = theirs.attentions, list(seen)
    assert len(names) == len(seen) == len(told)
    modules = dict(model.named_modules())
    for name, weights in zip(names, told, strict=True):
        assert name in modules
        (mine,) = seen[name]
        rows = slice(None) if mine.shape[2] == 3 else SEEN.bool()  # of padding nothing is asked
        one, two = (w.transpose(1, 2)[:, :][rows] for w in (mine, weights))
        assert torch.allclose(one, two, atol=1e-5), name


def test_layers_heads_rows_and_names_are_chosen():
    model = build("gpt2")
    with regard.watch(model, layers=[-1], heads=[1], rows=[4]) as seen:
        outputs(model, "gpt2")
    assert {name: calls[0].shape for name, calls in seen.items()} == {
        "transformer.h.2.attn": (2, 1, 1, 5)
    }
    with regard.watch(model, names=["transformer.h.0.attn"]) as seen:
        outputs(model, "gpt2")
    assert list(seen) == ["transformer.h.0.attn"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_seen_is_drawn(kind, tmp_path):
    model = build(kind)
    with regard.watch(model) as seen:
        outputs(model, kind)
    words = ["the", "cat", "sat", "down", "."]
    target = ["<pad>", "le", "chat"] if kind == "t5" else None
    report = regard.draw(seen, words, target)
    assert len(report.looks) == len(seen)
    shapes = {(len(look.rows), len(look.columns)) for look in report.looks}
    assert shapes == ({(5, 5), (3, 3), (3, 5)} if kind == "t5" else {(5, 5)})
    assert (report.looks[0].layer, report.looks[-1].layer) == (0, 2)
    for look in report.looks:
        assert np.allclose(look.weights.sum(-1), 1, atol=1e-5)
    for ending in (".html", ".json", ".png"):
        assert report.save(tmp_path / f"seen{ending}").stat().st_size > 500
    told = json.loads((tmp_path / "seen.json").read_text())
    assert told["looks"][0]["rows"] == words and "cat" in report._repr_html_()


def test_what_is_written_step_by_step_is_one_picture():
    model = build("gpt2")
    with regard.watch(model) as seen:
        written = model.generate(
            IDS[:1], max_new_tokens=3, do_sample=False, attention_mask=SEEN[:1], eos_token_id=None
        )
    count = written.shape[1] - 1  # the last one is read by nobody
    report = regard.draw(seen, [str(token) for token in written[0, :-1].tolist()])
    whole = report.looks[0].weights
    assert whole.shape[1:] == (count, count) == (7, 7)
    assert np.allclose(whole, np.tril(whole)) and np.allclose(whole.sum(-1), 1, atol=1e-5)


def test_what_cannot_be_drawn_says_why():
    with regard.watch(model := build("bert", "eager")) as seen:
        outputs(model, "bert")
    with pytest.raises(InputError, match="nothing was seen: the model must run while it is watc"):
        regard.draw(seen, ["one"])
    with regard.watch(model := build("bert")) as seen:
        outputs(model, "bert")
    with pytest.raises(InputError, match="self looks from 5 places at 5, but 2 and 2 tokens are"):
        regard.draw(seen, ["one", "two"])


def test_an_error_inside_leaves_no_hook():
    model = build("bert")
    with pytest.raises(IndexError), regard.watch(model):
        model(input_ids=torch.tensor([[99]]))
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


@pytest.mark.parametrize("masked", ["no", "bool", "added", "causal"])
def test_weights_mix_values_as_the_kernel_does(masked):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)
    keep = torch.rand(2, 1, 5, 6) < 0.6
    options = {"no": {}, "bool": {"attn_mask": keep}, "causal": {"is_causal": True},
               "added": {"attn_mask": torch.randn(2, 1, 5, 6)}}[masked]  # fmt: skip
    options = {**options, "scale": 0.3, "enable_gqa": True}
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    mixed = weights_of(q, k, v, **options) @ v.repeat_interleave(2, 1)
    alive = keep.any(-1, keepdim=True) if masked == "bool" else torch.ones(1, dtype=torch.bool)
    assert torch.allclose(mixed * alive, wanted.nan_to_num() * alive, atol=1e-5)
