"""Statistics of sweeping watermarks are stored, sent to agents, and proposed where they are material."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.core.errors import Malformed
from apps.rollouts.config_selectors import config_detail
from apps.rollouts.models import LearnedWatermarks, RefinedConfig
from apps.rollouts.proposals import learned_receive, watermarks_receive
from apps.rollouts.services import ConfigRequest, config_create, policy_update
from apps.telemetry.frames import frames_receive
from engine.jarvis.refined_config import RefinedAdaptation
from tests.apps.rollouts.fleet import Fleet, fleet_of
from tests.apps.rollouts.learned_frames import frame_of, rows_of, sweeping, watermarks_of

pytestmark = pytest.mark.django_db

EARLY: dict[str, Any] = {"epochs": 2, "mean_s": None, "variance_s2": None}


def told(fleet: Fleet, *rows: dict[str, Any], minutes: float = 11.0) -> RefinedConfig | None:
    """Some time later watermarks arrive; the configuration that was made of them, if one was."""
    fleet.now += timedelta(minutes=minutes)
    before = set(RefinedConfig.objects.values_list("pk", flat=True))
    newest = round(fleet.now.timestamp() * 1e6)
    watermarks_receive([watermarks_of(fleet, *({**row, "measured_us": newest} for row in rows))], fleet.now)
    return RefinedConfig.objects.exclude(pk__in=before).order_by("number").first()


def documents(config: RefinedConfig | None) -> dict[str, RefinedAdaptation]:
    assert config is not None
    return {
        part.agent.name if part.agent else "*": RefinedAdaptation.parse(part.document) for part in config.parts.all()
    }


def test_agent_gets_its_own_watermarks_else_those_of_all() -> None:
    fleet = fleet_of("a1", "a2").start()
    rows = [sweeping(fleet.agents[0], mean_s=0.6, event_cost_s=80e-6), sweeping("*")]
    frames_receive([watermarks_of(fleet, *rows)])
    config = RefinedConfig.objects.get()
    assert (config.origin, config.state) == ("spark", "rolling")
    assert config.words.startswith("Figures learned at 2 agents: watermarks of probes come after 0.6 ± 0.2 s")
    found = documents(config)
    assert {name: document.watermarks[0].mean_s for name, document in found.items()} == {"a1": 0.6, "a2": 1.2}
    assert {name: document.event_cost_s for name, document in found.items()} == {"a1": 80e-6, "a2": 95e-6}
    assert found["a1"].operators == ()
    fleet.until(lambda: fleet.state(config)[0] == "done")
    assert fleet.holders(1) == {"a1", "a2"}


def test_only_the_period_is_kept_of_few_windows() -> None:
    fleet = fleet_of("a1").start()
    assert told(fleet, sweeping("*", **EARLY)) is None
    assert LearnedWatermarks.objects.get().document["watermarks"][0]["mean_s"] is None
    assert told(fleet, sweeping(fleet.agents[0], epochs=2)) is None  # a mean of two windows is none
    config = told(fleet, sweeping("*"), sweeping(fleet.agents[0], **EARLY))
    assert documents(config)["a1"].watermarks[0].mean_s == 1.2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"period_s": 5.0}, "period of probes 10 → 5 s"),
        ({"mean_s": 1.41}, "watermarks of probes 1.2 ± 0.2 → 1.4 ± 0.2 s"),
        ({"mean_s": 1.35}, ""),
        ({"variance_s2": 0.081}, "watermarks of probes 1.2 ± 0.2 → 1.2 ± 0.28 s"),
        ({"variance_s2": 0.079}, ""),
        ({"variance_s2": 0.019}, "watermarks of probes 1.2 ± 0.2 → 1.2 ± 0.14 s"),
        ({"epochs": 400}, ""),
        ({"event_cost_s": 5e-3}, ""),
    ],
)
def test_watermarks_that_differ_enough_are_proposed(change: dict[str, Any], words: str) -> None:
    fleet = fleet_of("a1").start()
    assert told(fleet, sweeping(fleet.agents[0]))
    config = told(fleet, sweeping(fleet.agents[0], **change))
    assert (config.words if config else "").endswith(words)
    assert bool(config) == bool(words)


def test_proposals_keep_their_interval() -> None:
    fleet = fleet_of("a1").start()
    assert told(fleet, sweeping(fleet.agents[0]))
    assert told(fleet, sweeping(fleet.agents[0], mean_s=9.0), minutes=5) is None
    assert told(fleet, sweeping(fleet.agents[0], mean_s=9.0), minutes=6)


def test_proposal_keeps_operator_figures_in_force() -> None:
    fleet = fleet_of("a1").start()
    learned_receive([frame_of(fleet, rows_of(fleet.agents[0]))], fleet.now)
    config = told(fleet, sweeping("*"))
    assert [operator.id for operator in documents(config)["a1"].operators] == ["window", "good", "rtt"]
    assert documents(config)["a1"].watermarks[0].stream == "probes"
    assert ("delay of watermarks of probes", "–", "1.2 s") in config_detail(RefinedConfig.objects.get(number=2)).parts[
        0
    ].changes


def test_config_by_hand_includes_watermarks_on_request() -> None:
    fleet = fleet_of("a1", "a2").start()
    policy_update(cluster=fleet.cluster, automatic=False)
    told(fleet, sweeping(fleet.agents[0], mean_s=0.6), sweeping("*"))
    with_it = config_create(cluster=fleet.cluster, wish=ConfigRequest({"margin": 0.96}), now=fleet.now)
    assert {name: document.watermarks[0].mean_s for name, document in documents(with_it).items()} == {
        "*": 1.2,
        "a1": 0.6,
    }
    without = config_create(cluster=fleet.cluster, wish=ConfigRequest({"margin": 0.96}, learned=False), now=fleet.now)
    assert {name: document.watermarks for name, document in documents(without).items()} == {"*": None}


def test_invalid_watermarks_are_ignored() -> None:
    fleet = fleet_of("a1").start()
    agent = fleet.agents[0]
    odd: list[dict[str, Any]] = [
        {"mean_s": float("nan")},
        {"variance_s2": -1.0},
        {"period_s": 0.0},
        {"period_s": None},
        {"levels": [0.1, 0.9], "values_s": [1.0]},
        {"agent": "00000000-0000-0000-0000-000000000000"},
        {"measured_us": 2**52},
    ]
    for change in odd:
        assert watermarks_receive([watermarks_of(fleet, sweeping(agent) | change)], fleet.now) == 0, change
    assert watermarks_receive([watermarks_of(fleet, sweeping(agent), plan="0" * 64)], fleet.now) == 0
    assert not LearnedWatermarks.objects.exists()
    with pytest.raises(Malformed, match="The watermarks have another schema"):
        watermarks_receive([watermarks_of(fleet, body=frame_of(fleet, rows_of(agent)).body)])
    assert watermarks_receive([watermarks_of(fleet, sweeping(agent, latency_p99_s=float("inf")))], fleet.now) == 1
    assert LearnedWatermarks.objects.get().document["figures"]["probes"]["latency_p99_s"] is None


def test_older_watermarks_do_not_replace_newer_ones() -> None:
    fleet = fleet_of("a1").start()
    for measured_us, mean_s in ((9, 1.0), (8, 2.0)):
        row = sweeping("*", measured_us=1_700_000_000_000_000 + measured_us, mean_s=mean_s)
        watermarks_receive([watermarks_of(fleet, row)], fleet.now)
    assert LearnedWatermarks.objects.get().document["watermarks"][0]["mean_s"] == 1.0
