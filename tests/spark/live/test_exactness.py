"""Results equal those of the query run whole, wherever and in whatever pieces it was run."""

from __future__ import annotations

import pytest

from engine.dataflow.pipeline import Pipeline
from tests.spark.live.world import SECOND, START_US, SmallAgent, World, expected


@pytest.mark.parametrize("at_hand_bytes", [0, 2**26], ids=["in Spark", "in the driver"])
def test_results_do_not_depend_on_load_factors(
    world: World, pairs: Pipeline, sliding: Pipeline, at_hand_bytes: int
) -> None:
    world.at_hand_bytes = at_hand_bytes
    agents = [SmallAgent(f"a{i}", "here/pairs", pairs) for i in range(3)]
    others = [SmallAgent(f"b{i}", "here/sliding", sliding) for i in range(2)]
    world.console.add("here/pairs", pairs, [one.name for one in agents])
    world.console.add("here/sliding", sliding, [one.name for one in others])
    world.send(*(one.run(7) for one in [*agents, *others]))
    world.drain()
    world.send(*(one.run(9) for one in [*agents, *others]))
    world.drain(max_entries=60)
    until = START_US + 16 * SECOND
    assert world.console.rows("here/pairs") == expected(pairs, agents, until) != []
    assert world.console.rows("here/sliding") == expected(sliding, others, until) != []
    assert world.quarantined() == []
