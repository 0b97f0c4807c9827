"""Saved views over REST."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rest_framework.test import APIClient

from apps.accounts.models import Grant, User
from apps.accounts.services import token_create

pytestmark = pytest.mark.django_db

VIEW = {"list_name": "queries", "name": "Late", "parameters": {"state": "breached", "sort": "-estimate"}}


@pytest.fixture
def api_of(user_of: Callable[..., User]) -> Callable[..., APIClient]:
    def make(role: str, *scopes: str) -> APIClient:
        user = user_of(role)
        _, secret = token_create(user=user, name="test", scopes=scopes or sorted(user.scopes))
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
        return client

    return make


def test_view_is_saved_made_default_and_deleted(api_of: Callable[[str], APIClient]) -> None:
    api = api_of("operator")
    made = api.post("/api/v1/saved-views", {**VIEW, "is_team": True, "is_team_default": True}, format="json")
    assert made.status_code == 201, made.content
    view = made.json()
    assert (view["is_team_default"], view["is_my_default"], view["owner"]) == (True, False, "a-operator")
    changed = api.patch(made["Location"], {"is_my_default": True, "name": "Breached"}, format="json").json()
    assert (changed["is_my_default"], changed["name"], changed["parameters"]) == (True, "Breached", VIEW["parameters"])
    assert api.patch(made["Location"], {"list_name": "nodes"}, format="json").status_code == 400
    assert api.delete(made["Location"]).status_code == 204
    assert api.get("/api/v1/saved-views").json()["results"] == []


def test_every_fault_of_a_view_is_named(api_of: Callable[[str], APIClient]) -> None:
    wrong = {"list_name": "queries", "name": "x" * 99, "parameters": {"page": "3", "state": "y" * 300}}
    answer = api_of("operator").post("/api/v1/saved-views", wrong, format="json")
    assert answer.status_code == 400
    assert {fault["path"] for fault in answer.json()["faults"]} == {"name", "parameters", "parameters.state"}


def test_own_views_of_others_are_not_there_and_team_views_not_theirs_to_change(
    api_of: Callable[[str], APIClient],
) -> None:
    owner, other = api_of("operator"), api_of("admitter")
    mine = owner.post("/api/v1/saved-views", VIEW, format="json")["Location"]
    team = owner.post("/api/v1/saved-views", {**VIEW, "is_team": True}, format="json")["Location"]
    assert other.get(mine).status_code == 404
    assert other.get(team).status_code == 200
    assert other.patch(team, {"name": "Theirs"}, format="json").status_code == 403
    assert other.delete(team).status_code == 403
    assert api_of("admin").patch(team, {"name": "Ours"}, format="json").status_code == 200


def test_an_administrator_does_not_make_a_view_of_the_team_another_persons_own(
    api_of: Callable[[str], APIClient],
) -> None:
    owner = api_of("operator")
    team = owner.post("/api/v1/saved-views", {**VIEW, "is_team": True}, format="json")["Location"]
    refused = api_of("admin").patch(team, {"is_team": False, "name": "Gone"}, format="json")
    assert refused.status_code == 409 and refused.json()["faults"][0]["path"] == "is_team"
    assert (owner.get(team).json()["is_team"], owner.get(team).json()["name"]) == (True, "Late")
    assert owner.patch(team, {"is_team": False}, format="json").status_code == 200


def test_view_of_one_person_is_no_default_of_the_team(api_of: Callable[[str], APIClient]) -> None:
    answer = api_of("operator").post("/api/v1/saved-views", {**VIEW, "is_team_default": True}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert api_of("operator").get("/api/v1/saved-views").json()["results"] == []


def test_one_view_of_a_list_opens_it_for_the_team(api_of: Callable[[str], APIClient]) -> None:
    api = api_of("operator")
    for name in ("First", "Second"):
        api.post("/api/v1/saved-views", {**VIEW, "name": name, "is_team": True, "is_team_default": True}, format="json")
    defaults = {row["name"]: row["is_team_default"] for row in api.get("/api/v1/saved-views").json()["results"]}
    assert defaults == {"First": False, "Second": True}


def test_taken_name_is_refused_for_the_same_readers_only(api_of: Callable[[str], APIClient]) -> None:
    api = api_of("operator")
    codes = [api.post("/api/v1/saved-views", {**VIEW, "is_team": team}, format="json").status_code
             for team in (False, True, True, False)]  # fmt: skip
    assert codes == [201, 201, 409, 409]


@pytest.mark.parametrize("scopes", [("read",), ("operate", "read"), ("admit", "operate", "read", "ingest")])
def test_token_of_an_administrator_without_the_scope_admin_changes_no_view_of_others(
    api_of: Callable[..., APIClient], scopes: tuple[str, ...]
) -> None:
    """A token has never more than its scopes, whoever made it."""
    team = api_of("operator").post("/api/v1/saved-views", {**VIEW, "is_team": True}, format="json")["Location"]
    lesser = api_of("admin", *scopes)
    for change in ({"name": "Theirs"}, {"is_team": False}, {"parameters": {"q": "x"}}, {"is_team_default": True}):
        assert lesser.patch(team, change, format="json").status_code == 403, change
    assert lesser.delete(team).status_code == 403
    assert lesser.patch(team, {"is_my_default": True}, format="json").status_code == 200
    assert api_of("admin", "admin").patch(team, {"name": "Ours"}, format="json").status_code == 200


def test_viewer_saves_changes_and_deletes_a_view_of_their_own(api_of: Callable[..., APIClient]) -> None:
    viewer = api_of("viewer")
    made = viewer.post("/api/v1/saved-views", {**VIEW, "is_my_default": True}, format="json")
    assert made.status_code == 201, made.content
    assert viewer.patch(made["Location"], {"name": "Mine"}, format="json").status_code == 200
    assert viewer.patch(made["Location"], {"is_team": True}, format="json").json()["code"] == "scope_missing"
    assert viewer.delete(made["Location"]).status_code == 204
    assert viewer.post("/api/v1/saved-views", {**VIEW, "is_team": True}, format="json").status_code == 403


def test_reading_token_of_an_operator_changes_nothing_that_the_team_sees(api_of: Callable[..., APIClient]) -> None:
    team = api_of("operator").post("/api/v1/saved-views", {**VIEW, "is_team": True}, format="json")["Location"]
    reader = api_of("operator", "read")
    assert reader.patch(team, {"name": "Other"}, format="json").json()["code"] == "scope_missing"
    assert reader.delete(team).json()["code"] == "scope_missing"


def test_owner_who_only_reads_by_now_changes_no_view_of_the_team(
    api_of: Callable[..., APIClient], user_of: Callable[..., User]
) -> None:
    team = api_of("operator").post("/api/v1/saved-views", {**VIEW, "is_team": True}, format="json")["Location"]
    Grant.objects.update(role="viewer")
    assert api_of("operator").delete(team).status_code == 403
