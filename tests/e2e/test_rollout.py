"""Load factors adapt at the source; configurations travel by canaries and waves, and bad ones are taken back.

A real console with its schedules, three agents and, in the last part, Spark. What is counted are epochs and states, so
that a slow machine takes longer and says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rollout_world import AGENTS, CLUSTER, OPERATORS, QUERY, WINDOW_S, RolloutWorld

pytestmark = [pytest.mark.slow, pytest.mark.night]

ROLLOUT_S = 300.0  # canaries and a wave of ten epochs each, and what a stalling machine adds
FEW = 15  # epochs, of one second, within which load factors settle
WHOLE = [1.0] * OPERATORS
#: Ten epochs a stage; limits that a machine that stalls does not reach, and a mistake by far.
POLICY = {"canary_count": 1, "canary_epochs": 10, "wave_epochs": 10, "waves": [1.0], "automatic": False}
POLICY |= {"bytes_rel": 3.0, "overflow_pp": 50.0, "latency_abs_s": 60.0, "cpu_rel": 10.0}


@pytest.fixture
def world(tmp_path: Path, settings: Any) -> Iterator[RolloutWorld]:
    made = RolloutWorld(tmp_path)
    settings.REDIS_URL = made.installation.redis.url
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_configurations_reach_all_agents_or_stop_at_the_canary(world: RolloutWorld) -> None:
    world.api.patch(f"clusters/{CLUSTER}/rollout-policy", POLICY)
    agents_adapt_by_themselves(world)
    windows_are_swept(world)
    good = a_good_configuration_reaches_all(world)
    a_policy_is_switched_and_taken_back(world)
    a_bad_one_is_taken_back_from_the_canary(world, good)
    a_budget_is_followed(world)
    world.api.patch(f"clusters/{CLUSTER}/rollout-policy", {"automatic": True})
    world.start_stream_processor()  # Spark takes its time, while the console is away
    agents_go_on_without_the_console(world)
    what_spark_learns_reaches_all(world)
    what_spark_knows_of_watermarks_is_given(world)


def agents_adapt_by_themselves(world: RolloutWorld) -> None:
    """Each begins with nothing at the source, and soon runs what its budget allows: everything."""
    for name in AGENTS:
        world.wait(lambda name=name: world.part(name).get("load_factors") == WHOLE, f"load factors at {name}")
        rows = world.epochs(name)
        assert rows[0].load_factors == (0.0,) * OPERATORS
        assert _settles(rows, at=0) <= FEW, [row.load_factors for row in rows]
        assert world.part(name)["refined"] is None
    row = world.epochs(AGENTS[0])[0]
    assert row.records_in and row.bytes_sent == row.bytes_in


def a_good_configuration_reaches_all(world: RolloutWorld) -> int:
    """A person's: canary, then everybody, and all say that they have it."""
    number = world.configure({"margin": 0.9}, AGENTS[1], words="A wider margin")
    seen = _led_to(world, number, "done")
    assert seen == ["canary", "wave", "done"]
    rollout = world.rollout(number)
    assert {member["agent"]: (member["stage"], member["state"]) for member in rollout["members"]} == {
        name: (0 if name == AGENTS[1] else 1, "applied") for name in AGENTS
    }
    assert [_version(world, name) for name in AGENTS] == [number] * len(AGENTS)
    first = {name: next(row.epoch_us for row in world.epochs(name) if row.version == number) for name in AGENTS}
    canary = [row for row in world.epochs(AGENTS[1]) if row.version == number and row.epoch_us < min(
        first[name] for name in AGENTS if name != AGENTS[1])]  # fmt: skip
    assert len(canary) >= POLICY["canary_epochs"], "nobody else had it before the canary was watched"
    return number


def windows_are_swept(world: RolloutWorld) -> None:
    """The console hears when each window of each agent was out, under the policy that all begin with."""

    def told() -> bool:
        agents = world.api.get(f"clusters/{CLUSTER}/schedule?last_s=120")["agents"]
        return len(agents) == len(AGENTS) and all(agent["windows"] > 0 for agent in agents)

    world.wait(told, "swept windows of all agents")
    for agent in world.api.get(f"clusters/{CLUSTER}/schedule?last_s=120")["agents"]:
        assert (agent["policy"], agent["config"]) == ("klink", None)
        query = agent["queries"][0]
        assert (query["query"], query["period_s"]) == (QUERY, WINDOW_S)
        assert 0 < query["latency_mean_s"] <= query["latency_p99_s"]
    shown = world.api.get(f"agents/{world.agent(AGENTS[0])['id']}/schedule")["timeline"][0]
    assert any(spans for _, spans, _, _ in shown["epochs"])
    ends = [deadline for deadline, *_ in shown["sweeps"]]
    assert ends == sorted(set(ends))
    assert all(deadline % (WINDOW_S * 1_000_000) == 0 for deadline in ends)


