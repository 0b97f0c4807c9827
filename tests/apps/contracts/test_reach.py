"""Nobody is shown, or changes, what is out of their reach: every page and endpoint, asked from another cluster.

Each text of the world's cluster carries a canary. Somebody who administers another cluster, and nothing else, asks for
everything: the canary is in no answer, and what is named by its address is as good as not there.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.apps import apps
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models import F, QuerySet, Value
from django.db.models.functions import Concat
from django.test import Client
from rest_framework.test import APIClient

from apps.accounts.grants import grant_give
from apps.accounts.models import Team, User
from apps.accounts.services import token_create
from apps.accounts.teams import team_named, team_update
from apps.core.reach import cluster_path, is_topic_visible, places_seen, query_path
from apps.fleet.models import Cluster
from apps.fleet.services import node_create, pool_create
from apps.queries.models import ArrivalSeries, Query
from tests.apps.contracts.endpoints import ENDPOINTS
from tests.apps.contracts.pages import PAGES, page_address
from tests.apps.contracts.test_endpoints import address
from tests.apps.people import person
from tests.apps.small_cluster import small_cluster
from tests.thoroughness import share_of

pytestmark = pytest.mark.django_db

CANARY = "Zqcanaryqzqx"  #: long enough to stand in no random token
_TEXTS = {"name", "title", "description", "note", "source_id", "host", "message"}
#: Answers that show nothing and change nothing.
HIDDEN = {302, 400, 403, 404, 405, 409, 412, 415, 422, 428}


def _rows(model: type[models.Model], cluster: Cluster) -> QuerySet[Any]:
    if model._meta.label == "ledger.ObjectChange":
        return model._base_manager.filter(cluster_key=cluster.pk)
    path = cluster_path(model)
    rows: QuerySet[Any] = QuerySet(model)  # past what records changes
    return rows.none() if path is None else rows.filter(**{path or "pk": cluster.pk})


@pytest.fixture
def stranger(world: dict[str, Any]) -> User:
    """Administrator of a cluster of their own, after every text of the world's cluster got its canary."""
    cluster = Cluster.objects.get(slug=world["cluster"])
    for model in apps.get_models():
        for column in model._meta.concrete_fields:
            if column.name in _TEXTS and isinstance(column, (models.CharField, models.TextField)):
                rows = _rows(model, cluster).exclude(**{column.name: ""})
                rows.update(**{column.name: Concat(Value(CANARY), F(column.name))})
    user = User.objects.create_user("stranger")
    grant_give(user=user, role="admin", cluster=small_cluster("elsewhere"))
    return user


def _counts() -> dict[str, int]:
    """Numbers of rows, of what a stranger may not make."""
    own = {"accounts.User", "accounts.Token", "sessions.Session", "core.IdempotencyRecord", "ledger.ObjectChange"}
    return {m._meta.label: m._base_manager.count() for m in apps.get_models() if m._meta.label not in own}


def _token_client(user: User) -> APIClient:
    _, secret = token_create(user=user, name="contract", scopes=sorted(user.scopes))
    client = APIClient(raise_request_exception=True)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


def _content(answer: Any) -> str:
    body = b"".join(answer.streaming_content) if answer.streaming and not answer.is_async else answer.content
    return body.decode(errors="replace")


def test_every_model_leads_to_its_cluster_or_is_known_to_have_none() -> None:
    """A new model is either of a cluster, by its keys, or named here."""
    loose = {model._meta.label for model in apps.get_models() if cluster_path(model) is None}
    assert {label for label in loose if not label.startswith(("auth.", "contenttypes.", "django_celery"))} == {
        "accounts.Group", "accounts.Team", "accounts.Token", "accounts.User",
        "core.IdempotencyRecord", "core.InstallationSecret", "estimates.DocumentEstimate", "ledger.KeptRows",
        "ledger.LedgerMark", "ledger.LedgerWebhook", "ledger.ObjectChange",
        "measurements.StreamStretch", "queries.RowChange", "saved_views.DefaultView", "saved_views.SavedView",
        "sessions.Session", "telemetry.StreamPlan",
        "signin.Invitation", "signin.ProviderAccount", "signin.ProviderSession", "signin.RecoveryCode",
        "signin.SecondFactor", "signin.ServiceAccount", "signin.Session",
    }  # fmt: skip


