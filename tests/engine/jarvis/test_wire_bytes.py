"""Bytes on the wire: rows by their groups, overhead by frame and epoch, and the least of them."""

from __future__ import annotations

import random
from math import exp

import numpy as np
import pytest

from engine.errors import DocumentError
from engine.jarvis.baselines import SourcePipeline
from engine.jarvis.partition import command
from engine.jarvis.wire_bytes import Overhead, PartialRows, WireBytes, checkpoint_bytes

PROBLEM = {"relay": [0.5, 0.2], "cost": [1e-6, 4e-6], "sizes": [80, 80, 60], "budget": 0.0025, "n_records": 1000}


def answer(**more) -> dict:
    return command(PROBLEM | more)


def test_rows_of_an_aggregate_grow_with_its_groups():
    # 1000 us for the filter leave 1500 us: 0.75 of 500 records reach the aggregate
    result = answer(aggregate={"groups": 100, "bytes": 60})
    assert result["p"] == pytest.approx([1.0, 0.75])
    rows = 100 * (1 - exp(-3.75))
    assert result["sent"] == pytest.approx(
        {"drained": 125 * 80, "output": rows * 60, "overhead": 0.0, "checkpoints": 0.0}
    )
    assert result["objective"] == pytest.approx(10_000 + 5858.89, abs=0.01)
    # by 0.2 records out per record, rows of 375 records were thought to be 75
    assert answer()["objective"] == pytest.approx(10_000 + 75 * 60)


def test_groups_seen_among_records_hold_at_another_share():
    seen = 100 * (1 - exp(-5))
    result = answer(aggregate={"groups": seen, "seen_records": 500, "bytes": 60})
    assert result["sent"]["output"] == pytest.approx(100 * (1 - exp(-3.75)) * 60)


def test_rows_of_a_window_leave_once():
    result = answer(aggregate={"groups": 100, "bytes": 60, "window_epochs": 10})
    assert result["sent"]["output"] == pytest.approx(100 * (1 - exp(-37.5)) * 60 / 10)


def test_overhead_counts_frames_windows_and_checkpoints():
    aggregate = {"groups": 100, "bytes": 60, "window_epochs": 10}
    overhead = {"epoch_bytes": 1000, "frame_bytes": 100, "frame_records": 50, "window_bytes": 30}
    sent = answer(aggregate=aggregate, overhead=overhead)["sent"]
    rows = 100 * (1 - exp(-37.5))
    # of 125 drained records two frames and a half, the last of them half full; of 100 rows as many, once in a window
    assert sent["overhead"] == pytest.approx(1000 + 100 * (3.0 + (rows / 50 + 0.5) / 10) + 3)
    assert 0 < sent["checkpoints"] <= 0.1 * (10_300 + (rows * 60 + 250) / 10)
    none = answer(aggregate=aggregate, overhead=overhead | {"checkpoint_share": 0})["sent"]
    assert none == sent | {"checkpoints": 0.0}


def test_default_overhead_goes_by_operators():
    sent = answer(overhead={"frame_bytes": 0})["sent"]
    assert sent["overhead"] == Overhead().every_epoch(2) == 3130 + 2 * 388
    assert answer(overhead={"frame_bytes": 0, "epoch_bytes": 9})["sent"]["overhead"] == 9


def test_records_of_a_key_that_come_evenly_make_more_groups():
    aggregate = {"groups": 100, "bytes": 60, "records_per_key": 5}
    rows = 100 * (1 - (1 - 375 / 500) ** 5)
    assert answer(aggregate=aggregate)["sent"]["output"] == pytest.approx(rows * 60)
    assert rows > 100 * (1 - exp(-3.75))
    seen = 100 * (1 - (1 - 450 / 500) ** 5)
    again = answer(aggregate=aggregate | {"groups": seen, "seen_records": 450})
    assert again["sent"]["output"] == pytest.approx(rows * 60)