def a_policy_is_switched_and_taken_back(world: RolloutWorld) -> None:
    """The canary alone schedules otherwise, then everybody, and says so; by hand all return to what they had."""
    asked = {"mode": "apply", "settings": {"policy": "round-robin"}, "canaries": [AGENTS[0]], "words": "Take turns"}
    made = world.api.post(f"clusters/{CLUSTER}/schedule", asked)
    assert made["made"], made
    number = int(made["config"].removeprefix("c-"))
    assert _led_to(world, number, "done") == ["canary", "wave", "done"]
    assert [world.policy(name) for name in AGENTS] == ["round-robin"] * len(AGENTS)
    had = {name: [row for row in world.epochs(name) if row.schedule_version == number] for name in AGENTS}
    others_us = min(had[name][0].epoch_us for name in AGENTS[1:])
    alone = [row for row in had[AGENTS[0]] if row.epoch_us < others_us]
    assert len(alone) >= POLICY["canary_epochs"], "nobody else had it before the canary was watched"
    assert any(row.sweeps for row in alone)
    world.api.post(f"clusters/{CLUSTER}/rollouts/{number}/roll-back")
    world.wait(lambda: {world.policy(name) for name in AGENTS} == {"klink"}, "the policy as it was before")
    world.wait(lambda: world.rollout(number)["state"] == "rolled-back", "the end of taking it back")


def a_bad_one_is_taken_back_from_the_canary(world: RolloutWorld, good: int) -> None:
    """Nothing at the source: the canary sends many times the bytes. Its guard says so, nobody else ever gets it."""
    number = world.configure({"method": "fixed", "load_factors": [0.0] * OPERATORS}, AGENTS[2], words="A mistake")
    seen = _led_to(world, number, "rolled-back")
    # taking it back may begin and end between two looks
    assert [state for state in seen if state != "rolling-back"] == ["canary", "rolled-back"]
    rollout = world.rollout(number)
    assert "bytes sent per record" in " ".join(rollout["reasons"])
    assert {member["agent"]: member["state"] for member in rollout["members"] if member["agent"] != AGENTS[2]} == {
        AGENTS[0]: "pending",
        AGENTS[1]: "pending",
    }
    versions = {name: {row.version for row in world.epochs(name)} for name in AGENTS}
    assert number in versions[AGENTS[2]]
    assert number not in versions[AGENTS[0]] | versions[AGENTS[1]]
    assert [_version(world, name) for name in AGENTS[:2]] == [good, good]
    assert _version(world, AGENTS[2]) == int(rollout["back"].removeprefix("c-")) > number
    world.wait(lambda: world.part(AGENTS[2])["load_factors"] == WHOLE, "the canary as it was before")


def a_budget_is_followed(world: RolloutWorld) -> None:
    """Load factors fall with the budget, rise with it, and settle within a few epochs, as by the slider."""
    agent = f"agents/{world.agent(AGENTS[0])['id']}"
    before = len(world.part(AGENTS[0])["changes"])
    for budget_cores, fits in ((0.01, lambda share: share < 0.9), (1.0, lambda share: share == 1.0)):
        since_us = world.epochs(AGENTS[0])[-1].epoch_us
        world.api.patch(agent, {"budget_cores": budget_cores})
        world.wait(lambda fits=fits: fits(_through(world.epochs(AGENTS[0])[-1])), f"a budget of {budget_cores} cores")
        world.wait(lambda: _quiet(world.epochs(AGENTS[0])), "load factors that stay")
        rows = [row for row in world.epochs(AGENTS[0]) if row.epoch_us > since_us]
        moved = next(i for i, row in enumerate(rows) if row.load_factors != rows[0].load_factors)
        assert _settles(rows, moved) <= FEW, [(row.load_factors, row.budget_s) for row in rows]
    assert len(world.part(AGENTS[0])["changes"]) > before


