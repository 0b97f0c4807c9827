"""Tokens: what they may do, how they end, and that they cannot make others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.choices import Role, Scope
from apps.accounts.grants import grant_give
from apps.accounts.models import Grant, Token, User
from apps.accounts.services import token_create, token_digest, token_revoke
from apps.accounts.teams import team_create, team_update
from apps.core.errors import Forbidden, Malformed
from apps.fleet.models import Node, NodePool
from apps.queries.models import Query
from tests.apps.small_cluster import make_query, small_cluster

pytestmark = pytest.mark.django_db


def bearer(secret: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


@pytest.fixture
def session(user_of: Callable[..., User]) -> APIClient:
    """A signed-in operator, with CSRF checks as in a browser."""
    client = APIClient()
    client.force_login(user_of("operator"))
    return client


def test_only_the_digest_is_stored(user_of: Callable[..., User]) -> None:
    _, secret = token_create(user=user_of(), name="ci", scopes=["read"])
    assert secret.startswith("slu_")
    assert len(secret) > 40
    stored = Token.objects.get()
    assert stored.digest == token_digest(secret)
    assert secret not in str(Token.objects.values())
    assert secret.startswith(stored.prefix)


def test_every_fault_of_a_token_is_named(user_of: Callable[..., User]) -> None:
    past = timezone.now() - timedelta(days=1)
    with pytest.raises(Malformed) as caught:
        token_create(
            user=user_of(), name=" ", scopes=["read", "fly"], expires_at=past, networks=["10.0.0.0/8", "10.0.0.0/99"]
        )
    assert [fault.path for fault in caught.value.faults] == ["scopes[1]", "networks[1]", "name", "expires_at"]
    assert "'fly' is not one of read, admit" in caught.value.faults[0].message


def test_a_bound_token_reaches_its_places_alone(user_of: Callable[..., User]) -> None:
    user, team = user_of("operator"), team_create(name="bids")
    here, there = small_cluster("here"), small_cluster("there")
    _, secret = token_create(user=user, name="ci", scopes=["operate", "read"], clusters=[here])
    client = bearer(secret)
    assert [row["slug"] for row in client.get("/api/v1/clusters").json()["results"]] == ["here"]
    assert client.patch("/api/v1/clusters/here", {"name": "Here"}, format="json").status_code == 200
    assert client.get("/api/v1/clusters/there").status_code == 404
    assert client.get("/api/v1/tokens").json()["results"][0]["clusters"] == ["here"]
    Node.objects.all().delete()
    NodePool.objects.all().delete()
    here.delete()  # it does not become one for everything
    assert client.get("/api/v1/clusters").json()["results"] == []
    _, secret = token_create(user=user, name="team", scopes=["read"], teams=[team])
    assert bearer(secret).get("/api/v1/clusters").json()["results"] == []
    team_update(team=team, clusters=[there])
    assert [row["slug"] for row in bearer(secret).get("/api/v1/clusters").json()["results"]] == ["there"]


def test_a_token_is_not_bound_to_where_its_owner_may_nothing(user_of: Callable[..., User]) -> None:
    user = User.objects.create_user("ada")
    grant_give(user=user, role=Role.VIEWER, cluster=small_cluster("here"))
    with pytest.raises(Forbidden) as caught:
        token_create(user=user, name="ci", scopes=["read"], clusters=[small_cluster("there")])
    assert [fault.path for fault in caught.value.faults] == ["clusters"]


def test_a_token_cannot_do_more_than_its_owner(user_of: Callable[..., User]) -> None:
    with pytest.raises(Forbidden, match=r"Operator\) does not have admin, admit"):
        token_create(user=user_of("operator"), name="ci", scopes=["admin", "admit", "read"])


def test_token_loses_the_scopes_that_its_owner_loses(
    user_of: Callable[..., User], api_of: Callable[..., APIClient]
) -> None:
    client = api_of("operator")
    path = "/api/v1/jobs/00000000-0000-0000-0000-000000000000/cancel"
    assert client.post(path).status_code == 404
    Grant.objects.update(role=Role.VIEWER)
    assert client.post(path).status_code == 403
    User.objects.update(is_active=False)
    assert client.get("/api/v1/jobs").status_code == 401


def test_admin_includes_every_scope(api_of: Callable[..., APIClient]) -> None:
    assert api_of("admin", scopes=[Scope.ADMIN]).get("/api/v1/jobs").status_code == 200


@pytest.mark.parametrize(
    ("header", "word"),
    [("Bearer slu_unknown", "not known"), ("Basic YTpi", "only `Bearer"), ("Bearer ", "only `Bearer")],
)
def test_invalid_token_returns_401(header: str, word: str) -> None:
    answer = APIClient().get("/api/v1/jobs", headers={"Authorization": header})
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    assert word in answer.json()["detail"]


def test_revoked_and_expired_tokens_return_401_with_the_reason(user_of: Callable[..., User]) -> None:
    token, secret = token_create(user=user_of(), name="ci", scopes=["read"])
    assert bearer(secret).get("/api/v1/jobs").status_code == 200
    revoked_at = token_revoke(token=token).revoked_at
    assert token_revoke(token=token).revoked_at == revoked_at
    answer = bearer(secret).get("/api/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (401, "token_revoked")
    Token.objects.update(revoked_at=None, expires_at=timezone.now())
    answer = bearer(secret).get("/api/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (401, "token_expired")


@pytest.mark.parametrize(
    ("address", "networks", "status"),
    [
        ("10.1.2.3", ["10.0.0.0/8"], 200),
        ("::ffff:10.1.2.3", ["10.0.0.0/8"], 200),
        ("192.168.1.1", ["10.0.0.0/8", "fd00::/8"], 403),
        ("fd00::1", ["10.0.0.0/8", "fd00::/8"], 200),
        ("", ["10.0.0.0/8"], 403),
    ],
)
def test_token_is_refused_outside_its_networks(
    user_of: Callable[..., User], address: str, networks: list[str], status: int
) -> None:
    _, secret = token_create(user=user_of(), name="ci", scopes=["read"], networks=networks)
    answer = bearer(secret).get("/api/v1/jobs", REMOTE_ADDR=address)
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["code"] == "token_network"


def test_last_use_is_stored_at_most_once_a_minute(
    api: APIClient, django_assert_num_queries: Any, django_assert_max_num_queries: Any
) -> None:
    api.get("/api/v1/jobs")
    first = Token.objects.get().last_used_at
    assert first is not None
    with django_assert_max_num_queries(3) as queries:
        api.get("/api/v1/jobs")
    assert not any("UPDATE" in query["sql"] for query in queries.captured_queries)
    Token.objects.update(last_used_at=timezone.now() - timedelta(seconds=61))
    api.get("/api/v1/jobs")
    assert Token.objects.get().last_used_at > first


def test_a_token_cannot_change_tokens(api_of: Callable[..., APIClient]) -> None:
    client = api_of("admin")
    body = {"name": "another", "scopes": ["read"]}
    mine = client.get("/api/v1/tokens").json()["results"][0]
    for answer in (
        client.post("/api/v1/tokens", body, format="json"),
        client.post(f"/api/v1/tokens/{mine['id']}/revoke"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "session_only")
    assert Token.objects.count() == 1


def test_person_creates_lists_and_revokes_own_tokens(session: APIClient, user_of: Callable[..., User]) -> None:
    token_create(user=user_of("admin"), name="not hers", scopes=["read"])
    response = session.post("/api/v1/tokens", {"name": "ci", "scopes": ["read"]}, format="json")
    assert response.status_code == 201
    assert response["Cache-Control"] == "no-store"
    assert bearer(response.json()["secret"]).get(response["Location"]).json()["state"] == "active"
    listed = session.get("/api/v1/tokens").json()["results"]
    assert [row["name"] for row in listed] == ["ci"]
    assert "secret" not in listed[0]
    assert session.post(f"{response['Location']}/revoke").json()["state"] == "revoked"
    assert session.post("/api/v1/tokens/99999/revoke").status_code == 404


def test_response_with_the_secret_is_not_stored_for_idempotency(session: APIClient) -> None:
    answer = session.post(
        "/api/v1/tokens", {"name": "ci", "scopes": ["read"]}, format="json", headers={"Idempotency-Key": "k"}
    )
    assert answer.status_code == 400
    assert not Token.objects.exists()


def test_unknown_fields_and_scopes_are_refused_over_rest(session: APIClient) -> None:
    answer = session.post("/api/v1/tokens", {"name": "ci", "scope": ["read"], "scopes": ["read"]}, format="json")
    assert answer.json()["faults"] == [{"path": "scope", "message": "unknown field; did you mean scopes?"}]
    answer = session.post("/api/v1/tokens", {"name": "ci", "scopes": ["admin"]}, format="json")
    assert (answer.status_code, answer.json()["faults"][0]["path"]) == (403, "scopes")


def test_a_session_needs_its_csrf_token(user_of: Callable[..., User]) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(user_of("operator"))
    answer = client.post("/api/v1/tokens", {"name": "ci", "scopes": ["read"]}, format="json")
    assert answer.status_code == 403
    assert "CSRF" in answer.json()["detail"]


def test_the_command_prints_a_secret_that_works(user_of: Callable[..., User]) -> None:
    user, out = user_of("operator"), StringIO()
    call_command("create_token", username=user.username, scopes="read, operate", days=1.0, stdout=out)
    assert bearer(out.getvalue().strip()).get("/api/v1/clusters").status_code == 200
    token = Token.objects.get()
    assert token.scopes == [Scope.READ, Scope.OPERATE]
    assert token.expires_at is not None and token.expires_at <= timezone.now() + timedelta(days=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"username": "nobody"}, "There is no active user 'nobody'"),
        ({"scopes": "read,fly"}, "'fly' is not one of"),
        ({"scopes": "admin"}, "A token cannot do more than its owner"),
        ({"days": -1.0}, "has passed already"),
        ({"days": 1e12}, "allowed is a number of days"),
    ],
)
def test_create_token_command_reports_faults(user_of: Callable[..., User], options: dict[str, Any], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("create_token", **{"username": user_of("operator").username, **options})
    assert not Token.objects.exists()


@pytest.mark.parametrize("is_bound", [False, True])
def test_labels_set_by_a_narrower_token_widen_nobodys_reach(is_bound: bool) -> None:
    cluster, team, ann = small_cluster(), team_create(name="ads"), User.objects.create_user("ann")
    query = make_query(cluster, "counts", 0.5)
    Query.objects.filter(pk=query.pk).update(team=team, labels={"domain": "payments"})
    grant_give(user=ann, role="author", team=team)
    grant_give(user=ann, role="admitter", cluster=cluster, selector="tier=a")
    scopes = ["read", "author", *["admit"] * is_bound]
    _, secret = token_create(user=ann, name="ci", scopes=scopes, teams=[team] * is_bound)
    client, path = bearer(secret), f"/api/v1/queries/{query.pk}"
    labels = {"domain": "payments", "tier": "a"}
    refused = client.patch(path, {"labels": labels}, format="json")
    assert refused.status_code == 403 and "the scopes 'admit', 'ingest'" in refused.json()["detail"]
    assert client.patch(path, {"labels": labels | {"tier": "b"}}, format="json").status_code == 200
