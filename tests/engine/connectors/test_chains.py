"""Chains of a plan in the words of every version: windows, early results, bundles, and what nobody understands."""

from __future__ import annotations

from typing import Any

import pytest

from engine.connectors.chains import Chain, read_chain
from engine.connectors.flink import read_flink
from tests.engine.connectors.flink_answers import NOW_MS, cluster, vertex


def chain(name: str, description: str = "", *, is_source: bool = False) -> Chain:
    return read_chain(name, description, has_inputs=not is_source, has_readers=True)


def window_of(name: str, description: str = "") -> Any:
    window = chain(name, description).window
    assert window is not None
    return window.to_document(1.0)


TUMBLING = {"policy": "time", "type": "tumbling"}
SLICED = TUMBLING | {"work_at": "close"}
SESSION = {"policy": "time", "type": "session", "size": 10.0}
FIVE_MINUTES = "TUMBLE(win_start=[window_start], win_end=[window_end], size=[5 min])"
DAY = "window=[TumblingGroupWindow('w$, ts, 86400000)]"


@pytest.mark.parametrize(
    ("description", "window"),
    [
        (
            f"[9]:WindowJoin(leftWindow=[{FIVE_MINUTES}], rightWindow=[{FIVE_MINUTES}], joinType=[FullOuterJoin])<br/>",
            SLICED | {"size": 300.0, "watermark_delay_s": 1.0},
        ),
        (
            f"[9]:WindowRank(window=[{FIVE_MINUTES}], rankType=[ROW_NUMBER], partitionBy=[])<br/>",
            SLICED | {"size": 300.0, "watermark_delay_s": 1.0},
        ),
        (
            "[9]:GlobalWindowAggregate(window=[CUMULATE(slice_end=[$e], max_size=[1 d], step=[1 h])], select=[k])",
            SLICED | {"size": 3600.0, "watermark_delay_s": 1.0},
        ),
        (
            f"[9]:GroupWindowAggregate(groupBy=[k], {DAY}, emit=[early delay 10000 millisecond])",
            TUMBLING | {"size": 10.0},
        ),
        (
            f"[9]:GroupWindowAggregate(groupBy=[k], {DAY}, emit=[early no delay, late no delay])",
            TUMBLING | {"size": 86400.0, "emit": "on_update"},
        ),
        (f"[9]:GroupWindowAggregate(groupBy=[k], {DAY}, emit=[late no delay])", TUMBLING | {"size": 86400.0}),
    ],
    ids=["join", "rank", "cumulate", "early", "early-each", "late"],
)
def test_windows_of_sql_hold_results_as_long_as_they_do(description: str, window: dict[str, Any]) -> None:
    name = description.partition(":")[2].partition("(")[0]
    assert window_of(f"{name}[9] -> Calc[10]", description) == window
    assert chain(f"{name}[9] -> Calc[10]", description).unread == ()


@pytest.mark.parametrize(
    ("name", "window"),
    [
        (
            "Window(TumblingEventTimeWindows(5000), EventTimeTrigger, Sum)",
            TUMBLING | {"size": 5.0, "watermark_delay_s": 1.0},
        ),
        (
            "TriggerWindow(TumblingProcessingTimeWindows(5000), StateDescriptor{a=b@1}, ProcessingTimeTrigger(), "
            "WindowedStream.reduce(WindowedStream.java:300)) -> Sink: Unnamed",
            TUMBLING | {"size": 5.0},
        ),
        (
            "TriggerWindow(TumblingEventTimeWindows(86400000), {a=b@1}, ContinuousEventTimeTrigger(2000), W(W.java:1))",
            TUMBLING | {"size": 2.0},
        ),
        (
            "GlobalWindowAggregate(groupBy=[a], window=[TUMBLE(slice_end=[$slice_end], size=[5 min])], select=[a])",
            SLICED | {"size": 300.0, "watermark_delay_s": 1.0},
        ),
    ],
)
def test_windows_in_names_of_old_versions_are_read(name: str, window: dict[str, Any]) -> None:
    assert window_of(name) == window


