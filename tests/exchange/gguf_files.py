"""Tiny GGUF files with random weights, as llama.cpp's own package writes them."""

import json

import gguf
import numpy as np
import torch
import transformers as hf
from gguf import GGMLQuantizationType as Kind

from tests.exchange.folders import bytes_bpe

CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Where a block has its scales, and what they are for numbers around 0.
BLOCKS = {
    Kind.Q4_K: (0, [3.5e-4, 7.5 * 3.5e-4]),
    Kind.Q5_K: (0, [1.8e-4, 15.5 * 1.8e-4]),
    Kind.Q6_K: (208, [5e-5]),
}
SIZES = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "num_key_value_heads": 2, "max_position_embeddings": 96, "rope_theta": 5000.0,
}  # fmt: skip
THEIRS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "model.layers": "blk", "model.norm": "output_norm",
    "model.embed_tokens": "token_embd", "lm_head": "output",
}  # fmt: skip


def llama(**more):
    torch.manual_seed(1)
    config = hf.LlamaConfig(**{**SIZES, "tie_word_embeddings": True, "bos_token_id": 0, **more})
    model = hf.LlamaForCausalLM(config)
    for weight in model.parameters():
        weight.data += torch.randn_like(weight) * 0.05
    return model.eval()


def packed(array, kind, dice):
    """An array as bytes; of kinds that the package only reads, blocks of random bytes."""
    if kind not in BLOCKS:
        return gguf.quants.quantize(array, kind)
    items, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = dice.integers(0, 256, (array.size // items, size), np.uint8)
    place, scales = BLOCKS[kind]
    blocks[:, place : place + 2 * len(scales)] = np.array(scales, np.float16).view(np.uint8)
    return blocks.reshape(len(array), -1)


def write(path, kind=Kind.F32, drop=(), fields=None, tokens=None, **more):
    """A file of a random Llama without the tensors of `drop`; `fields` changes what it says."""
    tokenizer = json.loads(bytes_bpe(CONTROLS).to_str())["model"]
    names = sorted(tokenizer["vocab"], key=tokenizer["vocab"].get) if tokens is None else tokens
    model = llama(vocab_size=len(names), **more)
    c, dice = model.config, np.random.default_rng(0)
    said = {
        "llama.context_length": c.max_position_embeddings, "llama.embedding_length": c.hidden_size,
        "llama.block_count": c.num_hidden_layers, "llama.feed_forward_length": c.intermediate_size,
        "llama.attention.head_count": c.num_attention_heads,
        "llama.attention.head_count_kv": c.num_key_value_heads,
        "llama.rope.freq_base": 5000.0, "llama.attention.layer_norm_rms_epsilon": c.rms_norm_eps,
        "llama.vocab_size": len(names), "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.token_type": [3 if n in CONTROLS else 1 for n in names],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in tokenizer["merges"]],
        "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE, **(fields or {}),
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, said.pop("general.architecture", "llama"))
    for name, value in said.items():
        add(writer, name, value)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        array = weight.float().numpy()
        if "q_proj" in name or "k_proj" in name:
            heads = c.num_attention_heads if "q_proj" in name else c.num_key_value_heads
            array = array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        for theirs, own in THEIRS.items():
            name = name.replace(theirs, own)
        if name in drop:
            continue
        if array.ndim == 1 or kind == Kind.F32:
            writer.add_tensor(name, array)
        else:
            writer.add_tensor(name, packed(array, kind, dice), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add(writer, name, value):
    if value is None:
        return
    kinds = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}
    getattr(writer, f"add_{kinds[type(value)]}")(name, value)
