"""Statistics of operators while load factors move every epoch, and their reports to the console."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from agent.wire import COUNTERS, SUM_NAMES, FrameKind, table_of
from engine.dataflow.pipeline import Pipeline
from engine.jarvis.group_law import distinct
from spark_jobs.statistics.history import HALF_LIFE_S, OPERATORS, OperatorHistory, StatisticsState, add_epochs
from spark_jobs.statistics.refinement import RefinementReport, differs, refined_rows
from spark_jobs.statistics.subintervals import CounterFrame, epoch_rows
from spark_jobs.statistics.updates import RESEND_MS
from tests.spark.live.agents import SECOND, START_US, SmallAgent
from tests.spark.live.world import World

QUERY, PLAN, FLOW = "here/q", "p1", ("here/q", "p1")
NAMES, COSTS = ["window", "good", "pairs"], [1e-6, 4e-6, 20e-6]
GROUP_COST_S, KEYS, RELAY, WINDOW_S = 50e-6, 300.0, 0.5, 10
BYTES = [86, 94, 94, 40]  # before the first operator and after each
ROW: dict[str, Any] = {column.name: "x" if column.type == pa.string() else 0 for column in COUNTERS} | {
    "query": QUERY,
    "plan": PLAN,
}

Factors = Callable[[int], Sequence[float]]


def moving(seed: int = 1, least: float = 0.02) -> Factors:
    """Load factors that are others in every epoch."""
    draw = random.Random(seed)
    return lambda _: [draw.uniform(least, 1.0) for _ in NAMES]


def chain(epochs: int, factors: Factors, *, first: int = 0, n: int = 4000, noise: float = 0.0, **more: Any) -> pa.Table:
    """Counters of a chain of window, filter and aggregate, by the laws that are to be found."""
    draw, rows, in_window = random.Random(9), [], 0.0
    for epoch in range(first, first + epochs):
        waiting = n
        for k, share in enumerate(factors(epoch)):
            worked = round(waiting * share)
            cost = COSTS[k] * worked * (1 + noise * draw.uniform(-1, 1))
            told = {"operator": NAMES[k], "entry": k, "epoch_us": START_US + epoch * SECOND, "records_in": waiting}
            told |= {"records_processed": worked, "records_drained": waiting - worked, "load_factor": share}
            told |= {"bytes_in": waiting * BYTES[k], "granted_cpu_ns": 30_000_000}
            out = worked if k == 0 else round(worked * RELAY)
            if k == 2:
                groups = round(distinct(worked, KEYS))
                cost += GROUP_COST_S * groups
                in_window += worked
                out = round(distinct(in_window, KEYS)) if (epoch + 1) % WINDOW_S == 0 else 0
                in_window = 0.0 if out else in_window
                told |= {"groups_out": groups}
            told |= {"records_out": out, "bytes_out": out * BYTES[k + 1], "cpu_ns": round(cost * 1e9)}
            rows.append(ROW | told | more)
            waiting = out
    return pa.Table.from_pylist(rows, schema=COUNTERS)


def told_by(agent: str, table: pa.Table, step: int = 1) -> pa.Table:
    return epoch_rows([CounterFrame(table, agent)], {}, step)


def at_ms(epoch: int) -> int:
    return (START_US + (epoch + 1) * SECOND) // 1000


def learned(*parts: pa.Table, last: int = 119, before: OperatorHistory | None = None) -> OperatorHistory:
    return add_epochs(before or OperatorHistory(), pa.concat_tables(parts), {PLAN: 2}.get, at_ms(last), 1)


def rows_of(found: OperatorHistory, agent: str = "a1") -> dict[str, dict[str, Any]]:
    return {row["operator"]: row for row in refined_rows(found)[FLOW] if row["agent"] == agent}


def test_laws_are_found_again_while_load_factors_move_every_epoch() -> None:
    rows = rows_of(learned(told_by("a1", chain(120, moving()))))
    for name, cost_s in zip(NAMES[:2], COSTS, strict=False):
        assert rows[name]["cost_s"] == pytest.approx(cost_s, rel=1e-3)
        assert rows[name]["group_cost_s"] is None
    assert rows["good"]["relay"] == pytest.approx(RELAY, rel=0.01)
    pairs = rows["pairs"]
    assert pairs["cost_s"] == pytest.approx(COSTS[2], rel=0.01)
    assert pairs["group_cost_s"] == pytest.approx(GROUP_COST_S, rel=0.01)
    assert pairs["groups"] == pytest.approx(KEYS, rel=0.01)
    assert pairs["standard_error"] < 0.01
    assert [rows["window"]["bytes_in"], *(rows[name]["bytes_out"] for name in NAMES)] == pytest.approx(BYTES)
    assert rows["window"]["input_records"] == pytest.approx(4000)
    assert rows["window"]["budget_s"] == pytest.approx(0.03) == rows["window"]["budget_least_s"]
    assert rows["window"]["records_least"] < 400 and rows["window"]["records_most"] > 3500


def test_the_plan_is_that_of_all_the_input_whatever_part_of_it_was_seen() -> None:
    """Few records make more groups each: cost and relay as they were seen would be several times too dear."""
    rows = rows_of(learned(told_by("a1", chain(120, lambda _: [1.0, 1.0, 0.1]))))
    seen, whole = rows["pairs"], 2000.0
    in_window = distinct(whole * WINDOW_S, KEYS) / (whole * WINDOW_S)
    cost_s = COSTS[2] + GROUP_COST_S * distinct(whole, KEYS) / whole
    spare_s = 0.95 * 0.03 - 4000 * (COSTS[0] + COSTS[1])
    assert seen["relay"] == pytest.approx(10 * in_window, rel=0.1)
    assert (seen["lo"], seen["hi"]) == (2, 3)
    assert seen["group_cost_s"] is None, "records and groups kept their proportion"
    assert seen["load_factor"] == seen["theta"] == pytest.approx(spare_s / (whole * cost_s), rel=0.1)
    assert rows["window"]["load_factor"] == rows["good"]["load_factor"] == 1.0


def test_windows_count_whole() -> None:
    """Output comes in bursts: a stretch that ends just before, or just behind one, must not change the ratio."""
    exact = distinct(2000 * WINDOW_S, KEYS) / (2000 * WINDOW_S)
    for epochs in (39, 40, 41, 45):
        found = learned(told_by("a1", chain(epochs, lambda _: [1.0] * 3)), last=epochs - 1)
        assert rows_of(found)["pairs"]["relay"] == pytest.approx(exact, rel=0.01)
    cut = [told_by("a1", chain(5, lambda _: [1.0] * 3, first=5 * i)) for i in range(2)]
    assert rows_of(learned(*cut, last=9))["pairs"]["relay"] is None, "the first closing may end what another began"


def test_the_order_in_which_epochs_come_does_not_matter() -> None:
    parts = [told_by(agent, chain(40, moving(i), first=40 * i)) for agent in ("a1", "a2") for i in range(3)]
    once = rows_of(learned(*parts))
    later = OperatorHistory()
    for i, last in ((0, 39), (1, 79), (2, 119)):
        later = learned(parts[i], parts[3 + i], last=last, before=later)
    backlog = learned(*parts[:3], before=learned(*parts[3:], last=100))
    for other in (rows_of(later), rows_of(backlog)):
        for name in ("window", "good"):
            assert {key: other[name][key] for key in ("cost_s", "relay", "epochs", "records")} == pytest.approx(
                {key: once[name][key] for key in ("cost_s", "relay", "epochs", "records")}, rel=1e-6
            )


def test_older_epochs_count_less_and_are_dropped_in_the_end() -> None:
    old, new = told_by("a1", chain(60, moving())), told_by("a1", chain(60, moving(), first=600))
    slow = new.set_column(new.schema.get_field_index("cpu_ns"), "cpu_ns", pa.compute.multiply(new["cpu_ns"], 2))
    found = learned(slow, last=659, before=learned(old, last=59))
    weight = 2 ** (-600 / HALF_LIFE_S)
    wanted = COSTS[1] * (weight + 2) / (weight + 1)
    assert rows_of(found)["good"]["cost_s"] == pytest.approx(wanted, rel=0.02)
    much_later = learned(told_by("a2", chain(1, moving(), first=9000)), last=9000, before=found)
    assert {row["place"] for row in much_later.operators.to_pylist()} == {"a2"}
    assert much_later.cycles.num_rows == 1


def test_epochs_with_few_records_do_not_count_for_costs() -> None:
    few = chain(60, lambda epoch: [1.0, 1.0, 1.0] if epoch % 2 else [0.0, 0.0, 0.0], noise=0.0)
    tiny = chain(60, lambda _: [1.0] * 3, first=60, n=20, noise=0.9)
    rows = rows_of(learned(told_by("a1", pa.concat_tables([few, tiny]))))
    assert rows["good"]["cost_s"] == pytest.approx(COSTS[1], rel=1e-6)
    assert rows["good"]["records"] == pytest.approx(30 * 4000 * 2 ** (-90 / HALF_LIFE_S), rel=0.1)
    assert rows["window"]["input_records"] < 4000, "what came in counts all the same"


def test_an_operator_that_never_worked_has_no_figures_and_its_chain_no_plan() -> None:
    rows = rows_of(learned(told_by("a1", chain(60, lambda _: [1.0, 1.0, 0.0])), last=59))
    assert rows["good"]["cost_s"] == pytest.approx(COSTS[1], rel=1e-3)
    assert {rows["pairs"].get(name) for name in ("cost_s", "relay", "groups", "lo", "load_factor")} == {None}
    assert rows["good"].get("theta") is None


def test_versions_and_plans_never_mix() -> None:
    old = chain(60, moving(), config_version=1)
    new = chain(20, moving(), first=60, config_version=2, granted_cpu_ns=90_000_000)
    twice = new.set_column(new.schema.get_field_index("cpu_ns"), "cpu_ns", pa.compute.multiply(new["cpu_ns"], 2))
    other = chain(60, moving(), n=40, plan="p2")
    found = learned(*(told_by("a1", row) for row in (old, twice, other)), last=79)
    rows = rows_of(found)
    assert rows["good"]["config_version"] == 1
    assert rows["good"]["cost_s"] == pytest.approx(COSTS[1], rel=1e-3)
    assert rows["good"]["budget_s"] == pytest.approx(0.09), "plans are made for the budget that there is"
    assert {round(row["input_records"], 6) for row in refined_rows(found)[QUERY, "p2"]} == {40}


def test_agent_with_a_clock_years_behind_is_measured_like_others() -> None:
    parts = [told_by("a1", chain(40, moving(), first=40 * i)) for i in range(3)]
    right, found = learned(*parts), OperatorHistory()
    for part in parts:
        found = add_epochs(found, part, {PLAN: 2}.get, at_ms(10**8), 1)
    figures = ("cost_s", "group_cost_s", "groups", "relay", "epochs", "input_records", "budget_s", "theta")
    one, other = rows_of(found)["pairs"], rows_of(right)["pairs"]
    assert [one[name] for name in figures] == pytest.approx([other[name] for name in figures], rel=1e-6)


def test_epoch_of_a_clock_that_is_ahead_counts_as_now() -> None:
    right = rows_of(learned(told_by("a1", chain(1, moving(), first=119, n=9000)), last=119))
    ahead = chain(1, moving(), first=10_000_000, n=9000)
    found = rows_of(learned(told_by("a1", ahead), last=119))
    assert found["good"]["records"] == pytest.approx(right["good"]["records"], rel=0.01)


# -- telling


class Console:
    """The console's side of `RefinementReport`, batch by batch."""

    def __init__(self) -> None:
        self.refining, self.state = RefinementReport(10_000, {PLAN: 2}.get), StatisticsState()

    def step(
        self, last: int, *tables: pa.Table, live: Sequence[tuple[str, str]] = (FLOW,)
    ) -> Iterator[list[dict[str, Any]]]:
        self.state = replace(self.state, step=self.state.step + 1, now_ms=at_ms(last))
        for update in self.refining.updates(self.state, pa.concat_tables(tables), live):
            assert (update.kind, update.query, update.plan) == (FrameKind.REFINED, *FLOW)
            yield table_of(update.body).to_pylist()


