"""Streams over a tree of nodes: the exact search against trying everything, the greedy one against the exact."""

from __future__ import annotations

import json
import random
from itertools import product
from typing import Any

import pytest

from engine.errors import DocumentError
from lab.jarvis.tree import Tree, TreeDocument
from lab.jarvis.tree_search import combinations, command, cut_exactly, cut_greedily, cut_streams, main
from tests.engine.jarvis.test_guide import fields, names, rows


def document(seed: int, *, sources: int, between: int) -> dict[str, Any]:
    """A random tree of two or three levels."""
    draw = random.Random(seed)
    nodes: list[dict[str, Any]] = [{"id": "root", "parent": None, "cores": draw.uniform(0.3, 4)}]
    nodes += [
        {"id": f"m{i}", "parent": "root", "cores": draw.choice([0, draw.uniform(0.1, 1)])} for i in range(between)
    ]
    for node in nodes:
        if draw.random() < 0.5:
            node["ingress_bytes_s"] = draw.uniform(1e5, 2e6)
    streams = []
    for i in range(sources):
        parent = f"m{draw.randrange(between)}" if between else "root"
        nodes.append({"id": f"s{i}", "parent": parent, "cores": draw.uniform(0.05, 1)})
        operators = draw.randint(1, 3)
        streams.append(
            {
                "node": f"s{i}",
                "relay": [draw.choice([draw.uniform(0.05, 1), 1.0, 1.5]) for _ in range(operators)],
                "cost": [draw.uniform(0, 4e-5) for _ in range(operators)],
                "sizes": [100.0, *(draw.uniform(20, 120) for _ in range(operators))],
                "n_records": draw.uniform(1e3, 2e4),
                "at_source": draw.randint(0, operators),
                "between": operators,
            }
        )
    return {"nodes": nodes, "streams": streams}


def least_by_trying(given: dict[str, Any]) -> float:
    """Bytes of the best plan, each looked at by what the problem says alone."""
    nodes = {node["id"]: node for node in given["nodes"]}
    ways = [_way(nodes, stream["node"]) for stream in given["streams"]]
    cuts = [_cuts(stream, len(way) - 1) for stream, way in zip(given["streams"], ways, strict=True)]
    sent = [_sent(nodes, given["streams"], ways, plan) for plan in product(*cuts)]
    return min(entry for entry in sent if entry is not None)


def _way(nodes: dict, node: str) -> list[str]:
    parent = nodes[node]["parent"]
    return [node] if parent is None else [node, *_way(nodes, parent)]


def _cuts(stream: dict, hops: int) -> list[tuple[int, ...]]:
    result = product(range(len(stream["relay"]) + 1), repeat=hops)
    return [entry for entry in result if entry[0] <= stream["at_source"] and list(entry) == sorted(entry)]


def _sent(nodes: dict, streams: list, ways: list, plan: tuple) -> float | None:
    """Bytes over all hops, None where a node takes too long."""
    busy = dict.fromkeys(nodes, 0.0)
    arriving = dict.fromkeys(nodes, 0.0)
    for stream, way, cuts in zip(streams, ways, plan, strict=True):
        records, done = stream["n_records"], 0
        for node, end in zip(way, [*cuts, len(stream["relay"])], strict=True):
            if node != way[0]:
                arriving[node] += records * stream["sizes"][done]
            for i in range(done, end):
                busy[node] += records * stream["cost"][i]
                records *= stream["relay"][i]
            done = end

    def local(node: str) -> float:
        return busy[node] / nodes[node]["cores"] if busy[node] else 0.0

    def remote(node: str) -> float:
        parent = nodes[node]["parent"]
        if parent is None:
            return 0.0
        return arriving[parent] / nodes[parent].get("ingress_bytes_s", float("inf")) + local(parent) + remote(parent)

    for node, sent in nodes.items():
        if sent["parent"] is not None and busy[node] and (not sent["cores"] or local(node) > min(remote(node), 1.0)):
            return None
    return sum(arriving.values())


@pytest.mark.parametrize("seed", range(40))
def test_exact_search_finds_the_best_of_all_plans(seed):
    given = document(seed, sources=1 + seed % 4, between=seed % 3)
    tree = Tree.parse(given)
    plan = cut_exactly(tree)
    assert plan.sent_bytes == pytest.approx(least_by_trying(given), rel=1e-9)
    assert next(plan.load(tree).late(), None) is None


