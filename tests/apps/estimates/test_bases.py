"""Bases of what runs are shared by files, and what is not whole is made anew."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from apps.estimates import bases
from apps.estimates.bases import base_changes, base_facts, base_keep, cluster_base
from apps.fleet.models import Cluster
from engine.document.deployment import Deployment
from engine.estimation import base as base_module
from engine.estimation import base_file
from engine.estimation.base import EstimateBase
from engine.estimation.estimate import estimate
from tests.engine.estimation.clusters import random_cluster

EVERY = 4


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Iterator[Path]:
    settings.VAR_DIR, settings.BASES_MAX_BYTES = tmp_path, 50_000_000
    bases._kept.clear()
    yield tmp_path / "bases"
    bases._kept.clear()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Deployment]:
    """Deployments that were estimated as a whole."""
    estimated: list[Deployment] = []
    real = estimate

    def counting(deployment: Deployment, **options: object) -> object:
        estimated.append(deployment)
        return real(deployment, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(base_module, "estimate", counting)
    return estimated


@pytest.fixture
def running() -> Deployment:
    return Deployment.parse(random_cluster(np.random.default_rng(5), load=0.7, queries=6, nodes=4))


CLUSTER = Cluster(pk=7, slug="main")


def forget() -> None:
    """As another process has it."""
    bases._kept.clear()


def same(one: EstimateBase, other: EstimateBase) -> bool:
    answers = ({q: r.answer(detail=False).to_dict() for q, r in base.estimate.queries.items()} for base in (one, other))
    return next(answers) == next(answers)


def test_base_is_made_once_for_all_processes(folder: Path, made: list[Deployment], running: Deployment) -> None:
    first = cluster_base(CLUSTER, running)
    assert cluster_base(CLUSTER, Deployment.parse(running.to_document())) is first
    forget()
    second = cluster_base(CLUSTER, running)
    assert second is not first
    assert same(first, second)
    assert len(made) == 1


def test_base_after_a_change_is_made_of_the_one_before(
    folder: Path, made: list[Deployment], running: Deployment
) -> None:
    cluster_base(CLUSTER, running)
    for _ in range(2):  # by what the process has, and by what is in the folder
        running = running.without_query(running.queries[-1])
        assert same(cluster_base(CLUSTER, running), EstimateBase.of(running, EVERY))
        forget()
    assert len(made) == 1 + 2  # the two of this test


def test_base_of_another_horizon_is_made_anew(folder: Path, made: list[Deployment], running: Deployment) -> None:
    cluster_base(CLUSTER, running)
    cluster_base(CLUSTER, running.coarsened(2))
    assert len(made) == 2


@pytest.mark.parametrize("harm", ["cut", "turned", "empty", "other_format", "other_version"])
def test_file_that_is_not_whole_is_not_believed(
    harm: str,
    folder: Path,
    made: list[Deployment],
    running: Deployment,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = cluster_base(CLUSTER, running)
    (path,) = folder.glob("*.base")
    content = bytearray(path.read_bytes())
    if harm == "cut":
        del content[-100:]
    elif harm == "turned":
        content[len(content) // 2] ^= 1
    elif harm == "empty":
        content.clear()
    elif harm == "other_format":
        content[0] ^= 1
    else:
        monkeypatch.setattr(base_file, "_VERSION", "another")
    path.write_bytes(content)
    forget()
    with caplog.at_level(logging.WARNING):
        assert same(cluster_base(CLUSTER, running), first)
    assert len(made) == 2
    assert "is made anew" in caplog.text
    forget()
    cluster_base(CLUSTER, running)
    assert len(made) == 2  # what took its place is whole


def test_disk_without_room_leaves_nothing_and_harms_nobody(
    folder: Path, running: Deployment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with caplog.at_level(logging.WARNING):
        found = cluster_base(CLUSTER, running)
    assert found.estimate.queries
    assert list(folder.iterdir()) == []
    assert "No space left" in caplog.text


def test_limit_takes_away_what_was_longest_not_used(folder: Path, running: Deployment, settings: Any) -> None:
    source = running.sources[0]
    one, two, three = (running.with_arrivals({source.id: source.arrivals * by}) for by in (1.1, 1.2, 1.3))

    def write(deployment: Deployment) -> None:
        for path in folder.glob("*.base"):  # none was written within a minute
            os.utime(path, (path.stat().st_mtime - 100,) * 2)
        base_keep(CLUSTER, cluster_base(CLUSTER, deployment))

    write(one)
    write(two)
    forget()
    cluster_base(CLUSTER, one)  # used again
    settings.BASES_MAX_BYTES = int(sum(path.stat().st_size for path in folder.glob("*.base")) * 1.2)
    write(three)
    kept = {path.name.split("-")[1].removesuffix(".base") for path in folder.glob("*.base")}
    assert kept == {one.digest, three.digest}


def test_limit_of_nothing_keeps_no_file(folder: Path, running: Deployment, settings: Any) -> None:
    settings.BASES_MAX_BYTES = 0
    assert cluster_base(CLUSTER, running).estimate.queries
    assert not folder.exists()


def test_file_left_half_written_goes_when_nobody_writes_it(folder: Path, running: Deployment) -> None:
    folder.mkdir()
    for name, age_s in ((".old.part", 7200), (".new.part", 10)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (time.time() - age_s,) * 2)
    cluster_base(CLUSTER, running)
    assert {path.name for path in folder.glob(".*")} == {".new.part"}


def test_estimate_of_the_cluster_keeps_its_base(folder: Path, made: list[Deployment], running: Deployment) -> None:
    base_keep(CLUSTER, EstimateBase.of(running, EVERY))
    forget()
    cluster_base(CLUSTER, running)
    assert len(made) == 1


def test_file_that_cannot_be_opened_now_stays_for_others(
    folder: Path, made: list[Deployment], running: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_base(CLUSTER, running)
    forget()
    monkeypatch.setattr(base_file, "read_base", lambda path: (_ for _ in ()).throw(OSError(24, "Too many open files")))
    assert cluster_base(CLUSTER, running).estimate.queries
    assert len(made) == 2
    assert len(list(folder.glob("*.base"))) == 1


def test_estimate_larger_than_the_limit_is_not_kept_by_its_process(
    folder: Path, made: list[Deployment], running: Deployment, settings: Any
) -> None:
    settings.BASES_MAX_BYTES = 1000
    base_keep(CLUSTER, cluster_base(CLUSTER, running))
    assert bases._kept == {}


def test_base_that_a_verdict_moved_is_written_by_the_estimate_and_once_a_minute(
    folder: Path, running: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_base(CLUSTER, running)
    now_s = next(folder.glob("*.base")).stat().st_mtime
    monkeypatch.setattr(bases, "time", SimpleNamespace(time=lambda: now_s))  # files know nothing of a shifted clock
    after = running.without_query(running.queries[-1])
    moved = cluster_base(CLUSTER, after)
    base_keep(CLUSTER, moved)
    (path,) = folder.glob("*.base")
    os.utime(path, (now_s - 61,) * 2)
    base_keep(CLUSTER, moved)
    assert {path.name for path in folder.glob("*.base")} == {f"7-{each.digest}.base" for each in (running, after)}


def test_base_says_when_it_was_made_and_how_often_it_was_moved(folder: Path, running: Deployment) -> None:
    first = base_facts(cluster_base(CLUSTER, running))
    assert first.digest == running.digest and first.moves == 0 and first.made_at is not None
    after = running.without_query(running.queries[-1])
    forget()
    second = base_facts(cluster_base(CLUSTER, after))
    assert (second.digest, second.moves, second.made_at) == (after.digest, 1, first.made_at)


def test_differences_from_a_former_state_are_those_of_every_change_since(folder: Path, running: Deployment) -> None:
    """Of what is left out, the whole computation gives the same figures to the last bit."""
    states = [running]
    for query in running.queries[:2]:
        states.append(states[-1].without_query(query))
    for state in states:
        base = cluster_base(CLUSTER, state)
    change = base_changes(CLUSTER, base, running.digest)
    assert change is not None
    before, after = (EstimateBase.of(state, EVERY).estimate for state in (states[0], states[-1]))
    for query in after.queries.keys() - change.queries:
        assert after.queries[query].answer().to_dict() == before.queries[query].answer().to_dict()
    servers = {server.name: i for i, server in enumerate(running.servers)}
    for i, server in enumerate(states[-1].servers):
        if server.name not in change.servers:
            assert (after.judged.load[i] == before.judged.load[servers[server.name]]).all()
            assert (after.judged.ce[i] == before.judged.ce[servers[server.name]]).all()
    assert base_changes(CLUSTER, base, "unknown") is None


def test_estimate_of_a_moved_base_is_written_as_that_of_the_whole(folder: Path, running: Deployment) -> None:
    cluster_base(CLUSTER, running)
    for query in running.queries[:2]:
        running = running.without_query(query)
        moved = cluster_base(CLUSTER, running).whole.answer(plain=False).to_dict()
        whole = estimate(running, mace_every=EVERY).answer(plain=False).to_dict()
        assert json.dumps(moved, default=list) == json.dumps(whole, default=list)