def steady(first: int, epochs: int = 10, n: int = 4000) -> pa.Table:
    return told_by("a1", chain(epochs, lambda _: [1.0, 1.0, 0.5], first=first, n=n))


def test_report_is_sent_on_change_and_repeated_periodically() -> None:
    console = Console()
    (first,) = console.step(39, steady(0, 40))
    assert [row["operator"] for row in first] == NAMES
    assert list(console.step(44, steady(40, 5))) == [], "it is not time"
    assert list(console.step(54, steady(45))) == [], "nothing has changed"
    assert len(list(console.step(64, steady(55), told_by("a2", chain(10, moving(), first=55))))) == 1
    (third,) = console.step(74, steady(65), told_by("a2", chain(10, moving(), first=65)))
    assert {row["agent"] for row in third} == {"a1", "a2"}
    (more,) = console.step(84, steady(75, n=8000))
    assert more[0]["input_records"] > 1.05 * first[0]["input_records"]


def test_unchanged_report_is_repeated_after_five_minutes() -> None:
    console = Console()
    every_s = RESEND_MS // 1000
    told = [last for last in range(39, 800, 10) if list(console.step(last, steady(last - 9 if last > 39 else 0, 40)))]
    gaps = [later - earlier for earlier, later in pairwise(told)]
    assert gaps[-1] == every_s and all(gap <= every_s for gap in gaps)