def test_bundles_of_a_mini_batch_wait_for_its_interval() -> None:
    description = (
        "[1]:TableSourceScan(table=[[a]])<br/>+- [2]:MiniBatchAssigner(interval=[2000ms], mode=[ProcTime])<br/>"
    )
    window = chain("Source: x[1] -> MiniBatchAssigner[2] -> LocalGroupAggregate[3]", description, is_source=True).window
    assert window is not None and window.to_document(None) == TUMBLING | {"size": 2.0}


@pytest.mark.parametrize(
    ("name", "description", "words"),
    [
        ("Ponder[4]", "[4]:Ponder(by=[k])", "Ponder: the operator is not known"),
        ("Match[4]", "[4]:Match(orderBy=[ts ASC], pattern=[(A B)])", "wait for the events that complete a pattern"),
        ("CepOperator", "", "complete a pattern"),
        ("async wait operator -> Map", "", "answers from outside"),
        ("IntervalJoin[4]", "[4]:IntervalJoin(joinType=[LeftOuterJoin], windowBounds=[isRowTime=true])", "partner"),
        ("LookupJoin[4]", "[4]:LookupJoin(table=[t], joinType=[InnerJoin], async=[UNORDERED])", "answers from outside"),
        ("WindowTableFunction[4]", "[4]:WindowTableFunction(window=[SESSION(time_col=[ts], gap=[5 s])])", "session"),
        ("EventTimeSessionWindows", "Window(EventTimeSessionWindows(10000), EventTimeTrigger, F)", "session"),
        ("TumblingEventTimeWindows", "", "nothing tells"),
        ("counts", "Window(TumblingEventTimeWindows(86400000), MyTrigger, Sum)", "MyTrigger"),
        ("Window(GlobalWindows(), DeltaTrigger, TimeEvictor, F) -> Sink: out", "", "nothing tells"),
        ("CountTumblingWindowAssigner", "Window(CountTumblingWindowAssigner(10), CountTrigger, f)", "each key"),
        ("GlobalWindowAggregate[4]", "", "not described"),
        ("keyed windowing", "keyed windowing", "speaks of a window"),
    ],
)
def test_part_of_a_plan_that_nobody_understands_is_named(name: str, description: str, words: str) -> None:
    unread = chain(name, description).unread
    assert unread and any(words in reason for reason in unread)


@pytest.mark.parametrize(
    "name",
    [
        "enrich",
        "Calc[3] -> parse",
        "Source: windows[1] -> Calc[2]",
        "Map -> Sink: window-counts",
        "Join[7] -> out[8]: Writer",
    ],
)
def test_names_that_people_gave_are_no_part_that_is_not_understood(name: str) -> None:
    assert chain(name).unread == ()


@pytest.mark.parametrize(
    ("name", "description", "is_outside"),
    [
        ("async wait operator -> score -> results: Writer", "", True),
        ("Async enrich", "", True),
        ("AsyncCorrelate[4]", "[4]:AsyncCorrelate(invocation=[f(a)])", True),
        ("MLPredictTableFunction[4]", "[4]:MLPredictTableFunction(table=[t])", True),
        ("LookupJoin[4]", "[4]:LookupJoin(table=[t], joinType=[InnerJoin], async=[UNORDERED])", True),
        ("LookupJoin[4]", "[4]:LookupJoin(table=[t], joinType=[InnerJoin], async=[false])", False),
        ("CepOperator -> results: Writer", "", False),
        ("Map -> Sink: async-results", "", False),
    ],
)
def test_answers_from_outside_are_told_by_name_or_word(name: str, description: str, *, is_outside: bool) -> None:
    assert chain(name, description).waits_outside is is_outside


def test_branches_of_a_chain_are_told_apart() -> None:
    assert chain("Source: o[1] -> (LocalWindowAggregate[3], Calc[5] -> x[6]: Writer)", is_source=True).unread == ()


