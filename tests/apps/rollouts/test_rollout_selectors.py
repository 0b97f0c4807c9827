"""Announcements to pages: rollouts, configurations of agents, bytes saved."""

from __future__ import annotations

from datetime import timedelta

import pytest

from apps.rollouts.config_selectors import configs_by_agent
from apps.rollouts.models import RefinedConfig, Rollout
from apps.rollouts.predictions import saved_bytes
from apps.rollouts.proposals import learned_receive
from apps.rollouts.rollout_selectors import rollout_now, rollout_view
from apps.rollouts.rollout_services import rollout_start
from apps.rollouts.services import ConfigRequest, config_create, policy_update
from apps.telemetry.configs import fixed_settings
from apps.telemetry.live_services import assignment_set
from tests.apps.rollouts.fleet import GOOD, Behaviour, Fleet, fleet_of
from tests.apps.rollouts.learned_frames import frame_of, rows_of

pytestmark = pytest.mark.django_db


def started(fleet: Fleet) -> RefinedConfig:
    config = config_create(cluster=fleet.cluster, wish=ConfigRequest({"margin": 0.96}), now=fleet.now)
    rollout_start(config=config, now=fleet.now)
    return config


def test_rollout_under_way_is_shown() -> None:
    fleet = fleet_of().start()
    fleet.behaviours[1] = GOOD
    assert rollout_now(fleet.cluster) is None
    started(fleet)
    waiting = started(fleet)
    fleet.step(8)
    view = rollout_now(fleet.cluster)
    assert view is not None
    assert (view.config, view.words, view.badge, view.tone) == ("c-1", "Sets margin 0.96", "Canary: watching", "info")
    assert [step.title for step in view.steps] == ["Checked", "Canary, 1 agent", "Wave 1, 2 agents"]
    assert [step.state for step in view.steps] == ["done", "now", "next"]
    assert view.steps[1].words == "10 of 20 epochs"
    assert view.steps[1].share == 0.5
    figures = {figure.key: (figure.text, figure.limit_text, figure.worse) for figure in view.figures}
    assert figures["bytes"] == ("−25 %", "limit +5 %", False)
    assert figures["cpu"] == ("+20 %", "saves bytes", False)
    assert figures["overflow"] == ("0 pp", "limit +1 pp", False)
    assert view.compared == "Compared with 2 agents without it"
    assert view.measured_at is not None
    assert (view.buttons, view.given, view.waiting) == ({"pause", "roll-back"}, 1, ("c-2",))
    in_line = rollout_view(Rollout.objects.get(config=waiting))
    assert (in_line.badge, in_line.buttons) == ("Waiting", {"stop"})


def test_measure_beyond_its_limit_is_watched_until_certain() -> None:
    fleet = fleet_of().start()
    fleet.behaviours[1] = Behaviour(bytes_per_record=80.0)
    started(fleet)
    fleet.step(8)
    view = rollout_now(fleet.cluster)
    assert view is not None
    assert next(figure for figure in view.figures if figure.key == "bytes").worse
    assert (view.badge, view.tone) == ("Canary: watching", "info")


def test_ended_rollout_is_shown_for_an_hour() -> None:
    fleet = fleet_of().start()
    fleet.behaviours[1] = Behaviour(bytes_per_record=80.0)
    config = started(fleet)
    fleet.until(lambda: fleet.state(config)[0] == "rolled-back")
    view = rollout_now(fleet.cluster, fleet.now + timedelta(minutes=50))
    assert view is not None
    assert (view.badge, view.tone, view.buttons) == ("Rolled back", "danger", frozenset())
    assert [(step.words, step.state) for step in view.steps[1:]] == [("Rolled back", "now"), ("Not reached", "next")]
    assert "bytes sent per record" in view.reasons[0]
    assert rollout_now(fleet.cluster, fleet.now + timedelta(minutes=70)) is None


def test_configs_by_agent() -> None:
    fleet = fleet_of().start()
    config = started(fleet)
    fleet.until(lambda: fleet.state(config)[0] == "done")
    assignment_set(live=fleet.live, agent=fleet.agents[2], settings=fixed_settings([1.0, 1.0, 1.0]))
    second = started(fleet)
    fleet.behaviours[2] = Behaviour(bytes_per_record=80.0)
    waiting = {name: state for name, state in _held(fleet).items() if state.behind}
    (canary,) = waiting  # sent, and not yet taken
    fleet.step()
    held = _held(fleet)
    assert (held[canary].config, held[canary].canary, held[canary].behind) == ("c-2", True, False)
    assert (held["a3"].config, held["a3"].by_hand) == ("", True)
    (other,) = {"a1", "a2"} - {canary}
    assert (held[other].config, held[other].canary) == ("c-1", False)
    fleet.until(lambda: fleet.state(second)[0] == "rolled-back")
    assert (_held(fleet)[canary].config, _held(fleet)[canary].same_as) == ("c-3", "c-1")


def test_refusing_agent_gives_its_reasons() -> None:
    fleet = fleet_of().start()
    fleet.refuses = {"a1": "it is for another plan", "a2": "no", "a3": "no"}
    config = config_create(cluster=fleet.cluster, wish=ConfigRequest({}), now=fleet.now)
    rollout_start(config=config, now=fleet.now, canaries=fleet.agents[:1])
    fleet.step(advance=False)
    state = _held(fleet)["a1"]
    assert (state.behind, state.refused) == (True, ("it is for another plan",))


def test_saved_bytes_against_the_baselines() -> None:
    fleet = fleet_of().start()
    policy_update(cluster=fleet.cluster, automatic=False)
    fleet.now -= timedelta(seconds=30)  # saved bytes are of the real last minutes
    before = saved_bytes(fleet.cluster)[str(fleet.agents[0].pk)]
    assert (before.filter_src, before.all_sp) == (None, 86.0 * before.records)
    learned_receive([frame_of(fleet, [row for agent in fleet.agents for row in rows_of(agent)])])
    found = saved_bytes(fleet.cluster, [fleet.agents[0].pk])
    assert set(found) == {str(fleet.agents[0].pk)}
    state = found[str(fleet.agents[0].pk)]
    assert state.saved(state.all_sp) == pytest.approx(1 - 40 / 86, abs=0.1)
    assert state.filter_src == pytest.approx(0.86 * 90.0 * state.records)
    assert state.all_src == state.best_op == pytest.approx(0.86 * 0.1 * 60.0 * state.records)


def _held(fleet: Fleet) -> dict[str, object]:
    found = configs_by_agent(fleet.cluster)
    return {agent.name: found[str(agent.pk)] for agent in fleet.agents}