def test_parts_of_rows_are_counted_as_groups_are():
    aggregate = {"groups": 100, "bytes": 60, "parts": 1000, "part_bytes": 12}
    size = 100 * (1 - exp(-3.75)) * 60 + 1000 * (1 - exp(-0.375)) * 12
    assert answer(aggregate=aggregate)["sent"]["output"] == pytest.approx(size)


def test_overhead_alone_adds_to_the_plan_as_it_was():
    plain, result = answer(), answer(overhead={"frame_bytes": 0, "window_bytes": 7, "epoch_bytes": 10})
    assert result["objective"] == pytest.approx(plain["objective"] + 10)
    for name in ("e", "p", "cpu", "plans", "theta", "unique"):
        assert result[name] == plain[name], name
    assert result["shadow_price"] == pytest.approx(plain["shadow_price"])


def test_an_aggregate_that_saves_nothing_at_this_share_is_not_run():
    # a tenth of its input is 50 records, each its own group of 400 bytes
    result = answer(budget=0.0012, aggregate={"groups": 1000, "bytes": 400})
    assert (result["p"], result["plans"], result["shadow_price"]) == ([1.0, 0.0], [1, 1], 0.0)
    assert result["objective"] == 500 * 80


def test_no_share_of_the_input_is_better_than_the_plan():
    """Without frames and copies, which come in whole ones; with them, by no more than these."""
    draw = np.random.default_rng(3)
    for _ in range(60):
        operators = int(draw.integers(1, 5))
        relay, cost = draw.uniform(0.1, 1.5, operators), draw.lognormal(0, 1, operators)
        partials = PartialRows(
            float(draw.lognormal(5, 2)), float(draw.uniform(10, 200)), draw.choice([None, 5.0]),
            most=draw.choice([np.inf, 20_000.0]),
        )  # fmt: skip
        sizes = draw.uniform(10, 120, operators + 1)
        for overhead in (None, Overhead(10.0, 200.0, 100.0, 50.0, float(draw.uniform(0, 0.3)))):
            wire = WireBytes(relay, cost, sizes, 1000.0, partials, overhead)
            budget_s = draw.uniform(0, 1.2) * wire.cpu_s[-1]
            plan = wire.best(budget_s)
            assert plan.cpu_s <= budget_s * (1 + 1e-12)
            for shares in draw.dirichlet([0.4] * (operators + 1), 100):
                if shares @ wire.cpu_s <= budget_s:
                    sent = wire.sent(dict(enumerate(shares)))
                    whole = 0.0
                    if overhead is not None:
                        data = plan.sent.drained + plan.sent.output + plan.sent.overhead
                        whole = overhead.checkpoint_share * data + 200.0 * (operators + 1)
                    assert sent.total >= plan.sent.total * (1 - 1e-9) - whole


def test_more_budget_saves_by_the_shadow_price():
    aggregate = {"groups": 100, "bytes": 60}
    result, more = answer(aggregate=aggregate), answer(aggregate=aggregate, budget=0.0026)
    assert result["shadow_price"] == pytest.approx((result["objective"] - more["objective"]) / 1e-4, rel=0.02)
    assert answer(aggregate=aggregate, budget=1.0)["shadow_price"] == 0.0


def test_an_epoch_is_predicted_by_groups_also_where_it_overflows():
    pipeline = SourcePipeline([0.5, 0.2], [1e-6, 4e-6], [80, 80, 60], ["filter", "aggregate"], PartialRows(100, 60))
    assert pipeline.epoch([1.0, 0.75], 1.0, 1000).bytes_sent == pytest.approx(10_000 + 5858.89, abs=0.01)
    # half of the CPU time that it takes: half of the records overflow, 187.5 reach the aggregate
    over = pipeline.epoch([1.0, 0.75], 0.00125, 1000)
    assert over.bytes_sent == pytest.approx(40_000 + 5000 + 6000 * (1 - exp(-1.875)))
    assert pipeline.epoch([1.0, 0.75], 0.0, 1000).bytes_sent == 80_000