SOURCE = "[6]:WatermarkAssigner(rowtime=[ts], watermark=[(ts - 1000:INTERVAL SECOND)])<br/>"
AGGREGATE = "[8]:GlobalWindowAggregate(window=[TUMBLE(slice_end=[$e], size=[5 s])], select=[k])<br/>"
RANK = "[9]:WindowRank(window=[TUMBLE(win_start=[window_start], win_end=[window_end], size=[5 s])])<br/>"


def test_rank_over_the_window_that_its_rows_come_from_waits_no_second_time() -> None:
    picture = read_flink(
        cluster(
            vertex("v1", "Source: clicks[4] -> WatermarkAssigner[6]", description=SOURCE),
            vertex("v2", "GlobalWindowAggregate[8]", "v1", description=AGGREGATE),
            vertex("v3", "WindowRank[9]", "v2", description=RANK),
            vertex("v4", "WindowRank[9]", "v1", description=RANK),
        ),
        NOW_MS / 1000,
    )
    _, aggregate, *ranks = picture.jobs[0].vertices
    assert aggregate.window is not None
    assert {rank.id: rank.window for rank in ranks} == {
        "v3": None,
        "v4": SLICED | {"size": 5.0, "watermark_delay_s": 1.0},
    }


def test_join_of_a_window_with_rows_that_passed_none_waits_for_it() -> None:
    attached = "TUMBLE(win_start=[window_start], win_end=[window_end], size=[5 s])"
    join = f"[9]:WindowJoin(leftWindow=[{attached}], rightWindow=[{attached}], joinType=[InnerJoin])<br/>"
    picture = read_flink(
        cluster(
            vertex("v1", "Source: clicks[4] -> WatermarkAssigner[6]", description=SOURCE),
            vertex("v2", "GlobalWindowAggregate[8]", "v1", description=AGGREGATE),
            vertex("v3", "WindowJoin[9]", "v2", "v1", description=join),
            vertex("v4", "WindowJoin[9]", "v2", "v2", description=join),
        ),
        NOW_MS / 1000,
    )
    windows = {vertex.id: vertex.window for vertex in picture.jobs[0].vertices}
    assert windows["v3"] is not None and windows["v4"] is None


@pytest.mark.parametrize(("order", "waits"), [("ts ASC", True), ("PROCTIME() ASC", False)])
def test_rows_over_row_time_wait_for_the_watermark(order: str, waits: bool) -> None:
    rows = "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW"
    over = f"[8]:OverAggregate(partitionBy=[k], orderBy=[{order}], window=[ {rows}])<br/>"
    picture = read_flink(
        cluster(
            vertex("v1", "Source: clicks[4] -> WatermarkAssigner[6]", description=SOURCE),
            vertex("v2", "OverAggregate[8]", "v1", description=over),
        ),
        NOW_MS / 1000,
    )
    expected = TUMBLING | {"size": 0.2, "watermark_delay_s": 1.0} if waits else None
    assert picture.jobs[0].vertices[1].window == expected


def test_early_results_are_told() -> None:
    description = f"[9]:GroupWindowAggregate(groupBy=[k], {DAY}, emit=[early delay 10000 millisecond])<br/>"
    answers = cluster(vertex("v1", "Source: a"), vertex("v2", "GroupWindowAggregate[9]", "v1", description=description))
    findings = {finding.code: str(finding.message) for finding in read_flink(answers, NOW_MS / 1000).findings}
    assert "every 10\u00a0s" in findings["early_results"]