def test_no_endpoint_shows_what_is_out_of_reach(stranger: User, world: dict[str, Any]) -> None:
    client, shown = _token_client(stranger), {}
    for name, endpoint in ENDPOINTS.items():
        if "GET" not in endpoint.methods:
            continue
        answer = client.get(address(name, world))
        text = _content(answer)
        is_named = bool(endpoint.at) and not endpoint.session_only and name != "saved-view-detail"
        if CANARY in text or (is_named and answer.status_code not in {403, 404}):
            shown[name] = (answer.status_code, text[:200])
    assert shown == {}


def test_no_page_shows_what_is_out_of_reach(stranger: User, world: dict[str, Any]) -> None:
    client, shown = Client(), {}
    client.force_login(stranger)
    for name, page in PAGES.items():
        if page.get is None:
            continue
        answer = client.get(page_address(name, world))
        text = _content(answer)
        if CANARY in text or (answer.status_code == 200 and f"/c/{world['cluster']}/" in text):
            shown[name] = (answer.status_code, text[max(0, text.find(CANARY) - 100) :][:250])
    assert shown == {}


def test_nothing_out_of_reach_is_changed(stranger: User, world: dict[str, Any]) -> None:
    client, browser, done = _token_client(stranger), Client(), {}
    browser.force_login(stranger)
    before = _counts()
    named = {"cluster": world["cluster"], "query": world["query_pk"], "ids": [world["query_pk"], world["node_pk"]]}
    bodies = share_of(({**named, "definition": world["definition"]}, {**named, "action": "delete"}, named, {}), 2)
    for name, endpoint in ENDPOINTS.items():
        if endpoint.other_sign_in or endpoint.session_only or name.startswith("saved-view"):
            continue
        for method in endpoint.methods.keys() - {"GET"}:
            for body in bodies:
                answer = client.generic(method, address(name, world), json.dumps(body), "application/json")
                is_each_refused = name.endswith("-bulk") and not json.loads(answer.content).get("done")
                if answer.status_code not in HIDDEN and not is_each_refused:
                    done[name, method] = (answer.status_code, answer.content[:200])
    for name, page in PAGES.items():
        if page.post is not None and not name.startswith(
            ("accounts:", "pages:saved-view", "signin:session", "signin:second", "signin:unlink", "signin:recovery")
        ):
            reply = browser.post(page_address(name, world), {"confirm": world["cluster"]})
            if reply.status_code not in {403, 404, 405}:
                done[name, "POST"] = (reply.status_code, reply.content[:200])
    assert done == {}
    assert {label: (before[label], n) for label, n in _counts().items() if before[label] != n} == {}


def test_a_reader_of_everything_changes_one_cluster_alone(world: dict[str, Any]) -> None:
    """403 where it is seen and may not be changed: with the role that it takes, and where."""
    user = person("reader", "viewer")
    grant_give(user=user, role="operator", cluster=small_cluster("elsewhere"))
    client = _token_client(user)
    path = f"/api/v1/clusters/{world['cluster']}"
    assert client.get(path).status_code == 200
    refusal = client.patch(path, {"name": "Mine"}, format="json")
    assert (refusal.status_code, refusal.json()["code"]) == (403, "scope_missing")
    assert f"on the cluster {world['cluster']}" in refusal.json()["detail"]
    assert "Operator" in refusal.json()["detail"]
    assert client.patch("/api/v1/clusters/elsewhere", {"name": "Mine"}, format="json").status_code == 200
    page = Client()
    page.force_login(user)
    assert page.get(f"/c/{world['cluster']}/queries/").status_code == 200
    assert page.get(page_address("pages:node-new", world)).status_code == 403


