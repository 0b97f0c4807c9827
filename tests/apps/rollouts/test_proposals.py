"""Learned statistics become a configuration where they differ enough, once in a while, and are not tried twice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agent.wire import batch_bytes
from apps.core.errors import Malformed
from apps.rollouts.models import Learned, RefinedConfig, Rollout
from apps.rollouts.proposals import learned_receive, proposal_create
from apps.rollouts.services import policy_update
from apps.telemetry.configs import fixed_settings
from apps.telemetry.frames import frames_receive
from apps.telemetry.live_services import assignment_set
from engine.jarvis.refined_config import FittedRange, RefinedAdaptation
from tests.apps.rollouts.fleet import Behaviour, Fleet, fleet_of, join
from tests.apps.rollouts.learned_frames import FIGURES, frame_of, rows_of

pytestmark = pytest.mark.django_db

DEARER = {**FIGURES, "rtt": (130e-6, 0.1, 90.0, 60.0)}


def told(fleet: Fleet, figures: dict[str, Any] = FIGURES, **changes: Any) -> RefinedConfig | None:
    """All agents' figures arrive; the configuration that was made of them, if one was."""
    before = set(RefinedConfig.objects.values_list("pk", flat=True))
    rows = [row for agent in fleet.agents for row in rows_of(agent, figures, **changes)]
    learned_receive([frame_of(fleet, rows)], fleet.now)
    return RefinedConfig.objects.exclude(pk__in=before).order_by("number").first()


def later(fleet: Fleet, seconds: float = 601.0) -> None:
    fleet.now += timedelta(seconds=seconds)


def test_first_figures_are_proposed_and_rolled_out_automatically() -> None:
    fleet = fleet_of().start()
    frames_receive([frame_of(fleet, [row for agent in fleet.agents for row in rows_of(agent)])])
    config = RefinedConfig.objects.get()
    assert (config.origin, config.state, config.author) == ("spark", "rolling", None)
    assert config.words.startswith("Figures learned at 3 agents: ")
    assert (config.checked["health"], config.checked["parts"]) == ("good", 3)
    documents = [RefinedAdaptation.parse(part.document) for part in config.parts.all()]
    assert {document.agent for document in documents} == {str(agent.pk) for agent in fleet.agents}
    document = documents[0]
    assert [operator.id for operator in document.operators] == ["window", "good", "rtt"]
    assert (document.operators[2].cost_s, document.record_bytes) == (90e-6, (86.0, 90.0, 90.0, 60.0))
    assert document.fitted == FittedRange((90.0, 110.0), (0.1, 0.2))
    fleet.until(lambda: fleet.state(config)[0] == "done")
    assert fleet.holders(1) == {"a1", "a2", "a3"}


def test_proposal_waits_when_the_policy_is_not_automatic() -> None:
    fleet = fleet_of().start()
    policy_update(cluster=fleet.cluster, automatic=False)
    config = told(fleet)
    assert config is not None
    assert config.state == "draft"
    assert not Rollout.objects.exists()


def test_figures_are_proposed_when_they_differ_enough_and_at_intervals() -> None:
    fleet = fleet_of().start()
    first = told(fleet)
    assert first is not None
    later(fleet, 60)
    assert told(fleet, DEARER, measured_us=1_700_000_000_000_001) is None  # too soon
    assert Learned.objects.filter(document__operators__2__cost_s=130e-6).count() == 3
    later(fleet)
    assert told(fleet, {**FIGURES, "rtt": (100e-6, 0.1, 90.0, 60.0)}, measured_us=1_700_000_000_000_002) is None
    second = told(fleet, DEARER, measured_us=1_700_000_000_000_003)
    assert second is not None
    assert "cost of rtt 90 → 130 µs" in second.words


def test_negligible_cost_is_not_proposed() -> None:
    fleet = fleet_of().start()
    assert told(fleet, {**FIGURES, "rtt": (1e-9, 0.1, 90.0, 60.0)}) is not None
    later(fleet)
    assert told(fleet, {**FIGURES, "rtt": (9e-9, 0.1, 90.0, 60.0)}, measured_us=1_700_000_000_000_001) is None


def test_figures_of_few_records_are_kept_and_not_proposed() -> None:
    fleet = fleet_of().start()
    assert told(fleet, records=900) is None
    assert Learned.objects.count() == 3


