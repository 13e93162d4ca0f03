"""Attention in graphs against torch_geometric's, and along edges against the same with a mask."""

import pytest
import torch
from torch_geometric.nn import GATConv, GATv2Conv, GPSConv, TransformerConv

from regard.models.graph import BothBlock
from regard.parts.attention import Attention
from regard.parts.feedforward import FEEDFORWARDS
from regard.parts.graph import (
    EDGE_SCORES,
    DistanceBias,
    EdgeAttention,
    Edges,
    PathBias,
    Structure,
    edges_of,
    with_loops,
)
from regard.parts.norm import PostNorm
from regard.parts.watch import watch

WIDTH, HEADS, NODES = 12, 3, 7
PAIRS = torch.tensor([[0, 1], [1, 0], [2, 3], [3, 2], [3, 4], [4, 3], [5, 0], [1, 5], [6, 6]])


def vectors(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ours(score, edge_width=0, **more):
    torch.manual_seed(0)
    made = EDGE_SCORES[score](WIDTH // HEADS, HEADS)
    return EdgeAttention(WIDTH, HEADS, made, edge_width, output=False, **more).double()


def copy(linear, theirs):
    with torch.no_grad():
        linear.weight.copy_(theirs.weight)
        linear.bias.copy_(theirs.bias if theirs.bias is not None else torch.zeros(WIDTH))


def same(mine, theirs, x, edges, pairs, told=None):
    """Results and gradients of the nodes, along edges of which each goes from, to."""
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, wanted = mine(one[None], edges)[0], theirs(two, pairs.T, told)
    torch.testing.assert_close(found, wanted)
    found.sin().sum().backward()
    wanted.sin().sum().backward()
    torch.testing.assert_close(one.grad, two.grad)


@pytest.mark.parametrize("told", [False, True])
def test_gat_is_torch_geometrics(told):
    theirs = GATConv(WIDTH, WIDTH // HEADS, HEADS, edge_dim=5 if told else None, fill_value=0.0)
    theirs, mine = theirs.double(), ours("gat", 5 if told else 0)
    copy(mine.value, theirs.lin)
    with torch.no_grad():
        theirs.bias.zero_()
        mine.attend.score.looked_at.copy_(theirs.att_src[0])
        mine.attend.score.looking.copy_(theirs.att_dst[0])
        if told:
            mine.attend.score.between.copy_(theirs.att_edge[0])
            mine.edge.weight.copy_(theirs.lin_edge.weight)
    pairs = PAIRS[:-1]  # theirs drops loops of its own before it adds one for each
    said = vectors(1, len(pairs), 5) if told else None
    edges = with_loops(edges_of(pairs[None], NODES, None if said is None else said[None]), NODES)
    same(mine, theirs, vectors(0, NODES, WIDTH), edges, pairs, said)


@pytest.mark.parametrize("told", [False, True])
def test_gatv2_is_torch_geometrics(told):
    theirs = GATv2Conv(
        WIDTH, WIDTH // HEADS, HEADS, edge_dim=5 if told else None, add_self_loops=False
    ).double()
    mine = ours("gatv2", 5 if told else 0)
    copy(mine.value, theirs.lin_l)
    copy(mine.query, theirs.lin_r)
    with torch.no_grad():
        theirs.bias.zero_()
        mine.attend.score.weight.copy_(theirs.att[0])
        if told:
            mine.edge.weight.copy_(theirs.lin_edge.weight)
    said = vectors(1, len(PAIRS), 5) if told else None
    edges = edges_of(PAIRS[None], NODES, None if said is None else said[None])
    same(mine, theirs, vectors(0, NODES, WIDTH), edges, PAIRS, said)


@pytest.mark.parametrize("told", [False, True])
def test_dot_is_torch_geometrics_transformer(told):
    theirs = TransformerConv(
        WIDTH, WIDTH // HEADS, HEADS, edge_dim=5 if told else None, root_weight=False
    ).double()
    mine = ours("scaled-dot", 5 if told else 0)
    for own, other in ((mine.query, "query"), (mine.key, "key"), (mine.value, "value")):
        copy(own, getattr(theirs, f"lin_{other}"))
    if told:
        with torch.no_grad():
            mine.edge.weight.copy_(theirs.lin_edge.weight)
    said = vectors(1, len(PAIRS), 5) if told else None
    edges = edges_of(PAIRS[None], NODES, None if said is None else said[None])
    same(mine, theirs, vectors(0, NODES, WIDTH), edges, PAIRS, said)


def test_both_side_by_side_is_torch_geometrics_gps():
    conv = TransformerConv(WIDTH, WIDTH // HEADS, HEADS, root_weight=False)
    theirs = GPSConv(WIDTH, conv, HEADS, norm="layer_norm", norm_kwargs={"mode": "node"}).double()
    torch.manual_seed(0)
    score = EDGE_SCORES["scaled-dot"](WIDTH // HEADS, HEADS)
    local = EdgeAttention(WIDTH, HEADS, score, output=False)
    mine = BothBlock(
        Attention(WIDTH, HEADS), FEEDFORWARDS["relu"](WIDTH, 2 * WIDTH),
        lambda: PostNorm(torch.nn.LayerNorm(WIDTH), 0.0), local,
    ).double()  # fmt: skip
    for own, other in ((local.query, "query"), (local.key, "key"), (local.value, "value")):
        copy(own, getattr(theirs.conv, f"lin_{other}"))
    with torch.no_grad():
        for own, a, b in ((mine.attention.query, 0, WIDTH), (mine.attention.memory, WIDTH, None)):
            own.weight.copy_(theirs.attn.in_proj_weight[a:b])
            own.bias.copy_(theirs.attn.in_proj_bias[a:b])
        mine.attention.output.load_state_dict(theirs.attn.out_proj.state_dict())
        widen, narrow = (p for p in mine.feedforward.modules() if isinstance(p, torch.nn.Linear))
        widen.load_state_dict(theirs.mlp[0].state_dict())
        narrow.load_state_dict(theirs.mlp[3].state_dict())
    same(mine, theirs, vectors(0, NODES, WIDTH), edges_of(PAIRS[None], NODES), PAIRS)


@pytest.mark.parametrize("score", EDGE_SCORES)
def test_along_edges_is_the_same_as_with_a_mask(score):
    """Written out between all nodes, where only neighbours may be seen."""
    mine, x = ours(score), vectors(0, 2, NODES, WIDTH)
    pairs = torch.stack((PAIRS, PAIRS.flip(1)))
    pairs[1, 5:] = -1  # padding
    found = mine(x, edges_of(pairs, NODES))
    v = mine._split(mine.value(x))  # (B, N, H, K)
    k = v if mine.key is None else mine._split(mine.key(x))
    q = k if mine.query is None else mine._split(mine.query(x))
    sides = (q[:, :, None].expand(-1, -1, NODES, -1, -1), k[:, None].expand(-1, NODES, -1, -1, -1))
    scores = mine.attend.score(*sides, None)  # (B, N, N, H)
    allowed = torch.zeros(2, NODES, NODES, dtype=torch.bool)
    for row in range(2):
        for source, target in pairs[row][pairs[row, :, 0] >= 0].tolist():
            allowed[row, target, source] = True
    weights = scores.masked_fill(~allowed[..., None], float("-inf")).softmax(2).nan_to_num(0.0)
    wanted = torch.einsum("btsh,bshk->bthk", weights, v).flatten(2)
    torch.testing.assert_close(found, wanted)


def test_what_is_watched_is_who_looks_at_whom():
    mine, x = ours("scaled-dot"), vectors(0, 1, NODES, WIDTH)
    edges = with_loops(edges_of(PAIRS[None], NODES), NODES)
    with watch(mine) as seen:
        mine(x, edges)
    (weights,) = next(iter(seen.values()))
    assert weights.shape == (1, HEADS, NODES, NODES)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, HEADS, NODES, dtype=torch.float32),
                               check_dtype=False)  # fmt: skip
    assert weights[0, :, 1, 0].min() > 0 and weights[0, :, 2, 0].max() == 0


def test_nothing_of_all_pairs_is_made():
    """A hundred thousand nodes with a few edges: all pairs would be forty gigabytes."""
    count = 100_000
    mine = EdgeAttention(8, 2, EDGE_SCORES["gat"](4, 2))
    around = torch.arange(count)
    out = mine(torch.randn(1, count, 8), Edges(around, (around + 1) % count))
    assert out.shape == (1, count, 8)


def test_distances_and_ways_as_biases():
    distances = torch.tensor([[[0, 1, 2], [1, 0, 5], [-1, 3, 0]]])
    bias = DistanceBias(2, 3, 0, 4)
    with torch.no_grad():
        bias.table.weight.copy_(torch.arange(12.0).view(6, 2))
    found = bias(Structure(distances, None, None))
    assert found.shape == (1, 2, 3, 3)
    assert found[0, 0].tolist() == [[0, 2, 4], [2, 0, 8], [10, 6, 0]]  # 5 is "further", -1 no way
    paths = torch.tensor([[[[-1, -1], [0, -1]], [[0, 1], [-1, -1]]]])
    edges, way = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), PathBias(1, 3, 2, 2)
    with torch.no_grad():
        way.weight.weight.copy_(torch.tensor([[1.0, 2.0], [10.0, 20.0]]))  # of hop one, of hop two
    found = way(Structure(None, paths, edges))
    assert found[0, 0].tolist() == [[0.0, 1.0], [(1 + 20) / 2, 0.0]]
