"""Numbers of rows: the same whoever draws them, even, and apart from one another."""

import numpy as np

from regard.data.draws import Draws


def test_a_row_draws_the_same_whatever_stands_beside_it():
    whole = Draws(3, 7, range(10))
    for rows in ([4], [9, 4, 0], range(10)[1::3]):
        some = Draws(3, 7, rows)
        np.testing.assert_array_equal(some.uniform(5), whole.uniform(5)[list(rows)])
        assert [d.integers(10**9) for d in some] == [whole[r].integers(10**9) for r in rows]
    np.testing.assert_array_equal(whole[2:5].uniform(3), whole.uniform(3)[2:5])
    np.testing.assert_array_equal(whole.uniform(3), whole.uniform(8)[:, :3])


def test_seed_step_row_and_place_all_count():
    numbers = [Draws(s, t, range(20)).uniform(20) for s in range(3) for t in range(3)]
    every = np.stack(numbers).ravel()
    assert len(set(every.tolist())) == every.size


def test_they_are_even_and_know_nothing_of_each_other():
    drawn = Draws(0, 1, range(2000)).uniform(50)
    assert drawn.min() >= 0 and drawn.max() < 1
    counts, _ = np.histogram(drawn, 20, (0, 1))
    assert np.abs(counts / drawn.size * 20 - 1).max() < 0.05
    for one, two in ((drawn[:-1], drawn[1:]), (drawn[:, :-1], drawn[:, 1:])):
        assert abs(np.corrcoef(one.ravel(), two.ravel())[0, 1]) < 0.015
