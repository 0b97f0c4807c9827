"""Flink across hosts: scenes and links; a run takes a Flink and minutes."""

from __future__ import annotations

import pytest

from lab.testbed.command import main
from lab.testbed.flink import SCENES, ScoredScene, links_between
from lab.testbed.testbed import Host, missing_needs

needs_testbed = pytest.mark.skipif(bool(missing_needs()), reason=f"no testbed: {'; '.join(missing_needs())}")


def test_scenes_differ_in_one_host_or_one_link() -> None:
    alike, *others = SCENES
    assert len(set(alike.hosts)) == 3 and len({(host.cores, host.mbit_s) for host in alike.hosts}) == 1
    for scene in others:
        assert scene.hosts[:2] == alike.hosts[:2] and scene.hosts[2] != alike.hosts[2]


def test_link_between_two_hosts_has_the_rate_of_the_slower_one() -> None:
    hosts = {"tm-1": Host("host1", 0.5, 8.0), "tm-2": Host("host2", 0.5, 0.8), "tm-3": Host("host3", 0.5)}
    assert list(links_between(hosts)) == [
        {"from": "tm-1", "to": "tm-2", "bandwidth_bytes_s": 1e5},
        {"from": "tm-2", "to": "tm-1", "bandwidth_bytes_s": 1e5},
    ]


def test_latencies_of_the_one_job_are_scored_in_every_scene() -> None:
    assert ScoredScene("slow link", None, None).statistics == ("q0.99", "mean")


@needs_testbed
def test_seconds_out_of_bounds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flink", "--seconds", "1"]) == 2
    assert "--seconds is 1; allowed: 5 to 3,600" in capsys.readouterr().err
