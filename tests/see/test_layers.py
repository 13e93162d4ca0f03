"""Points of a layer: how alike neighbours are, and in how many directions all differ."""

import numpy as np
import pytest

from regard.see.layers import Layers


def test_directions_are_counted():
    """Four corners of a square differ in two directions equally, points on a line in one."""
    square = np.array([[1.0, 1, 0], [1, -1, 0], [-1, -1, 0], [-1, 1, 0]])
    line = np.array([[0.0, 0, 1], [0, 0, 2], [0, 0, 3], [0, 0, 4]])
    found = Layers(list("abcd"), np.stack([square, line]))
    assert found.directions() == pytest.approx([2.0, 1.0])


def test_neighbours_are_told_from_others():
    points = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    found = Layers(list("abcd"), points[None])
    assert found.neighbours() == pytest.approx([2 / 3])  # two pairs alike, one not
    assert found.others() == pytest.approx([0.0])
    pair = Layers(list("ab"), points[None, :2])
    assert np.isnan(pair.others()[0]) and pair.data()["layers"][0]["others"] is None
