"""Fair shares: nobody gets more than it asks for, and nobody has more for its weight than one that goes short."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.jarvis.fairness import max_min

amounts = st.floats(0, 1000)
queries = st.lists(st.tuples(amounts | st.just(math.inf), st.floats(0.1, 10)), min_size=1, max_size=6)


@given(st.floats(0, 1000), queries)
def test_max_min_shares_are_fair_and_never_exceed_demands(total, asked):
    demands, weights = zip(*asked, strict=True)
    shares = max_min(total, demands, weights)
    assert sum(shares) == pytest.approx(min(total, sum(demands)), abs=1e-6)
    for share, demand, weight in zip(shares, demands, weights, strict=True):
        assert share <= demand
        if share < demand - 1e-6:  # nobody has more for its weight than one that goes short
            assert all(other / of <= share / weight + 1e-6 for other, of in zip(shares, weights, strict=True))