def test_every_fault_is_told_at_once():
    with pytest.raises(DocumentError) as refused:
        answer(
            sizes=None,
            aggregate={"groups": 50, "seen_records": 20, "bytes": -1, "window_epochs": 0.5, "rows": 1, "parts": 30},
            overhead={"checkpoint_share": 2, "frame_bytes": float("nan")},
        )
    faults = {fault.path: fault.message for fault in refused.value.faults}
    assert faults["aggregate.groups"] == "groups is 50; allowed: at most 20, as seen_records is"
    assert faults["aggregate"] == "aggregate is given without sizes; allowed: with sizes, as it counts bytes"
    assert faults.keys() == {
        "aggregate", "aggregate.groups", "aggregate.bytes", "aggregate.window_epochs", "aggregate.rows",
        "aggregate.parts", "aggregate.part_bytes", "overhead", "overhead.checkpoint_share", "overhead.frame_bytes",
    }  # fmt: skip
    assert faults["aggregate.part_bytes"] == "parts and part_bytes stand together, or neither does"
    with pytest.raises(DocumentError, match="records_per_key is 2; allowed: at least 4"):
        answer(aggregate={"groups": 5, "seen_records": 20, "bytes": 1, "records_per_key": 2})
    with pytest.raises(DocumentError, match="n_records"):
        answer(n_records=1e308, sizes=[80, 80, 60], aggregate={"groups": 5, "bytes": 1})


def replayed(open_bytes, window_epochs, drained_bytes, window_bytes, share, windows=400):
    """Epoch by epoch, as an agent does."""
    since = total = 0.0
    for epoch in range(windows * window_epochs):
        lasted = (epoch + 1) % window_epochs
        since += drained_bytes + (0.0 if lasted else window_bytes)
        if lasted and open_bytes(lasted) <= share * since:
            total, since = total + open_bytes(lasted), 0.0
    return total / (windows * window_epochs)


def test_checkpoints_are_those_of_an_agent_epoch_by_epoch():
    draw = random.Random(5)
    for _ in range(200):
        rows, keys = draw.lognormvariate(4, 2), draw.lognormvariate(6, 2)

        def open_bytes(lasted, rows=rows, keys=keys):
            return 1250 + 90 * keys * (1 - (1 + rows / keys / 8) ** (-8 * lasted))

        window_epochs, share = draw.randrange(2, 40), draw.choice([0.05, 0.1, 0.3])
        drained = draw.lognormvariate(8, 2)
        case = {"window_epochs": window_epochs, "drained_bytes": drained, "window_bytes": open_bytes(window_epochs)}
        data = drained + case["window_bytes"] / window_epochs
        ours, wanted = checkpoint_bytes(open_bytes, share=share, **case), replayed(open_bytes, share=share, **case)
        assert ours == pytest.approx(wanted, rel=0.05, abs=0.01 * data), case


def test_no_window_stays_open_where_each_epoch_ends_one():
    for epochs in (1, 1.0):
        assert checkpoint_bytes(lambda _: 1.0, window_epochs=epochs, drained_bytes=9e9, window_bytes=1, share=1) == 0
    assert checkpoint_bytes(lambda _: 1.0, window_epochs=5, drained_bytes=9e9, window_bytes=1, share=0) == 0


def test_a_window_of_years_is_gone_through_at_once():
    size = checkpoint_bytes(
        lambda e: min(1e6, 90.0 * e), window_epochs=1e12, drained_bytes=1e5, window_bytes=1, share=0.1
    )
    assert size == pytest.approx(1e4, rel=0.01)


def test_rows_of_no_bytes_make_no_copies_of_any():
    case = {"window_epochs": 60, "drained_bytes": 1e5, "window_bytes": 0.0, "share": 0.1}
    assert checkpoint_bytes(lambda _: 0.0, **case) == 0.0