def test_no_report_for_plans_that_are_not_live() -> None:
    console = Console()
    assert list(console.step(39, steady(0, 40), live=())) == []
    assert console.state.learned.sent.num_rows == 0
    assert len(list(console.step(49, steady(40)))) == 1


@pytest.mark.parametrize(
    ("change", "is_news"),
    [
        ({}, False),
        ({"relay": 0.52}, False),
        ({"relay": 0.53}, True),
        ({"groups": None}, True),
        ({"load_factor": 0.54}, False),
        ({"load_factor": 0.56}, True),
        ({"load_factor": None}, True),
        ({"agent": "a2"}, True),
        ({"records": 99, "epochs": 9.0, "standard_error": 0.5, "measured_us": 9}, False),
    ],
)
def test_report_differs_when_a_figure_moved(change: dict[str, Any], is_news: bool) -> None:
    figures = ("cost_s", "group_cost_s", "groups", "relay", "bytes_in", "bytes_out", "input_records", "budget_s")
    row = dict.fromkeys(figures, 0.5) | {"agent": "a1", "operator": "x", "load_factor": 0.5}
    assert differs([row | change], [row]) == is_news


def test_sweep_report_is_posted_with_its_step_for_live_plans(world: World, pairs: Pipeline) -> None:
    world.console.add(QUERY, pairs, ["a0"])
    agent, draw, rows = SmallAgent("a0", QUERY, pairs), random.Random(4), []
    names = [
        (operator.id, operator.fingerprint, operator.index) for operator in pairs.operators[: pairs.source_operators]
    ]
    for epoch in range(40):
        for name, fingerprint, entry in names:
            worked = round(1000 * draw.random())
            counts = {"records_in": 1000, "records_processed": worked, "records_drained": 1000 - worked}
            out = (40 if epoch % 5 == 4 else 0) if entry == pairs.aggregate else worked
            counts |= {"records_out": out, "bytes_out": 10 * out, "bytes_in": 10_000, "cpu_ns": 1000 * worked}
            told = {"operator": name, "fingerprint": fingerprint, "entry": entry, "granted_cpu_ns": 10**9}
            rows.append(ROW | told | counts | {"plan": pairs.digest, "epoch_us": START_US + epoch * SECOND})
    world.send([*agent.run(1), agent.counters(rows)])
    sink = world.process()
    (frame,) = world.console.refined
    assert (frame.query, frame.plan, frame.extra) == (QUERY, pairs.digest, {"batch": sink.facts.step})
    told = table_of(frame.body).to_pylist()
    assert [(row["agent"], row["operator"], row["fingerprint"], row["entry"]) for row in told] == [
        ("a0", *name) for name in names
    ]
    assert [row["cost_s"] for row in told] == pytest.approx([1e-6] * len(names), rel=1e-3)
    assert told[-1]["relay"] == pytest.approx(40 / 2500, rel=0.2)
    assert [row["load_factor"] for row in told] == [1.0] * len(names), "the budget is ample"


def test_decayed_sums_have_the_names_of_the_wire() -> None:
    kept = OPERATORS.names[OPERATORS.names.index("level") + 1 : OPERATORS.names.index("newest_us")]
    assert set(kept) - set(SUM_NAMES) == {"granted_s"}, "which is the query's"