def test_a_role_on_a_team_counts_for_its_queries_alone(world: dict[str, Any]) -> None:
    """Beside seeing the cluster: what others own stays as it is."""
    cluster, team = Cluster.objects.get(slug=world["cluster"]), team_named("bids")
    own, other = cluster.queries.get(name="draft"), cluster.queries.get(name="calm")
    QuerySet(type(own)).filter(pk=own.pk).update(team=team)
    user = User.objects.create_user("author")
    grant_give(user=user, role="viewer", cluster=cluster)
    grant_give(user=user, role="author", team=team)
    client, page = _token_client(user), Client()
    page.force_login(user)
    change = {"description": "Bids of the last minute."}
    assert client.patch(f"/api/v1/queries/{own.pk}", change, format="json").status_code == 200
    assert client.patch(f"/api/v1/queries/{other.pk}", change, format="json").status_code == 403
    assert client.post(f"/api/v1/queries/{own.pk}/stop").status_code == 403  # that takes an operator
    edit = "/c/{}/queries/{}/edit/"
    assert page.get(edit.format(cluster.slug, "draft")).status_code == 200
    assert page.get(edit.format(cluster.slug, "calm")).status_code == 403
    assert "Edit</a>" in _content(page.get(f"/c/{cluster.slug}/queries/draft/"))
    assert "Edit</a>" not in _content(page.get(f"/c/{cluster.slug}/queries/calm/"))


def test_a_change_of_place_is_shown_by_its_answer_or_leaves_all_as_it_was(world: dict[str, Any]) -> None:
    """Each field that says whose a row is, sent with another place: no row is given out of its caller's sight."""
    cluster, elsewhere = Cluster.objects.get(slug=world["cluster"]), small_cluster("elsewhere")
    team = team_named("bids")
    QuerySet(Query).filter(pk=world["query_pk"]).update(team=team, labels={"domain": "payments"})
    other = Query.objects.create(cluster=elsewhere, name="other")
    places: dict[str, list[Any]] = {"cluster": ["elsewhere", None], "team": ["ads", ""], "owner": ["a-viewer", None]}
    places |= {"labels": [{}, {"domain": "payments", "tier": "a"}]}
    places |= {"query": [other.pk], "pool": [elsewhere.pools.get().pk], "definition": [10**6], "clusters": [[]]}
    callers = {name: User.objects.create_user(name) for name in ("of-cluster", "of-team", "of-labels")}
    grant_give(user=callers["of-cluster"], role="admin", cluster=cluster)
    grant_give(user=callers["of-team"], role="admin", team=team)
    grant_give(user=callers["of-labels"], role="admin", cluster=cluster, selector="domain=payments")
    clients, reader = [_token_client(user) for user in callers.values()], _token_client(person("all", "admin"))
    wrong, tried = {}, 0
    for name, endpoint in ENDPOINTS.items():
        path = address(name, world)
        for method in endpoint.methods.keys() & {"PATCH", "PUT"} if "GET" in endpoint.methods else ():
            before = reader.get(path).json()
            fields = sorted(places.keys() & before)
            for field, value, client in [(f, value, c) for f in fields for value in places[f] for c in clients]:
                answer = client.generic(method, path, json.dumps({field: value}), "application/json")
                tried += 1
                if answer.status_code == 200 and (answer.json()[field] or "") == (value or ""):
                    assert client.get(path).status_code == 200, (name, field, value)
                    before = reader.get(path).json()
                elif answer.status_code not in HIDDEN or reader.get(path).json() != before:
                    wrong[name, field, value] = (answer.status_code, answer.content[:200])
    assert wrong == {} and tried > 20


#: What a part of a cluster is given by: the team that owns a query, or labels that it has.
PARTS: dict[str, dict[str, Any]] = {"team": {"team": "bids"}, "labels": {"labels": {"domain": "payments", "tier": "a"}}}
SELECTOR = "domain in (payments,fraud),!canary"