def test_missing_figures_are_not_kept() -> None:
    fleet = fleet_of().start()
    rows = rows_of(fleet.agents[0])
    rows[2] |= {"cost_s": None, "lo": None, "hi": None, "theta": None, "load_factor": None}
    assert learned_receive([frame_of(fleet, rows)], fleet.now) == 0
    stranger = [{**row, "agent": "00000000-0000-0000-0000-000000000000"} for row in rows_of(fleet.agents[0])]
    assert learned_receive([frame_of(fleet, stranger)], fleet.now) == 0
    assert learned_receive([frame_of(fleet, rows_of(fleet.agents[0])[:2])], fleet.now) == 0
    assert learned_receive([frame_of(fleet, rows_of(fleet.agents[0]), plan="0" * 64)], fleet.now) == 0
    for wrong in ({"cost_s": float("nan")}, {"relay": -1.0}, {"theta": 1.5}):
        assert learned_receive([frame_of(fleet, rows_of(fleet.agents[0], **wrong))], fleet.now) == 0
    assert not Learned.objects.exists()


def test_older_figures_do_not_replace_newer_ones() -> None:
    fleet = fleet_of("a1").start()
    told(fleet, DEARER, measured_us=1_700_000_000_000_009)
    told(fleet, FIGURES, measured_us=1_700_000_000_000_008)
    assert Learned.objects.get().document["operators"][2]["cost_s"] == 130e-6


def test_unreadable_body_is_refused() -> None:
    fleet = fleet_of("a1")
    with pytest.raises(Malformed, match="cannot be read"):
        learned_receive([frame_of(fleet, [], body=b"nothing")])
    with pytest.raises(Malformed, match="another schema"):
        learned_receive([frame_of(fleet, [], body=batch_bytes(pa.table({"agent": ["a"]})))])


def test_change_within_chance_is_not_proposed() -> None:
    fleet = fleet_of("a1").start()
    told(fleet, standard_error=0.2)
    later(fleet)
    assert told(fleet, DEARER, measured_us=1_700_000_000_000_001, standard_error=0.2) is None


def test_newer_proposal_replaces_a_waiting_one() -> None:
    fleet = fleet_of().start()
    first = told(fleet)
    fleet.silent = {"a1", "a2", "a3"}  # it stays at its canaries
    later(fleet)
    second = told(fleet, DEARER, measured_us=1_700_000_000_000_001)
    later(fleet)
    third = told(fleet, {**FIGURES, "rtt": (30e-6, 0.1, 90.0, 60.0)}, measured_us=1_700_000_000_000_002)
    assert [fleet.state(config)[0] for config in (first, second, third) if config] == ["canary", "stopped", "waiting"]
    assert Rollout.objects.get(config=second).reasons == ["c-3 replaces it"]


def test_rolled_back_figures_are_not_proposed_again() -> None:
    fleet = fleet_of().start()
    fleet.behaviours[1] = Behaviour(bytes_per_record=80.0)
    config = told(fleet)
    assert config is not None
    fleet.until(lambda: fleet.state(config)[0] == "rolled-back")
    later(fleet)
    assert told(fleet, measured_us=1_700_000_000_000_001) is None


def test_agents_set_by_hand_get_no_proposal() -> None:
    fleet = fleet_of().start()
    assignment_set(live=fleet.live, agent=fleet.agents[0], settings=fixed_settings([1.0, 1.0, 0.0]))
    config = told(fleet)
    assert config is not None
    assert config.parts.count() == 2


def test_proposal_keeps_the_settings_in_force() -> None:
    fleet = fleet_of("a1").start()
    assignment_set(live=fleet.live, agent=fleet.agents[0], settings={"method": "best-op"})
    config = told(fleet)
    assert config is not None
    assert config.parts.get().document["settings"] == {"method": "best-op"}


def test_sql_count_does_not_grow_with_agents() -> None:
    fleet, asked = fleet_of("a1").start(1), []
    for names in (("a2", "a3", "a4"), ()):
        later(fleet)
        assert told(fleet) is not None
        later(fleet)
        with CaptureQueriesContext(connection) as seen:
            assert proposal_create(cluster=fleet.cluster, now=fleet.now) is None
        asked.append(len(seen))
        for name in names:
            join(fleet, name)
    assert asked[0] == asked[1]