def test_greedy_search_is_feasible_and_near_the_best():
    gaps = []
    for seed in range(150):
        tree = Tree.parse(document(seed, sources=2 + seed % 5, between=seed % 3))
        greedy, exact = cut_greedily(tree), cut_exactly(tree)
        assert next(greedy.load(tree).late(), None) is None
        gaps.append(greedy.sent_bytes / exact.sent_bytes - 1)
    assert min(gaps) > -1e-9
    assert sum(gap < 1e-9 for gap in gaps) >= 140
    assert max(gaps) < 0.2


def test_large_fleet_is_cut_greedily_and_deterministically():
    tree = Tree.parse(document(1, sources=300, between=4))
    plan = cut_streams(tree)
    assert combinations(tree) > 10**50
    assert not plan.exact
    assert plan == cut_streams(tree)
    assert next(plan.load(tree).late(), None) is None


def alike(sources: int, **root: Any) -> dict[str, Any]:
    """Sources of one kind below a root: a filter that costs little and an aggregate that costs four times as much."""
    nodes = [{"id": "root", "parent": None, "cores": 1.0, **root}]
    nodes += [{"id": f"s{i}", "parent": "root", "cores": 0.5} for i in range(sources)]
    operators = {"relay": [0.8, 0.1], "cost": [1e-6, 5e-6], "sizes": [100, 100, 60], "n_records": 50_000}
    return {"nodes": nodes, "streams": [{"node": f"s{i}", **operators} for i in range(sources)]}


def test_sources_run_more_when_the_root_is_loaded():
    """Running both takes half a second here. Two of thirty leave everything to the root, which then takes as long."""
    entry, many = (cut_streams(Tree.parse(alike(sources))) for sources in (1, 30))
    assert [choice.cuts for choice in entry.choices] == [(1,)]
    assert sorted(choice.cuts[0] for choice in many.choices) == [0] * 2 + [2] * 28


def test_narrow_link_keeps_work_at_sources():
    assert cut_streams(Tree.parse(alike(1, ingress_bytes_s=4e5))).choices[0].cuts == (2,)


def test_equal_streams_count_once_among_combinations():
    assert combinations(Tree.parse(alike(30))) == 32 * 31 // 2


def test_command_returns_cuts_and_reasons():
    result = command(alike(2))
    assert result["exact"] is True
    assert [stream["cuts"] for stream in result["streams"]] == [{"s0": 1}, {"s1": 1}]
    assert result["streams"][0]["reason"] == (
        "cut after 2 at s0 it would send 3,760,000 bytes less, but s0 would take 0.5 s, longer than the 0.2 s "
        "to send that on and run it further up"
    )
    root, *sources = result["nodes"]
    assert root["remote_s"] is None
    assert all(node["local_s"] <= node["remote_s"] for node in sources)
    assert result["sent_bytes"] == root["incoming_bytes"]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"nodes": [{"id": "a", "parent": "b", "cores": 1}, {"id": "b", "parent": "a", "cores": 1}]}, "nodes"),
        ({"nodes": [{"id": "a", "cores": 1}, {"id": "b", "parent": "c", "cores": 1}]}, "nodes[1].parent"),
        ({"nodes": [{"id": "a", "cores": 1}, {"id": "a", "parent": "a", "cores": 1}]}, "nodes[1].id"),
        ({"nodes": [{"id": "a", "cores": 0}]}, "nodes[0].cores"),
        (
            {"streams": [{"node": "root", "relay": [1], "cost": [1], "sizes": [1, 1], "n_records": 1}]},
            "streams[0].node",
        ),
        ({"streams": [{"node": "s0", "relay": [1], "cost": [], "sizes": [1, 1], "n_records": 1}]}, "streams[0].cost"),
    ],
)
def test_invalid_tree_is_refused_with_the_path(changes, path):
    with pytest.raises(DocumentError) as refused:
        Tree.parse({**alike(1), **changes})
    assert path in [fault.path for fault in refused.value.faults]


def test_cycle_below_a_root_is_refused():
    nodes = [{"id": "r", "cores": 1}, {"id": "a", "parent": "b", "cores": 1}, {"id": "b", "parent": "a", "cores": 1}]
    with pytest.raises(DocumentError, match="a never comes to the root"):
        Tree.parse({"nodes": nodes, "streams": []})


def test_guide_describes_every_field_and_no_other() -> None:
    assert sorted(name for first, *_ in rows("A tree of nodes") for name in names(first)) == sorted(
        fields(TreeDocument)
    )


def test_command_reads_files_like_one_of_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--exact_most", "1", "docs/examples/partition-tree.json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    answer = json.loads(line)["result"]
    assert answer["exact"] is False and answer["streams"][0]["node"] == "web-1"
    with pytest.raises(SystemExit):
        main(["--exact_most", "0", "docs/examples/partition-tree.json"])
    assert "usage: sluice lab" in capsys.readouterr().err