@pytest.fixture(params=list(PARTS))
def member(world: dict[str, Any], request: pytest.FixtureRequest) -> User:
    """Holder of a part with one query of the world's cluster, after the texts of every other got their canary.

    Names are changed within what was computed, too: verdicts, estimates, charts.
    """
    cluster, part = Cluster.objects.get(slug=world["cluster"]), dict(PARTS[request.param])
    if "team" in part:
        part["team"] = team_named(part["team"])
    own = cluster.queries.get(name="draft")
    QuerySet(Query).filter(pk=own.pk).update(**part)
    cluster.queries.exclude(pk=own.pk).update(labels={"domain": "payments", "canary": "yes"})
    pool_create(cluster=cluster, name="own", capacity_cps=1e9, **part)
    others = {query.pk: query.name for query in cluster.queries.exclude(pk=own.pk)}
    names = re.compile(rf"""(?<![A-Za-z0-9_-])({"|".join(map(re.escape, others.values()))})(?![A-Za-z0-9_-])""")
    for model in apps.get_models():
        query = query_path(model)
        for row in _rows(model, cluster):
            is_foreign = (model is ArrivalSeries and row.source_id != "clicks") or (
                query is not None
                and _rows(model, cluster).filter(pk=row.pk).exclude(**{query or "pk": own.pk}).exists()
            )
            changed = {}
            for column in model._meta.concrete_fields:
                value = getattr(row, column.attname)
                if isinstance(column, models.JSONField):
                    text = names.sub(rf"{CANARY}\1", json.dumps(value, cls=DjangoJSONEncoder))
                    changed[column.name] = json.loads(text)
                elif column.name in _TEXTS and isinstance(value, str) and value not in {"", "clicks"}:  # own reads it
                    changed[column.name] = CANARY + value if is_foreign else names.sub(rf"{CANARY}\1", value)
            QuerySet(model).filter(pk=row.pk).update(**changed)
    user = User.objects.create_user("member")
    place = {"team": part["team"]} if "team" in part else {"cluster": cluster, "selector": SELECTOR}
    grant_give(user=user, role="admin", **place)
    return user


def test_who_sees_a_part_is_shown_nothing_of_what_others_own(member: User, world: dict[str, Any]) -> None:
    """Every page and endpoint, about what others own and then about what is in the part."""
    own = Query.objects.get(name="draft")
    places = [world, {**world, "query": own.name, "query_pk": own.pk}]
    client, page, shown, seen = _token_client(member), Client(), {}, set()
    page.force_login(member)
    for place in places:
        asked: list[tuple[str, Any, str]] = [
            (name, client, address(name, place)) for name, entry in ENDPOINTS.items() if "GET" in entry.methods
        ]
        asked += [(name, page, page_address(name, place)) for name, entry in PAGES.items() if entry.get is not None]
        for name, caller, at in asked:
            answer = caller.get(at)
            text = _content(answer)
            if CANARY in text:
                shown[name] = (answer.status_code, text[max(0, text.find(CANARY) - 100) :][:250])
            seen |= {name} if answer.status_code == 200 else set()
    assert shown == {}
    assert {"cluster-detail", "query-detail", "query-versions", "query-statistics"} <= seen
    assert {"admission-list", "admission-detail", "admission-curves", "pages:admission"} <= seen
    assert {
        "pages:query-remedies",
        "receipt-list",
        "receipt-detail",
        "receipt-summary",
        "node-pool-list",
        "arrivals-list",
    } <= seen
    assert {"pages:queries", "pages:query", "pages:query-versions", "pages:query-edit", "pages:query-new"} <= seen


