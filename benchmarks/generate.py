"""Generating with GPT-2 124M in bfloat16, one stream and 64, against `transformers`.

Decoding in one batch, by the defaults, against a static cache, compiled; and through the engine,
where every stream is a request of its own, against `generate` as it is.

python benchmarks/generate.py [--repeats 3] [--quick] [--skip-peer] [--only batch|engine]
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import transformers
from measure import compare, race, tell, versions

from regard.batch import Sizes
from regard.decode import Limits, Settings, with_cuda_graphs, write
from regard.decode.engine import Done, Engine, Request
from regard.model import AnyBatch
from regard.models.gpt import GPT, GPTSettings
from regard.tasks.writer import as_prompt

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
    parser.add_argument("--only", choices=("batch", "engine"))
    parser.add_argument("--compile", default="auto", choices=("auto", "full"))
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
    engine = Engine(model, as_prompt)
    for streams in (1, 64):
        prompt = torch.randint(VOCABULARY - 1, (streams, prompt_length), device=device)
        longest = torch.full((streams,), new, device=device)
        limits = Limits(prompt, END, longest)
        decode = Settings(
            kind="greedy", min_new_tokens=new, max_new_tokens=new, compile=given.compile
        )
        batch = as_prompt(prompt)

        def generate(
            limits: Limits = limits, batch: AnyBatch = batch, decode: Settings = decode
        ) -> list[list[int]]:
            found = write(with_cuda_graphs(model, decode), batch, limits, decode)
            return [row[0].ids for row in found]

        def serve(prompt: torch.Tensor = prompt, decode: Settings = decode) -> list[list[int]]:
            return through_engine(engine, prompt, decode)

        def peer(prompt: torch.Tensor = prompt, static: bool = True) -> list[list[int]]:
            more = {"cache_implementation": "static"} if on_gpu and static else {}
            out = theirs.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                min_new_tokens=new, max_new_tokens=new, pad_token_id=END, **more,
            )  # fmt: skip
            ids: list[list[int]] = out[:, prompt.shape[1] :].tolist()
            return ids

        sizes = (
            f"{sum(p.numel() for p in model.parameters()):,} parameters, "
            f"{streams} streams, {prompt_length} + {new} tokens, {model.norm.weight.dtype}"
        )
        ways: dict[str, tuple[str, Callable[[], object], Callable[[], object]]] = {
            "batch": ("transformers generate, static cache, compiled", generate, peer),
            "engine": ("transformers generate, as it is", serve, partial(peer, static=False)),
        }
        for way, (name, ours, other) in ways.items():
            if given.only in (None, way):
                label = {"what": f"generating ({way}), {sizes}", "peer_name": name}
                measure(label, ours, other, streams * new, given.repeats, wait, given.skip_peer)
    engine.close()


def through_engine(engine: Engine, prompts: torch.Tensor, decode: Settings) -> list[list[int]]:
    """Each row as a request; all at once."""
    left, done = threading.Semaphore(0), dict[int, Done]()

    def teller(row: int) -> Callable[[object], None]:
        def tell(event: object) -> None:
            if isinstance(event, Done):
                done[row] = event
                left.release()

        return tell

    for row, prompt in enumerate(prompts):
        longest = torch.full((1,), decode.max_new_tokens, device=prompts.device)
        limits = Limits(prompt[None], END, longest)
        assert engine.submit(Request(limits, decode, teller(row)))
    for _ in prompts:
        left.acquire()
    for ended in done.values():
        if ended.error is not None:
            raise ended.error
    return [done[row].answers[0].ids for row in sorted(done)]


def measure(
    label: dict[str, object],
    ours: Callable[[], object],
    peer: Callable[[], object],
    tokens: int,
    repeats: int,
    wait: Callable[[], None],
    alone: bool,
) -> None:
    sides = {"ours": ours} if alone else {"ours": ours, "peer": peer}
    for side in sides.values():
        side()
        side()  # what is captured or compiled is, by now
    seconds = race(sides, repeats, wait)
    label = {**label, "unit": "tokens/s", "versions": versions()}
    if alone:
        tell({**label, "ours": round(tokens / min(seconds["ours"]), 1)})
        return
    rows: list[object] = list(zip(ours(), peer(), strict=True))  # type: ignore[call-overload]
    same = [a == b for a, b in rows]  # type: ignore[misc]
    figures = compare(seconds["ours"], seconds["peer"], tokens)
    tell({**label, **figures, "agree": round(sum(same) / len(same), 4)})


if __name__ == "__main__":
    main()
