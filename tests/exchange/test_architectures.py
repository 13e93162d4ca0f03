"""Every architecture against `transformers`, the same weights in both: forward and gradients."""

import pytest
import torch
import transformers as hf

from regard.batch import (
    Batch,
    Hidden,
    Ids,
    Label,
    Nothing,
    Running,
    Sizes,
    Span,
    Tags,
    Tokens,
    Words,
)
from regard.errors import RunError
from regard.exchange.hf import ARCHITECTURES, rules_of, without_repeats
from regard.exchange.rules import to_ours, to_theirs
from regard.models import MODELS
from tests.toys import pairs, tokens

V = 60
ASKED = {
    "classify": Label, "tag": Tags, "answer": Span, "embed": Nothing, "masked": Hidden,
    "language": Tokens, "translate": Words, "text-to-text": Words,
}  # fmt: skip
BERT = {
    "vocab_size": V, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 20, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
DISTIL = {
    "vocab_size": V, "dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
    "max_position_embeddings": 20, "dropout": 0.0, "attention_dropout": 0.0,
    "seq_classif_dropout": 0.0,
}  # fmt: skip
T5 = {
    "vocab_size": V, "d_model": 24, "num_layers": 2, "num_heads": 4, "d_kv": 6, "d_ff": 48,
    "dropout_rate": 0.0, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10,
}  # fmt: skip
MARIAN = {
    "vocab_size": V, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "max_position_embeddings": 20, "dropout": 0.0, "scale_embedding": True,
    "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0, "forced_eos_token_id": None,
}  # fmt: skip
GPT2 = {"vocab_size": V, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 20, "n_inner": 48,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}  # fmt: skip
LLAMA = {"vocab_size": V, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 40, "max_position_embeddings": 20}  # fmt: skip

ALL = {
    "bert": (hf.BertForPreTraining, hf.BertConfig(**BERT)),
    "bert-words": (hf.BertForMaskedLM, hf.BertConfig(**BERT)),
    "bert-body": (hf.BertModel, hf.BertConfig(**BERT, hidden_act="relu")),
    "bert-classes": (hf.BertForSequenceClassification, hf.BertConfig(**BERT, num_labels=3)),
    "bert-tags": (hf.BertForTokenClassification, hf.BertConfig(**BERT, num_labels=5)),
    "bert-answers": (hf.BertForQuestionAnswering, hf.BertConfig(**BERT)),
    "roberta": (hf.RobertaForMaskedLM, hf.RobertaConfig(**BERT, type_vocab_size=1, pad_token_id=1)),
    "roberta-classes": (
        hf.RobertaForSequenceClassification,
        hf.RobertaConfig(**BERT, type_vocab_size=1, num_labels=3, pad_token_id=1),
    ),
    "roberta-tags": (
        hf.RobertaForTokenClassification,
        hf.RobertaConfig(**BERT, type_vocab_size=1, num_labels=3, pad_token_id=1),
    ),
    "distilbert": (hf.DistilBertForMaskedLM, hf.DistilBertConfig(**DISTIL)),
    "distilbert-body": (hf.DistilBertModel, hf.DistilBertConfig(**DISTIL)),
    "distilbert-classes": (
        hf.DistilBertForSequenceClassification,
        hf.DistilBertConfig(**DISTIL, num_labels=3),
    ),
    "t5": (hf.T5ForConditionalGeneration, hf.T5Config(**T5)),
    "t5-wide": (hf.T5ForConditionalGeneration, hf.T5Config(**{**T5, "d_kv": 10})),
    "t5-gated": (
        hf.T5ForConditionalGeneration,
        hf.T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    ),
    "t5-untied": (
        hf.T5ForConditionalGeneration,
        hf.T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    ),
    "marian": (hf.MarianMTModel, hf.MarianConfig(**MARIAN)),
    "pegasus": (
        hf.PegasusForConditionalGeneration,
        hf.PegasusConfig(**MARIAN, activation_function="relu"),
    ),
    "gpt2": (hf.GPT2LMHeadModel, hf.GPT2Config(**GPT2)),
    "gpt2-classify": (
        hf.GPT2ForSequenceClassification,
        hf.GPT2Config(**GPT2, num_labels=3, pad_token_id=0),
    ),
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**LLAMA)),
    "llama-classify": (
        hf.LlamaForSequenceClassification,
        hf.LlamaConfig(**LLAMA, num_labels=3, pad_token_id=0, tie_word_embeddings=True),
    ),
    "llama-grouped": (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(**LLAMA, num_key_value_heads=2, rope_theta=500.0, tie_word_embeddings=True),
    ),
    "llama-linear": (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(**LLAMA, rope_parameters={
            "rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0,
        }),
    ),
    "llama-yarn": (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(**{**LLAMA, "max_position_embeddings": 2048}, rope_parameters={
            "rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0,
            "original_max_position_embeddings": 512,
        }),
    ),
}  # fmt: skip


def theirs(name):
    kind, config = ALL[name]
    torch.manual_seed(0)
    model = kind(config)
    if name == "t5-untied":  # as in the files of v1.1
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(torch.randn(V, 24))
    for part, weight in model.named_parameters():
        if "embed_positions" not in part:  # a table that is computed
            weight.data += torch.randn_like(weight) * 0.2
    for buffer_name, buffer in model.named_buffers():
        if buffer_name == "final_logits_bias":
            buffer.normal_()
    return model.eval()


