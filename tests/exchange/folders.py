"""Tiny Hugging Face folders with random weights, as their own library writes them."""

import json
import random

import sentencepiece
import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

WORDS = [
    "the", "a", "cat", "dog", "bird", "sees", "likes", "small", "old", "red", "runs", "home", "now",
    "and", "but", "not",
]  # fmt: skip
BERT = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 40,
}  # fmt: skip


def sentences(count=200, seed=0):
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(2, 9))) for _ in range(count)]


def save(kind, config, folder, scale=0.3):
    torch.manual_seed(1)
    model = kind(config)
    for name, weight in model.named_parameters():
        if "embed_positions" not in name:
            weight.data += torch.randn_like(weight) * scale
    model.eval().save_pretrained(folder)
    return model


def bert(folder, kind=hf.BertForMaskedLM, scale=0.3, **more):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "c", "##at", "."]
    config = hf.BertConfig(vocab_size=len(pieces), **BERT, **more)
    model = save(kind, config, folder, scale)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    return model


def bytes_bpe(specials, begins=0):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300 + begins, special_tokens=specials, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(sentences(), trainer)
    return tokenizer


def gpt2(folder, kind=hf.GPT2LMHeadModel, **more):
    tokenizer = bytes_bpe(["<|endoftext|>"])
    folder.mkdir(exist_ok=True)
    tokenizer.model.save(str(folder))  # vocab.json and merges.txt
    size = tokenizer.get_vocab_size()
    config = hf.GPT2Config(
        vocab_size=size, n_embd=24, n_layer=2, n_head=4, n_positions=40, bos_token_id=0,
        eos_token_id=0, **more,
    )  # fmt: skip
    return save(kind, config, folder)


def roberta(folder, kind=hf.RobertaForMaskedLM, **more):
    tokenizer = bytes_bpe(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    folder.mkdir(exist_ok=True)
    tokenizer.model.save(str(folder))
    size = tokenizer.get_vocab_size()
    config = hf.RobertaConfig(vocab_size=size, **BERT, type_vocab_size=1, pad_token_id=1, **more)
    return save(kind, config, folder)


def distilbert(folder):
    bert(folder)  # its vocabulary; the weights are written over
    config = hf.DistilBertConfig(
        vocab_size=len((folder / "vocab.txt").read_text().splitlines()), dim=24, n_layers=2,
        n_heads=4, hidden_dim=48, max_position_embeddings=40, num_labels=3,
    )  # fmt: skip
    return save(hf.DistilBertForSequenceClassification, config, folder)


def pieces(folder, name, lines, size=120, **more):
    file = folder / "lines.txt"
    folder.mkdir(exist_ok=True)
    file.write_text("\n".join(lines))
    sentencepiece.SentencePieceTrainer.train(
        input=str(file), model_prefix=str(folder / "made"), vocab_size=size, minloglevel=5,
        hard_vocab_limit=False, **more,
    )  # fmt: skip
    file.unlink()
    (folder / "made.vocab").unlink()
    (folder / "made.model").rename(folder / name)
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / name))


def t5(folder, gated=False):
    model = pieces(folder, "spiece.model", sentences(), 60, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    config = hf.T5Config(
        vocab_size=(model.vocab_size() + 100 + 7) // 8 * 8, d_model=24, num_layers=2, num_heads=4,
        d_kv=6, d_ff=48, feed_forward_proj="gated-gelu" if gated else "relu",
        decoder_start_token_id=0,
    )  # fmt: skip
    return save(hf.T5ForConditionalGeneration, config, folder, 0.1)


def llama(folder):
    model = pieces(
        folder, "tokenizer.model", sentences(), 300, model_type="bpe", byte_fallback=True,
        unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
    )  # fmt: skip
    config = hf.LlamaConfig(
        vocab_size=model.vocab_size(), hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=40, max_position_embeddings=40, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    return save(hf.LlamaForCausalLM, config, folder)


def marian(folder):
    sides = [pieces(folder, f"{side}.spm", sentences(seed=i), 60, bos_id=-1, eos_id=0, unk_id=1)
             for i, side in enumerate(("source", "target"))]  # fmt: skip
    known = {"</s>": 0, "<unk>": 1}
    for side in sides:
        for i in range(side.vocab_size()):
            known.setdefault(side.id_to_piece(i), len(known))
    known["<pad>"] = len(known)
    (folder / "vocab.json").write_text(json.dumps(known))
    config = hf.MarianConfig(
        vocab_size=len(known), d_model=24, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, max_position_embeddings=64, scale_embedding=True,
        pad_token_id=known["<pad>"], eos_token_id=0, decoder_start_token_id=known["<pad>"],
        forced_eos_token_id=None, activation_function="swish",
    )  # fmt: skip
    return save(hf.MarianMTModel, config, folder)


FOLDERS = {
    "bert": bert, "gpt2": gpt2, "roberta": roberta, "t5": t5, "llama": llama, "marian": marian,
}  # fmt: skip
