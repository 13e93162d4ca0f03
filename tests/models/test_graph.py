"""Graph models: numbering the nodes otherwise changes nothing."""

from dataclasses import replace

import pytest
import torch

from regard.batch import Batch, Graphs, GraphSizes, Label, Sizes, Tags
from regard.models.graph import GraphModel, GraphSettings
from tests.toys import random_graphs

LAYERS = [("gat", ()), ("neighbours", ()), ("all", ("distance", "paths")), ("both", ("distance",))]


def model(asked, layer, bias):
    torch.manual_seed(0)
    told = GraphSizes(4, 2, 0, 3, 2, 2)
    settings = GraphSettings(16, 2, 4, layer=layer, bias=list(bias), degree=True)
    made = GraphModel(Sizes(9, 0, False, 5, Graphs, asked, graph=told), settings).eval().double()
    with torch.no_grad():
        for weight in made.biases.parameters():  # which begin with zeros
            weight.normal_()
    return made


def graph():
    """One graph with everything that can be said of it."""
    dice = torch.Generator().manual_seed(0)
    read = random_graphs(1, 8).read
    return replace(
        read,
        numbers=torch.randn(1, 8, 2, generator=dice, dtype=torch.float64),
        places=torch.randn(1, 8, 3, generator=dice, dtype=torch.float64),
        paths=torch.randint(-1, 11, (1, 8, 8, 2), generator=dice),
    )


def permuted(read, order):
    """The same graph; its node i was node order[i], and its edges stand in another order."""
    back = torch.argsort(order)
    mixed = torch.randperm(read.edges.shape[1], generator=torch.Generator().manual_seed(2))
    there = read.edges >= 0
    edges = torch.where(there, back[read.edges.clamp_min(0)], read.edges)[:, mixed]
    moved = torch.argsort(mixed)
    paths = torch.where(read.paths >= 0, moved[read.paths.clamp_min(0)], read.paths)
    return replace(
        read, tags=read.tags[:, order], numbers=read.numbers[:, order],
        places=read.places[:, order], edges=edges, edge_tags=read.edge_tags[:, mixed],
        distances=read.distances[:, order][:, :, order], paths=paths[:, order][:, :, order],
    )  # fmt: skip


@pytest.mark.parametrize(("layer", "bias"), LAYERS)
def test_of_a_graph_the_answer_stays_and_of_nodes_it_moves_with_them(layer, bias):
    read, order = graph(), torch.tensor([3, 1, 7, 0, 2, 6, 4, 5])
    other = permuted(read, order)
    label = Label(torch.zeros(1, dtype=torch.long), torch.ones(1))
    whole = model(Label, layer, bias)
    torch.testing.assert_close(whole(Batch(other, label)), whole(Batch(read, label)))
    tags = Tags(torch.zeros(1, 8, dtype=torch.long), torch.ones(1, 8))
    each = model(Tags, layer, bias)
    first, second = each(Batch(read, tags)), each(Batch(other, tags))
    torch.testing.assert_close(second, first[:, order])
    assert not torch.allclose(second, first)


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"bias": ["colour"]}, "model.bias must be of distance, paths, but has colour"),
        ({"bias": ["distance"], "layer": "gat"}, "model.bias is added where all nodes look at all"),
        ({"bias": ["distance"], "layer": "all"}, "set graph.farthest and graph.longest too"),
    ],
)
def test_what_does_not_go_together_is_said(more, wanted):
    with pytest.raises(AssertionError, match=wanted):
        GraphModel(Sizes(9, 0, False, 5, Graphs, Label, graph=GraphSizes(4)), GraphSettings(**more))


def test_a_network_of_gat_layers_is_torch_geometrics():
    """Two layers as the paper has them for Cora: eight heads, then one that compares classes."""
    from torch_geometric.nn import GATConv

    torch.manual_seed(0)
    sizes = Sizes(12, 0, False, 3, Graphs, Tags, graph=GraphSizes())
    shape = {"layer": "gat", "score": "gat", "width": 16, "depth": 2, "heads": 4}
    ours = GraphModel(sizes, GraphModel.Settings(**shape)).double().eval()
    first, second = GATConv(11, 4, 4, bias=False).double(), GATConv(16, 3, 1).double()
    first.lin.weight.data = ours.embedding.tags.weight.data[1:].T.clone()
    for conv, block in ((first, ours.blocks[0]), (second, ours.blocks[1])):
        score = block.attention.attend.score
        conv.att_dst.data, conv.att_src.data = score.looking.data[None], score.looked_at.data[None]
    second.lin.weight.data, second.bias.data = ours.output.weight.data, ours.output.bias.data
    tags = torch.tensor([[1, 4, 0], [2, 0, 0], [3, 5, 11], [6, 7, 0], [9, 0, 0]])
    edges = torch.tensor([[0, 1], [1, 0], [1, 2], [2, 1], [3, 2], [2, 3], [4, 0], [0, 4]])
    read = Graphs(tags[None], torch.tensor([5]), edges[None])
    words = torch.nn.functional.one_hot(tags, 12).sum(1)[:, 1:].double()
    words = words / words.sum(1, keepdim=True)
    hidden = torch.nn.functional.elu(first(words, edges.T))
    wanted = second(hidden, edges.T)
    asked = Tags(torch.zeros(1, 5, dtype=torch.long), torch.ones(1, 5))
    torch.testing.assert_close(ours(Batch(read, asked))[0], wanted)