def test_who_sees_a_part_sees_pools_and_sources_of_it_and_changes_none(member: User, world: dict[str, Any]) -> None:
    """With the nodes of the pools; others' are not there."""
    client, cluster = _token_client(member), Cluster.objects.get(slug=world["cluster"])
    own, other = cluster.pools.get(name="own"), cluster.pools.exclude(name="own").get()
    node, source = node_create(pool=own, name="own-1"), cluster.arrivals.get(pk=world["series"])
    QuerySet(ArrivalSeries).filter(pk=source.pk).update(team=own.team, labels=own.labels)
    rows = {"node-pools": own.pk, "nodes": node.pk, "arrivals": source.pk}
    for kind, pk in rows.items():
        shown = client.get(f"/api/v1/{kind}?cluster={cluster.slug}").json()["results"]
        assert [row["id"] for row in shown] == [pk], kind
        for method in ("patch", "delete"):
            refused = getattr(client, method)(f"/api/v1/{kind}/{pk}", {"labels": {}}, format="json")
            assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing"), (kind, method)
    assert client.get(f"/api/v1/node-pools/{other.pk}").status_code == 404
    assert client.get(f"/api/v1/arrivals/{source.pk}/series").status_code == 200
    table = _content(client.get(f"/api/v1/nodes/export?cluster={cluster.slug}")).splitlines()
    assert len(table) == 2 and table[1].startswith("own-1,own,")
    made = {"cluster": cluster.slug, "name": "more", "capacity_cps": 1e9, "labels": own.labels}
    assert client.post("/api/v1/node-pools", made, format="json").status_code == 403
    assert client.post(f"/api/v1/node-pools/{own.pk}/plan", {"count": 1}, format="json").status_code == 403
    drained = client.post("/api/v1/nodes/bulk", {"ids": [node.pk], "action": "drain"}, format="json")
    assert drained.status_code in {403, 200} and not drained.json().get("done")


def test_who_sees_a_part_is_told_of_that_alone(member: User, world: dict[str, Any]) -> None:
    places, cluster = places_seen(member.reach), world["cluster"]
    assert places is not None
    told = {place: is_topic_visible(f"query:{place}", places) for place in (f"{cluster}/draft", f"{cluster}/calm")}
    assert told == {f"{cluster}/draft": True, f"{cluster}/calm": False}
    assert is_topic_visible(f"cluster:{cluster}", places) and not is_topic_visible("cluster:elsewhere", places)


def test_an_author_of_a_team_registers_its_queries_and_no_others(world: dict[str, Any]) -> None:
    cluster, team = Cluster.objects.get(slug=world["cluster"]), team_named("bids")
    assert team is not None
    user = User.objects.create_user("author")
    grant_give(user=user, role="author", team=team)
    client, other = _token_client(user), cluster.queries.get(name="calm")
    body = {"operators": [{"id": "work", "inputs": [{"from": "clicks", "selectivity": 1.0, "cycles_per_event": 1e3}]}]}
    query = {"cluster": cluster.slug, "name": "mine", **body}
    assert client.post("/api/v1/queries", {**query, "team": "bids"}, format="json").status_code == 400
    team_update(team=team, clusters=[cluster])
    for owner in ("", "ads", "new"):
        refused = client.post("/api/v1/queries", {**query, "team": owner}, format="json")
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing"), refused.content
        assert "'bids'" in refused.json()["detail"]
    assert not Team.objects.filter(name="new").exists()
    made = client.post("/api/v1/queries", {**query, "team": "bids"}, format="json")
    assert made.status_code == 201, made.content
    assert client.patch(made["Location"], {"team": "ads"}, format="json").status_code == 403
    asked = {"cluster": cluster.slug, "query": "mine"}
    assert client.post("/api/v1/admissions", asked, format="json").status_code in {200, 202}
    assert client.post("/api/v1/admissions", {**asked, "query": other.name}, format="json").status_code == 404
    document = {"query": other.name, "team": "bids", **body}
    taken = client.post("/api/v1/admissions", {"cluster": cluster.slug, "document": document}, format="json")
    assert taken.status_code == 404
    assert client.post("/api/v1/admissions", {**asked, "mode": "apply"}, format="json").status_code == 403
    page = Client()
    page.force_login(user)
    assert page.get("/", follow=True).redirect_chain[-1][0] == f"/c/{cluster.slug}/queries/"
    assert 'value="bids"' in _content(page.get(f"/c/{cluster.slug}/queries/-/new/"))
    assert "clicks" in _content(page.get(f"/c/{cluster.slug}/queries/-/example/"))
    form = {"name": "more", "statistic": "worst", "bound_s": "9", "priority": "0", "document": json.dumps(body)}
    assert "not a team" in _content(page.post(f"/c/{cluster.slug}/queries/-/new/", form))


