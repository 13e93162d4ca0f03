"""Generating with GPT-2 124M in bfloat16, one stream and 64, against `transformers` compiled.

python benchmarks/generate.py [--repeats 3] [--quick] [--skip-peer]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import transformers
from measure import compare, race, tell, versions

from regard.batch import Sizes, Tokens
from regard.decode import DECODERS, Limits, Settings, quickest
from regard.models.gpt import GPT, GPTSettings

VOCABULARY, END = 50257, 50256


def copy_gpt2(theirs: transformers.GPT2LMHeadModel) -> GPT:
    """Ours with the weights of theirs."""
    config = theirs.config
    settings = GPTSettings(
        config.n_embd, config.n_layer, config.n_head, positions=config.n_positions, dropout=0.0
    )
    size = config.vocab_size
    model = GPT(Sizes(size, size, True), settings)
    body, width = theirs.transformer, config.n_embd
    with torch.no_grad():
        model.embedding.tokens.weight.copy_(body.wte.weight)
        model.embedding.position.weight.copy_(body.wpe.weight)
        model.norm.load_state_dict(body.ln_f.state_dict())
        for mine, its in zip(model.blocks, body.h, strict=True):
            mine.attention_residual.norm.load_state_dict(its.ln_1.state_dict())
            mine.feedforward_residual.norm.load_state_dict(its.ln_2.state_dict())
            weight, bias = its.attn.c_attn.weight.T, its.attn.c_attn.bias
            mine.attention.query.weight.copy_(weight[:width])
            mine.attention.query.bias.copy_(bias[:width])
            mine.attention.memory.weight.copy_(weight[width:])
            mine.attention.memory.bias.copy_(bias[width:])
            for own, other in (
                (mine.attention.output, its.attn.c_proj),
                (mine.feedforward.widen, its.mlp.c_fc),
                (mine.feedforward.narrow, its.mlp.c_proj),
            ):
                own.weight.copy_(other.weight.T)
                own.bias.copy_(other.bias)
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--compile", default="full", choices=("auto", "full"))
    parser.add_argument("--skip-peer", action="store_true", help="only ours, for tuning")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.type == "cuda"
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    shape = {"n_embd": 64, "n_layer": 2, "n_head": 4} if given.quick else {}
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape)).eval().to(device)
    model = copy_gpt2(theirs).to(device)
    if on_gpu:
        theirs.bfloat16()
        model.bfloat16()
    prompt_length, new = (8, 8) if given.quick else (32, 256)
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    for streams in (1, 64):
        prompt = torch.randint(VOCABULARY - 1, (streams, prompt_length), device=device)
        longest = torch.full((streams,), new, device=device)
        limits = Limits(prompt, END, longest)
        decode = Settings(
            kind="greedy", min_new_tokens=new, max_new_tokens=new, compile=given.compile
        )
        batch = Tokens(prompt, torch.zeros(streams, 2, dtype=torch.long, device=device))

        def generate(
            limits: Limits = limits, batch: Tokens = batch, decode: Settings = decode
        ) -> list[list[int]]:
            found = DECODERS["greedy"](quickest(model, decode), batch, limits, decode)
            return [row[0].ids for row in found]

        def peer(prompt: torch.Tensor = prompt) -> list[list[int]]:
            more = {"cache_implementation": "static"} if on_gpu else {}
            out = theirs.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                min_new_tokens=new, max_new_tokens=new, pad_token_id=END, **more,
            )  # fmt: skip
            ids: list[list[int]] = out[:, prompt.shape[1] :].tolist()
            return ids

        sides: dict[str, Callable[[], object]] = {"ours": generate}
        if not given.skip_peer:
            sides["peer"] = peer
            peer()
        seconds = race(sides, given.repeats, wait)
        label = {
            "what": f"generating, {sum(p.numel() for p in model.parameters()):,} parameters, "
            f"{streams} streams, {prompt_length} + {new} tokens, {model.norm.weight.dtype}",
            "peer_name": "transformers generate, static cache, compiled",
            "unit": "tokens/s",
            "versions": versions(),
        }
        if given.skip_peer:
            tell({**label, "ours": round(streams * new / min(seconds["ours"]), 1)})
            continue
        same = [a == b for a, b in zip(generate(), peer(), strict=True)]
        figures = compare(seconds["ours"], seconds["peer"], streams * new)
        tell({**label, **figures, "agree": round(sum(same) / len(same), 4)})


if __name__ == "__main__":
    main()
