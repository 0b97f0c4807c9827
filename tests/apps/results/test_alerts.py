"""Rules open an alert for each group that breaks them for long enough, and resolve it when its value is back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rest_framework.test import APIClient

from apps.core.errors import Conflict, Malformed
from apps.results import evaluation
from apps.results.models import Alert, AlertRule
from apps.results.selectors import alerts_firing
from apps.results.services import alert_rule_update
from apps.telemetry.frames import frames_receive
from apps.telemetry.live_services import live_stop
from apps.telemetry.models import LiveQuery
from tests.apps.results.rows import BEGIN_US, WIDTH_US, arrive, result, rule_of

pytestmark = pytest.mark.django_db

AB, CD, EF = ("a", "b"), ("c", "d"), ("e", "f")


def firing() -> list[str]:
    return [alert.group["src"] for alert in Alert.objects.filter(state="firing").order_by("group_key")]


def test_alert_opens_is_acknowledged_and_resolves(live: LiveQuery) -> None:
    rule_of(live, for_windows=2)
    arrive(live, 0, {AB: 30.0, CD: 5.0})
    assert firing() == [], "one window alone may be noise"
    arrive(live, 1, {AB: 40.0, CD: 25.0})
    alert = Alert.objects.get()
    assert (alert.group, alert.opened_value) == ({"src": "a", "dst": "b"}, 40.0)
    assert alert.opened_window_us == BEGIN_US + WIDTH_US
    arrive(live, 2, {AB: 35.0, CD: 4.0})
    alert.refresh_from_db()
    assert (alert.last_value, alert.worst_value, alert.state) == (35.0, 40.0, "firing")
    arrive(live, 3, {AB: 20.0})
    alert.refresh_from_db()
    assert (alert.state, alert.resolved_by, alert.resolved_value) == ("resolved", "value", 20.0)
    assert Alert.objects.count() == 1
    arrive(live, 4, {AB: 50.0})
    arrive(live, 5, {AB: 50.0})
    assert Alert.objects.count() == 2, "broken anew, a new alert"


def test_windows_in_a_row_have_no_gap(live: LiveQuery) -> None:
    rule_of(live, for_windows=2)
    arrive(live, 0, {AB: 30.0})
    arrive(live, 2, {AB: 30.0})
    assert firing() == []
    arrive(live, 1, {AB: 30.0})
    assert firing() == ["a"], "the missing window came late"


def test_repeated_frames_lead_to_the_same_alerts(live: LiveQuery) -> None:
    rule_of(live)
    frames = [result(live.query, {AB: 30.0, CD: 31.0 if w else 3.0}, w) for w in range(3)]
    frames_receive(frames)
    before = list(Alert.objects.order_by("pk").values())
    frames_receive(frames)
    assert list(Alert.objects.order_by("pk").values()) == before


def test_revision_resolves_an_alert_it_no_longer_breaks(live: LiveQuery) -> None:
    rule_of(live)
    arrive(live, 0, {AB: 30.0})
    arrive(live, 0, {AB: 10.0}, revision=1)
    alert = Alert.objects.get()
    assert (alert.state, alert.resolved_value) == ("resolved", 10.0)
    arrive(live, 1, {AB: 1.0})
    arrive(live, 0, {AB: 90.0}, revision=2)
    assert firing() == [], "a window that is no longer the newest opens nothing"


def test_alert_of_a_vanished_group_is_resolved(live: LiveQuery) -> None:
    rule_of(live)
    arrive(live, 0, {AB: 30.0, CD: 30.0})
    arrive(live, 1, {CD: 30.0})
    gone = Alert.objects.get(state="resolved")
    assert (gone.group["src"], gone.resolved_by, gone.resolved_value) == ("a", "gone", None)


def test_only_groups_matching_the_condition_are_evaluated(live: LiveQuery) -> None:
    """Scenario 1 of the Jarvis paper: the nodes that host a service."""
    rule_of(live, where="dst in ('d', 'f')")
    arrive(live, 0, {AB: 99.0, CD: 30.0, EF: 19.0})
    assert firing() == ["c"]


@pytest.mark.parametrize(
    ("comparison", "expected"), [("gt", {"c"}), ("ge", {"a", "c"}), ("lt", {"e"}), ("le", {"a", "e"})]
)
def test_each_comparison_is_evaluated(live: LiveQuery, comparison: str, expected: set[str]) -> None:
    rule_of(live, comparison=comparison)
    arrive(live, 0, {AB: 20.0, CD: 21.0, EF: 19.0, ("n", "n"): None})
    assert set(firing()) == expected, "null breaks nothing"


def test_rule_broken_by_every_group_lists_the_worst(live: LiveQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MAX_ALERTS", 2)
    rule = rule_of(live)
    arrive(live, 0, {(name, "x"): 30.0 + i for i, name in enumerate("abcd")})
    rule.refresh_from_db()
    assert (set(firing()), rule.unlisted) == ({"c", "d"}, 2)


def test_rule_is_checked_against_the_columns(live: LiveQuery) -> None:
    with pytest.raises(Malformed) as refused:
        rule_of(live, name="", column="rt", for_windows=0, where="nothing = 1", comparison="eq", threshold=float("nan"))
    assert [fault.path for fault in refused.value.faults] == [
        "name",
        "comparison",
        "threshold",
        "for_windows",
        "column",
        "where",
    ]
    assert "n, rtt" in refused.value.faults[4].message
    rule_of(live)
    with pytest.raises(Conflict):
        rule_of(live)


def test_rule_whose_column_is_gone_reports_it(live: LiveQuery) -> None:
    rule = rule_of(live)
    arrive(live, 0, {AB: 30.0})
    AlertRule.objects.update(column="mean")
    arrive(live, 1, {AB: 30.0})
    rule.refresh_from_db()
    assert "no number 'mean'" in rule.fault
    assert firing() == ["a"], "what is not known resolves nothing"


def test_change_of_meaning_resolves_open_alerts(live: LiveQuery) -> None:
    rule = rule_of(live)
    arrive(live, 0, {AB: 30.0})
    alert_rule_update(rule=rule, severity="critical")
    assert firing() == ["a"]
    alert_rule_update(rule=rule, threshold=50.0)
    assert (firing(), Alert.objects.get().resolved_by) == ([], "changed")
    arrive(live, 1, {AB: 60.0})
    alert_rule_update(rule=rule, enabled=False)
    assert firing() == []


def test_stopped_query_has_no_alert(live: LiveQuery) -> None:
    rule_of(live)
    arrive(live, 0, {AB: 30.0})
    live_stop(live=live)
    assert Alert.objects.get().resolved_by == "stopped"


def test_firing_alerts_are_listed_by_severity(live: LiveQuery) -> None:
    for name, severity in (("w", "warning"), ("c", "critical"), ("n", "notice")):
        rule_of(live, name=name, severity=severity)
    arrive(live, 0, {AB: 30.0})
    Alert.objects.filter(rule__name="c").update(acknowledged_at="2026-11-21T14:00Z")
    assert [alert.rule.name for alert in alerts_firing(live.query.cluster)] == ["w", "n", "c"]


def test_rules_and_alerts_over_rest(api: APIClient, api_of: Callable[..., APIClient], live: LiveQuery) -> None:
    body = {"query": live.query_id, "name": "slow", "column": "rtt", "threshold": 20}
    made = api.post("/api/v1/alert-rules", body, format="json")
    assert made.status_code == 201, made.content
    path = made["Location"]
    assert api.post("/api/v1/alert-rules", body, format="json").status_code == 409
    wrong = api.post("/api/v1/alert-rules", {**body, "name": "x", "column": "rt"}, format="json")
    assert (wrong.status_code, wrong.json()["faults"][0]["path"]) == (400, "column")
    arrive(live, 0, {AB: 30.0})
    assert api.get(path).json()["firing_count"] == 1
    found = api.get("/api/v1/alerts?state=firing&cluster=little&acknowledged=false").json()["results"]
    assert [(row["rule_name"], row["group"], row["query"]) for row in found] == [
        ("slow", {"src": "a", "dst": "b"}, "probes")
    ]
    seen = f"/api/v1/alerts/{found[0]['id']}/acknowledge"
    first = api.post(seen, {"note": "on it"}, format="json").json()
    assert (first["acknowledged_by"], first["note"]) == ("a-operator", "on it")
    assert api_of("admitter").post(seen, {"note": "me too"}, format="json").json()["note"] == "on it"
    assert api.get("/api/v1/alerts?acknowledged=false").json()["results"] == []
    assert api.patch(path, {"threshold": 40}, format="json").status_code == 200
    assert api.get("/api/v1/alerts?state=firing").json()["results"] == []
    assert api.delete(path).status_code == 204
    assert not Alert.objects.exists()