def test_team_of_a_query_widens_nobodys_reach(world: dict[str, Any]) -> None:
    """An author of one team gives nothing to another one, for which they admit."""
    cluster = Cluster.objects.get(slug=world["cluster"])
    own, judged = (Team.objects.create(name=name) for name in ("own", "judged"))
    query = cluster.queries.get(name="draft")
    QuerySet(Query).filter(pk=query.pk).update(team=own)
    user = User.objects.create_user("author")
    grant_give(user=user, role="author", team=own)
    grant_give(user=user, role="admitter", team=judged)
    answer = _token_client(user).patch(f"/api/v1/queries/{query.pk}", {"team": "judged"}, format="json")
    assert (answer.status_code, answer.json()["faults"][0]["path"]) == (403, "team"), answer.json()


def test_labels_of_a_query_widen_nobodys_reach(world: dict[str, Any]) -> None:
    """A query is within the reach of who labels it, before and after, and no scope is gained by that."""
    cluster = Cluster.objects.get(slug=world["cluster"])
    own, other = cluster.queries.get(name="draft"), cluster.queries.get(name="calm")
    QuerySet(Query).filter(pk=own.pk).update(labels={"domain": "payments"})
    user = User.objects.create_user("author")
    grant_give(user=user, role="author", cluster=cluster, selector="domain=payments")
    grant_give(user=user, role="admitter", cluster=cluster, selector="tier=a")
    client = _token_client(user)
    body = {"operators": [{"id": "work", "inputs": [{"from": "clicks", "selectivity": 1.0}]}]}
    listed = client.get(f"/api/v1/queries?cluster={cluster.slug}").json()["results"]
    assert [row["name"] for row in listed] == ["draft"]
    assert (
        client.patch(f"/api/v1/queries/{other.pk}", {"labels": {"domain": "payments"}}, format="json").status_code
        == 404
    )
    path, refused = f"/api/v1/queries/{own.pk}", {}
    for labels in ({}, {"domain": "fraud"}, {"domain": "payments", "tier": "a"}, {"tier": "a"}):
        answer = client.patch(path, {"labels": labels}, format="json")
        refused[str(labels)] = (answer.status_code, answer.json()["code"])
    assert set(refused.values()) == {(403, "scope_missing")}, refused
    kept = client.patch(path, {"labels": {"domain": "payments", "tier": "b"}}, format="json")
    assert kept.status_code == 200 and kept.json()["labels"] == {"domain": "payments", "tier": "b"}
    query = {"cluster": cluster.slug, "name": "mine", **body}
    assert client.post("/api/v1/queries", query, format="json").status_code == 403
    answer = client.post("/api/v1/queries", {**query, "labels": {"domain": "payments"}}, format="json")
    assert answer.status_code == 201, answer.content
    page = Client()
    page.force_login(user)
    assert 'value="domain=payments"' in _content(page.get(f"/c/{cluster.slug}/queries/-/new/"))
    typed = {"name": "draft", "statistic": "none", "priority": "0", "labels": "domain=fraud"}
    refusal = page.post(f"/c/{cluster.slug}/queries/draft/edit/", typed)
    assert refusal.status_code == 422 and "the labels domain=payments" in _content(refusal)
    told = _content(page.get(f"/c/{cluster.slug}/queries/?labels=domain%3Dpayments%2Ctier"))
    assert ">draft<" in told and ">mine<" not in told


def test_an_author_registers_queries_and_changes_nothing_else(world: dict[str, Any]) -> None:
    user = User.objects.create_user("author")
    grant_give(user=user, role="author", cluster=Cluster.objects.get(slug=world["cluster"]))
    client = _token_client(user)
    body = {"operators": [{"id": "work", "inputs": [{"from": "clicks", "selectivity": 1.0, "cycles_per_event": 1e3}]}]}
    made = client.post("/api/v1/queries", {"cluster": world["cluster"], "name": "mine", **body}, format="json")
    assert made.status_code == 201, made.content
    assert client.delete(made["Location"]).status_code == 204
    refused = client.patch(f"/api/v1/nodes/{world['node_pk']}", {"cores": 1}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