def agents_go_on_without_the_console(world: RolloutWorld) -> None:
    """Epochs of the time in which nobody asked are there afterwards, with the same configuration."""
    last = {name: world.epochs(name)[-1] for name in AGENTS}
    world.installation.end("web")
    world.pass_epochs(10)
    world.installation.serve_again()
    for name in AGENTS:
        since_us = last[name].epoch_us
        world.wait(
            lambda name=name, since_us=since_us: (
                len([row for row in world.epochs(name) if row.epoch_us > since_us]) >= 10
            ),
            f"epochs of {name}",
        )
        away = [row for row in world.epochs(name) if row.epoch_us > since_us][:10]
        assert all(row.records_in and row.version == last[name].version for row in away)
        assert sum(row.bytes_sent for row in away) < 0.5 * sum(row.bytes_in for row in away)


def what_spark_learns_reaches_all(world: RolloutWorld) -> None:
    """Spark's own configuration, made of what agents measured, goes out by itself."""
    world.wait(lambda: world.stream_processor() == "ready", "the stream processor", ROLLOUT_S)
    found: list[dict[str, Any]] = []

    def proposed() -> bool:
        found[:] = [
            config for config in world.api.get(f"clusters/{CLUSTER}/configs")["results"] if config["origin"] == "spark"
        ]
        return bool(found)

    world.wait(proposed, "a proposal of Spark's", ROLLOUT_S)
    assert _led_to(world, found[0]["number"], "done")[-1] == "done"
    for name in AGENTS:
        assert _version(world, name) == found[0]["number"]
    part = world.api.get(f"clusters/{CLUSTER}/configs/{found[0]['number']}")["parts"][0]["document"]
    assert len(part["operators"]) == OPERATORS
    assert all(operator["cost_s"] > 0 and operator["records"] > 0 for operator in part["operators"])


def what_spark_knows_of_watermarks_is_given(world: RolloutWorld) -> None:
    """Delays of sweeping watermarks, which Spark adds up, are in what agents are given from then on."""
    world.wait(world.knows_watermarks, "delays of watermarks from Spark", ROLLOUT_S)
    made = world.api.post(f"clusters/{CLUSTER}/configs", {"settings": {}, "learned": True, "words": "What is known"})
    parts = world.api.get(f"clusters/{CLUSTER}/configs/{made['number']}")["parts"]
    given = [watermark for part in parts for watermark in part["document"].get("watermarks", [])]
    assert {(watermark["stream"], watermark["period_s"]) for watermark in given} == {("numbers", WINDOW_S)}
    known = [watermark for watermark in given if watermark["mean_s"] is not None]
    assert known
    assert all(
        watermark["epochs"] >= 3 and watermark["mean_s"] >= 0 and watermark["variance_s2"] >= 0 for watermark in known
    )


def _led_to(world: RolloutWorld, number: int, end: str) -> list[str]:
    """The states of a rollout in order, until it has ended so."""
    seen: list[str] = []

    def ended() -> bool:
        state = world.rollout(number)["state"]
        if not seen or seen[-1] != state:
            seen.append(state)
            if state in ("canary", "wave"):
                world.pass_epochs(POLICY["canary_epochs"])  # a stage takes more: nothing to ask for meanwhile
        return state in ("done", "rolled-back", "stopped")

    world.wait(ended, f"the end of rollout {number}", ROLLOUT_S)
    assert seen[-1] == end, world.rollout(number)
    return seen


def _version(world: RolloutWorld, name: str) -> int | None:
    """Of the configuration that an agent says it goes by."""
    refined = world.part(name)["refined"]
    return refined["version"] if refined else None


def _through(row: Any) -> float:
    """Share of the records that every load factor lets in."""
    share = 1.0
    for factor in row.load_factors:
        share *= factor
    return share


def _quiet(rows: list[Any]) -> bool:
    """The last epochs all ran with the same load factors."""
    return len({row.load_factors for row in rows[-5:]}) == 1 and len(rows) >= 5


def _settles(rows: list[Any], at: int) -> int:
    """Epochs from `at` until the load factors that the last epoch has."""
    changed = [i for i, row in enumerate(rows) if row.load_factors != rows[-1].load_factors]
    return max(changed[-1] + 1 - at, 0) if changed else 0
