"""Kernels of patterns compile for a GPU, which needs none; what they are told is right.

That they compute what the written-out path does is for tests/gpu to show.
"""

import pytest
import torch

from regard.parts.pattern import PATTERNS, Causal, laid_out

triton = pytest.importorskip("triton", reason="Triton is for Linux on x86-64")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from regard.parts import kernel  # noqa: E402

POINTERS = {
    "LSE": "fp32",
    "PART": "fp32",
    "PART_LSE": "fp32",
    "DELTA": "fp32",
    "TILES": "i8",
    "SPLIT": "i64",
}
LISTS = ("ROW", "SLOT", "FIRST", "LAST", "OTHER", "TILE")
KERNELS = {
    "forward": (kernel.forward_kernel, kernel.FORWARD),
    "query": (kernel.query_kernel, kernel.BACKWARD),
    "key": (kernel.key_kernel, kernel.BACKWARD),
    "join": (kernel.join_kernel, {}),
    "add": (kernel.add_kernel, {}),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize(
    ("kind", "precision", "side"), [("bf16", "tf32", 64), ("fp32", "ieee", 32)]
)
def test_a_kernel_compiles_for_an_h200(name, more, kind, precision, side, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made, options = KERNELS[name]
    fixed = {
        "BLOCK": side, "WIDTH": side, "PADDED": more, "DRAWN": more, "PRECISION": precision,
        "ROWS": kernel.ROWS, "COUNT": 1 + more,
    }  # fmt: skip
    fixed = {key: value for key, value in fixed.items() if key in made.arg_names}
    types = {}
    for argument in made.arg_names:
        if argument in fixed:
            types[argument] = "constexpr"
        elif argument in ("scale", "natural"):
            types[argument] = "fp32"
        elif argument == "KNOWN":
            types[argument] = "*i1" if more else f"*{kind}"
        elif argument.isupper():
            own = "i32" if argument in LISTS else POINTERS.get(argument, kind)
            if name == "add" and argument == "FIRST":  # here a gradient, not where a list begins
                own = kind
            types[argument] = f"*{own}"
        else:
            types[argument] = "i32"
    places = {(made.arg_names.index(key),): value for key, value in fixed.items()}
    source = ASTSource(fn=made, signature=types, constexprs=places)
    found = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert found.metadata.shared <= 227 * 1024  # bytes that a block of an H200 may hold
    assert ".entry" in found.asm["ptx"]


SOME = {name: make(16, 20, 3, 2) for name, make in PATTERNS.items()} | {"causal": Causal()}


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("causal", [False, True])
def test_lists_and_tiles_say_what_the_mask_says(name, causal, monkeypatch):
    """Every pair of places that may look, once, by query and by key; long lists in pieces."""
    monkeypatch.setattr(kernel, "PIECE", 4)
    kernel.work_of.cache_clear()
    layout = laid_out(SOME[name], 16, 160, 2, causal)
    work = kernel.work_of(layout.pattern, layout.size, torch.device("cpu"))
    kernel.work_of.cache_clear()
    wanted = layout.mask()[0].expand(2, -1, -1)
    for lists, turned in ((work.by_query, False), (work.by_key, True)):
        found = torch.zeros(2, 160, 160, dtype=torch.int64)
        for head in range(2):
            own = head if len(lists.first) > 1 else 0
            for item, row in enumerate(lists.row.tolist()):
                for at in range(int(lists.first[own, item]), int(lists.last[own, item])):
                    query, key = row, int(lists.other[own, at])
                    if turned:
                        query, key = key, query
                    tile = int(lists.tile[own, at])
                    there = torch.ones(16, 16) if tile < 0 else work.tiles[tile]
                    found[head, query * 16 : query * 16 + 16, key * 16 : key * 16 + 16] += (
                        there.long()
                    )
        assert torch.equal(found, wanted.long())
        slots = lists.slot[lists.slot >= 0]
        assert slots.tolist() == list(range(len(lists.split) * lists.pieces))
        assert torch.equal(lists.row[lists.slot >= 0].unique(), lists.split.int())
        assert (lists.last - lists.first).max() <= max(4, 2 * 10)