@pytest.mark.parametrize(
    ("name", "description", "event_time"),
    [
        (
            "WindowTableFunction[4] -> Calc[5]",
            "[4]:WindowTableFunction(window=[SESSION(time_col=[ts], gap=[10 s], partition keys=[bidder])])",
            False,
        ),
        (
            "WindowAggregate[6]",
            "[6]:WindowAggregate(groupBy=[bidder], window=[SESSION(win_start=[window_start], win_end=[window_end], "
            "gap=[10 s], partition keys=[bidder])], select=[bidder, COUNT(*) AS bids])",
            True,
        ),
        ("GroupWindowAggregate[6]", "[6]:GroupWindowAggregate(window=[SessionGroupWindow('w$, ts, 10000)])", False),
        ("Window(EventTimeSessionWindows(10000), EventTimeTrigger, F)", "", True),
        ("Window(ProcessingTimeSessionWindows(10000), ProcessingTimeTrigger, F)", "", False),
    ],
    ids=["function", "aggregate", "old", "event-time", "clock"],
)
def test_sessions_hold_results_for_their_gap_at_the_least_and_are_for_a_person(
    name: str, description: str, *, event_time: bool
) -> None:
    window = window_of(name, description)
    assert {key: window[key] for key in SESSION} == SESSION and "work_at" not in window
    assert ("watermark_delay_s" in window) == event_time
    assert any("session" in words for words in chain(name, description).unread)


def test_session_whose_gap_is_not_fixed_has_no_window_and_is_named() -> None:
    name = "Window(DynamicEventTimeSessionWindows(), EventTimeTrigger, F)"
    assert window_of(name) is None and chain(name).unread


@pytest.mark.parametrize(
    ("name", "window"),
    [
        (
            "WindowAggregate[6](groupBy=[bidder], window=[TUMBLE(time_col=[p_time], size=[10 s])], select=[bidder])",
            SLICED | {"size": 10.0},
        ),
        (
            "GlobalWindowAggregate[6](window=[HOP(slice_end=[$slice_end], size=[10 s], slide=[2 s])], select=[a])",
            {"policy": "time", "type": "sliding", "size": 10.0, "slide": 2.0, "work_at": "close"},
        ),
        ("GroupWindowAggregate[6](window=[TumblingGroupWindow('w$, ts, 10000)])", TUMBLING | {"size": 10.0}),
        ("Window(TumblingEventTimeWindows(10000), EventTimeTrigger, F)", TUMBLING | {"size": 10.0}),
    ],
    ids=["clock", "hop", "old", "datastream"],
)
def test_windows_by_slices_are_worked_on_as_they_close(name: str, window: dict[str, Any]) -> None:
    head, _, arguments = name.partition("](")
    told = window_of(f"{head}]", f"[6]:{head.partition('[')[0]}({arguments}") if arguments else window_of(name)
    assert {key: told[key] for key in window} == window and ("work_at" in told) == ("work_at" in window)


SCAN = "Source: TableSourceScan(table=[[shop, main, bid, watermark=[-(at, 4000)]]], fields=[a])"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Calc[4] -> (Calc[5], Calc[6])", "Calc"),
        ("Calc[5])", "Calc"),
        ("Calc[2] -> (Calc[3]", "Calc"),
        ("Join[1] -> (Calc(select=[a, 'x)' AS y]), GroupAggregate[7]))", "Calc"),
        ("Calc(select=[a], where=[(b LIKE '%(->%')]) -> enrich", "enrich"),
        ("Calc(where=[a = 'it''s (']) -> (Sink: out[3], Calc[4])", "out"),
        ("Source: clicks (eu)[3]", "clicks (eu)"),
        (SCAN, "bid"),
        ("Sink: print) -> x", "x"),
        ("Source: it's -> Bob's map", "Bob's map"),
    ],
)
def test_labels_have_no_parenthesis_without_a_partner(name: str, label: str) -> None:
    told = read_chain(name, "", has_inputs=not name.startswith("Source"), has_readers=True).label
    assert told.count("(") == told.count(")")
    assert told == label


def test_stream_of_a_scan_is_its_table() -> None:
    assert read_chain(SCAN, "", has_inputs=False, has_readers=True).stream == "bid"


def test_chains_are_cut_at_no_literal() -> None:
    told = chain("Calc(select=[a, ' -> (' AS b], where=[c = ',)']) -> (first[2] -> Sink: one[3], second[4])")
    assert (told.label, told.kind, told.unread) == ("second", "sink", ())