def ours(other):
    """Our model with the weights of theirs, by way of the rules."""
    config = other.config.to_dict()
    kind = type(other).__name__
    architecture = ARCHITECTURES[config["model_type"]]
    task = architecture.classes[kind]
    tensors = without_repeats(other.state_dict(), architecture, config)
    settings = architecture.settings(config, set(tensors))
    classes = {"answer": 2}.get(task, getattr(other.config, "num_labels", 0))
    model = MODELS[architecture.model](
        Sizes(V, V, True, classes, Running if task == "language" else Ids, ASKED[task]), settings
    ).eval()
    rules = list(rules_of(architecture, settings, ASKED[task], set(tensors)))
    weights = to_ours(rules, tensors, "here")
    own = dict(model.named_parameters())
    assert weights.keys() == own.keys()
    with torch.no_grad():
        for name, weight in own.items():
            weight.copy_(weights[name])
    return model, rules, task


def read(other, task, seed=0):
    """One padded batch through theirs and as ours reads it."""
    dice = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, V, (3, 9), generator=dice)
    lengths = torch.tensor([9, 5, 7])
    real = torch.arange(9) < lengths[:, None]
    segments = (torch.arange(9) > 3).long().expand(3, -1).contiguous()
    kind = other.config.model_type
    if task == "language":
        padded = torch.cat((ids, ids[:, :1]), 1)
        return other(ids).logits, tokens(padded, torch.tensor([[0, 9]] * 3)), None
    if task in ("translate", "text-to-text"):
        target = torch.randint(4, V, (3, 7), generator=dice)
        given = other(input_ids=ids, attention_mask=real, decoder_input_ids=target[:, :-1])
        return given.logits, pairs(ids, lengths, target, torch.tensor([6, 6, 6])), None
    ids = torch.where(real, ids, other.config.pad_token_id)
    more = {"token_type_ids": segments} if kind == "bert" else {}
    given = other(input_ids=ids, attention_mask=real.long(), **more)
    segments = segments if kind == "bert" else segments * 0
    asked = {
        "classify": Label(torch.zeros(3, dtype=torch.long), torch.ones(3)),
        "tag": Tags(torch.zeros_like(ids), torch.ones(3, 9)),
    }
    batch = Batch(Ids(ids, lengths, segments), asked.get(task, Nothing()))
    if task == "answer":
        return torch.stack((given.start_logits, given.end_logits), -1), batch, real
    if task == "embed":
        return given.last_hidden_state[:, :1], batch, None
    logits = given.prediction_logits if hasattr(given, "prediction_logits") else given.logits
    return (
        (logits[:, None] if task == "classify" else logits),
        batch,
        real if task != "classify" else None,
    )


@pytest.mark.parametrize("name", ALL)
def test_forward_and_gradients_are_the_same(name):
    other = theirs(name)
    model, rules, task = ours(other)
    wanted, batch, real = read(other, task)
    found = model(batch)
    if real is not None:
        wanted, found = wanted[real], found[real]
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=2e-5)
    wanted.square().mean().backward()
    found.square().mean().backward()
    gradients = {n: w.grad for n, w in model.named_parameters() if w.grad is not None}
    names = dict(other.named_parameters())
    unused = [n for n, w in model.named_parameters() if w.grad is None]
    assert not [n for n in unused if not n.startswith(("pooler", "next"))]
    for rule in rules:
        if all(n in gradients for n in rule.ours) and all(n in names for n in rule.theirs):
            back = rule.to_theirs(*(gradients[n] for n in rule.ours))
            for its, mine in zip(rule.theirs, back, strict=True):
                grad = names[its].grad
                torch.testing.assert_close(
                    mine, grad, atol=1e-5, rtol=1e-3, msg=lambda m, n=its: f"{n}: {m}"
                )


@pytest.mark.parametrize("name", ALL)
def test_there_and_back_again(name):
    other = theirs(name)
    model, rules, _ = ours(other)
    architecture = ARCHITECTURES[other.config.model_type]
    back = to_theirs(rules, dict(model.named_parameters()))
    kept = without_repeats(other.state_dict(), architecture, other.config.to_dict())
    assert back.keys() == kept.keys()
    for key, tensor in back.items():
        shift = 2 if "position_embeddings" in key and other.config.model_type == "roberta" else 0
        torch.testing.assert_close(tensor[shift:], kept[key][shift:], atol=0, rtol=0)
    config = architecture.config(model.settings)
    for key, value in config.items():
        if key not in (
            "rope_theta",
            "position_embedding_type",
            "normalize_embedding",
            "static_position_embeddings",
            "share_encoder_decoder_embeddings",
        ):
            assert getattr(other.config, key) == value, key


def test_a_classifier_without_words_is_read_whatever_is_said_of_them():
    config = hf.LlamaConfig(**LLAMA, num_labels=3, pad_token_id=0)
    assert not config.tie_word_embeddings
    other = hf.LlamaForSequenceClassification(config).eval()
    model, _, task = ours(other)
    wanted, batch, _ = read(other, task)
    torch.testing.assert_close(model(batch), wanted, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize(
    "told",
    [
        {"rope_type": "dynamic", "factor": 2.0},
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 512,
            "mscale": 0.7,
        },
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100},
        {"rope_type": "linear"},
    ],
)
def test_positions_that_are_stretched_otherwise_are_refused(told):
    config = {**hf.LlamaConfig(**LLAMA).to_dict(), "max_position_embeddings": 2048}
    config["rope_parameters"] = {**told, "rope_theta": 10000.0}
    with pytest.raises(RunError, match="may be stretched by linear or yarn, with the usual"):
        ARCHITECTURES["llama"].settings(config, set())
