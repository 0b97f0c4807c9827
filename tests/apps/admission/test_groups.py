"""Groups: several queries asked for together, admitted all or none, in one transaction and one entry of the queue."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import QuerySet
from rest_framework.test import APIClient

from apps.accounts.choices import Role
from apps.accounts.grants import grant_give
from apps.accounts.models import User
from apps.accounts.services import token_create
from apps.accounts.teams import team_named
from apps.admission.choices import AdmissionState, Verdict
from apps.admission.decisions import (
    admission_apply,
    admission_decline,
    admission_override,
    admission_withdraw,
)
from apps.admission.groups import GroupQuestion
from apps.admission.models import AdmissionGroup, AdmissionRequest, Promise
from apps.admission.month_replays import MonthReplay, month_replay_request
from apps.admission.policy_previews import policy_preview
from apps.admission.previews import ADMISSION, queue_review
from apps.admission.questions import AdmissionQuestion, MemberQuestion
from apps.admission.queue import cluster_queue
from apps.admission.replays import replay_request
from apps.admission.selectors import admission_standing
from apps.core.errors import Conflict, Malformed, Stale
from apps.estimates.refresh import refresh_paused
from apps.fleet.models import Cluster
from apps.fleet.services import node_update
from apps.ledger.models import ObjectChange
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.services import query_create, query_delete, query_stop, query_version_create
from tests.apps.policies.documents import set_policy
from tests.apps.recordings import recorded
from tests.apps.small_cluster import body, make_query, run_jobs, small_cluster, start_query, user

pytestmark = pytest.mark.django_db

FREEZE = {"name": "sale", "begins": "2020-01-01T00:00:00+00:00", "ends": "2090-01-01T00:00:00+00:00"}
URL = "/api/v1/admissions/groups"


@pytest.fixture
def cluster() -> Cluster:
    """Node a is at 0.6, node b at 0.4."""
    return recorded(_busy_cluster)


def _busy_cluster() -> Cluster:
    cluster = small_cluster()
    start_query(cluster, "first", 0.6, "a")
    start_query(cluster, "second", 0.4, "b")
    return cluster


@pytest.fixture
def admitter() -> Any:
    return user(Role.ADMITTER)


def question(*names: str, **asked: Any) -> GroupQuestion:
    return GroupQuestion(members=tuple(MemberQuestion(query=name) for name in names), **asked)


def ask(cluster: Any, asker: Any, *names: str, **asked: Any) -> list[AdmissionRequest]:
    request, _ = ADMISSION.request(cluster=cluster, user=asker, question=question(*names, **asked))
    run_jobs()
    return request.members


def states(*names: str) -> list[str]:
    return [Query.objects.get(name=name).state for name in names]


def test_group_that_fits_starts_as_one(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.2)
    make_query(cluster, "fourth", 0.3)
    members = ask(cluster, admitter, "third", "fourth")
    assert {(row.state, row.verdict) for row in members} == {(AdmissionState.PREVIEW, Verdict.ADMIT)}
    assert admission_standing(members[1]).can_apply
    before = ObjectChange.objects.filter(kind="decision").count()
    admission_apply(request=members[1], user=admitter)
    assert states("third", "fourth") == [QueryState.RUNNING, QueryState.RUNNING]
    (entry,) = ObjectChange.objects.filter(kind="decision")[before:]
    group = AdmissionGroup.objects.get()
    assert (entry.name, entry.after["members"]) == ("third v1 and fourth v1", ["third v1", "fourth v1"])
    assert (entry.object_id, entry.after["group"]) == (str(members[0].pk), str(group.pk))
    assert Promise.objects.filter(request__group=group).count() == 2
    assert {row.state for row in AdmissionRequest.objects.all()} == {AdmissionState.APPLIED}


def test_group_that_does_not_fit_says_which_do(cluster: Any, admitter: Any) -> None:
    """0.6 and 0.4 run on two nodes: of three with 0.35 the last finds no room."""
    for name in ("third", "fourth", "fifth"):
        make_query(cluster, name, 0.35)
    members = ask(cluster, admitter, "third", "fourth", "fifth")
    answer = AdmissionGroup.objects.get().answer
    assert answer is not None
    assert (answer.verdict, answer.fitting) == (Verdict.REJECT, ("third", "fourth"))
    assert [row.alone for row in answer.members] == ["admit", "admit", "admit"]
    assert {row.verdict for row in members} == {Verdict.REJECT}
    assert not admission_standing(members[0]).can_apply


def test_group_is_stale_once_the_cluster_or_a_member_changes(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.1)
    make_query(cluster, "fourth", 0.1)
    members = ask(cluster, admitter, "third", "fourth")
    with refresh_paused():
        node_update(node=cluster.nodes.get(name="a"), capacity_cps=990.0)
    with pytest.raises(Stale):
        admission_apply(request=members[0], user=admitter)
    assert states("third", "fourth") == [QueryState.DRAFT, QueryState.DRAFT]
    again, _ = ADMISSION.request(parent=members[1], user=admitter)
    run_jobs()
    assert [str(row.version) for row in again.members] == ["third v1", "fourth v1"]
    assert {row.state for row in AdmissionRequest.objects.filter(group=members[0].group_id)} == {"superseded"}
    admission_apply(request=again, user=admitter)
    assert states("third", "fourth") == [QueryState.RUNNING, QueryState.RUNNING]


@pytest.mark.parametrize("lost", ["third", "fourth"])
def test_group_that_lost_a_member_is_not_applied_by_halves(cluster: Any, admitter: Any, lost: str) -> None:
    make_query(cluster, "third", 0.1)
    make_query(cluster, "fourth", 0.1)
    members = ask(cluster, admitter, "third", "fourth")
    (left,) = [row for row in members if row.query.name != lost]
    query_delete(query=Query.objects.get(name=lost))
    assert f"{lost} v1" in " ".join(admission_standing(left).changes)
    with pytest.raises(Conflict, match="1 query of the group was deleted") as refused:
        admission_apply(request=left, user=admitter)
    assert refused.value.code == "group_incomplete"
    queue_review()
    left.refresh_from_db()
    assert (left.state, states(left.query.name)) == (AdmissionState.WITHDRAWN, [QueryState.DRAFT])
    assert left.decision_reason.startswith("1 query of the group was deleted")


def test_faults_of_all_members_are_told_at_once(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.1)
    members = (
        MemberQuestion(query="nobody"),
        MemberQuestion(query="third", placement={"nothing": "a"}),
        MemberQuestion(query="first"),
    )
    with pytest.raises(Malformed) as refused:
        ADMISSION.request(cluster=cluster, user=admitter, question=GroupQuestion(members=members))
    paths = [fault.path for fault in refused.value.faults]
    assert paths == ["members[0].query", "members[1].placement.nothing", "members[2].query"]
    assert not AdmissionGroup.objects.exists()


def test_changes_of_two_members_that_contradict_are_refused(cluster: Any, admitter: Any) -> None:
    """An operator that two of them move, one that is another's, also where it runs in an earlier version; a start."""
    make_query(cluster, "third", 0.1)
    make_query(cluster, "fourth", 0.1)
    query_version_create(query=Query.objects.get(name="first"), body=body(0.1), user=admitter)

    def move(operator: str, node: str) -> dict[str, object]:
        return {"kind": "move", "operator": operator, "node": node}

    members = (
        MemberQuestion(query="third", changes=(move("second/work", "a"), move("first/work", "b"))),
        MemberQuestion(query="fourth", changes=(move("second/work", "b"), {"kind": "start_at", "p": 9})),
        MemberQuestion(query="first", changes=(move("first/work", "b"),)),
    )
    with pytest.raises(Malformed) as refused:
        ADMISSION.request(cluster=cluster, user=admitter, question=GroupQuestion(members=members))
    paths = ["members[0].changes[1].operator", "members[1].changes[0].operator", "members[1].changes[1].p"]
    assert [fault.path for fault in refused.value.faults] == paths
    assert not AdmissionGroup.objects.exists()


def test_same_query_twice_is_refused() -> None:
    with pytest.raises(Exception, match="allowed: each query once"):
        GroupQuestion.parse({"members": [{"query": "a"}, {"query": "a"}]})


def test_group_waits_and_starts_as_one_entry(cluster: Any, admitter: Any) -> None:
    """A freeze holds both; once it is lifted the group starts whole."""
    make_query(cluster, "third", 0.1)
    make_query(cluster, "fourth", 0.1)
    set_policy(
        cluster, freezes=[{"name": "sale", "begins": "2020-01-01T00:00:00+00:00", "ends": "2090-01-01T00:00:00+00:00"}]
    )
    members = ask(cluster, admitter, "third", "fourth", mode="apply", may_wait_s=9e5)
    assert {(row.state, row.verdict) for row in members} == {(AdmissionState.QUEUED, Verdict.QUEUE)}
    queue = cluster_queue(cluster)
    ((row, place),) = queue.places
    assert (row, place.place) == (members[0], 1)
    assert queue.place_of(members[1]) == place
    set_policy(cluster)
    assert queue_review() == 1
    run_jobs()
    assert states("third", "fourth") == [QueryState.RUNNING, QueryState.RUNNING]


def test_waiting_group_keeps_its_room_and_ends_whole(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.3)
    make_query(cluster, "fourth", 0.3)
    set_policy(
        cluster, freezes=[{"name": "sale", "begins": "2020-01-01T00:00:00+00:00", "ends": "2090-01-01T00:00:00+00:00"}]
    )
    members = ask(cluster, admitter, "third", "fourth", mode="apply", may_wait_s=9e5)
    set_policy(cluster)
    AdmissionRequest.objects.filter(query__name="third").update(starts_at=None)
    make_query(cluster, "late", 0.35)
    late, _ = ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query="late"))
    run_jobs()
    late.refresh_from_db()
    assert late.verdict == Verdict.REJECT
    (reason,) = [row for row in late.result["reasons"] if row["severity"] == "bad"]
    assert reason["code"] == "queue_precedence"
    query_stop(query=Query.objects.get(name="fourth"))
    queue_review()
    assert {row.state for row in members[0].members} == {AdmissionState.WITHDRAWN}


def test_quotas_count_all_members(cluster: Any, admitter: Any) -> None:
    for name in ("third", "fourth"):
        query_create(cluster=cluster, name=name, body=body(0.1, "clicks"), team="sales", objective=None)
    set_policy(cluster, teams=[{"team": "sales", "quotas": {"queries": {"nominal": 1}}}])
    members = ask(cluster, admitter, "third", "fourth")
    assert {row.verdict for row in members} == {Verdict.REJECT}
    codes = [[row["code"] for row in member.result["reasons"] if row["severity"] == "bad"] for member in members]
    assert codes == [["quota_exceeded"], ["quota_exceeded"]]


def test_group_is_overridden_by_two_people_and_declined_whole(cluster: Any, admitter: Any) -> None:
    for name in ("third", "fourth"):
        make_query(cluster, name, 0.9)
    boss = user(Role.ADMIN)
    set_policy(cluster, override={"roles": ["admitter", "admin"], "second_person": True})
    members = ask(cluster, admitter, "third", "fourth")
    admission_override(request=members[0], user=admitter, reason="it pays")
    assert {row.state for row in members[0].members} == {AdmissionState.AWAITING}
    admission_override(request=members[1], user=boss, reason="so it does")
    assert states("third", "fourth") == [QueryState.RUNNING, QueryState.RUNNING]
    make_query(cluster, "fifth", 0.9)
    make_query(cluster, "sixth", 0.9)
    others = ask(cluster, admitter, "fifth", "sixth")
    admission_decline(request=others[1], user=admitter, reason="no")
    assert {row.state for row in others[0].members} == {AdmissionState.DECLINED}


def test_cancelled_group_is_withdrawn_whole(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.1)
    make_query(cluster, "fourth", 0.1)
    request, _ = ADMISSION.request(cluster=cluster, user=admitter, question=question("third", "fourth"))
    same, _ = ADMISSION.request(cluster=cluster, user=admitter, question=question("third", "fourth"))
    assert same == request
    admission_withdraw(request=request.members[1], user=admitter)
    run_jobs()
    assert {row.state for row in request.members} == {AdmissionState.WITHDRAWN}


def test_start_of_a_member_by_itself_ends_the_group(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.1)
    make_query(cluster, "fourth", 0.1)
    members = ask(cluster, admitter, "third", "fourth")
    ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query="fourth", mode="apply"))
    run_jobs()
    assert states("third", "fourth") == [QueryState.DRAFT, QueryState.RUNNING]
    assert {row.state for row in members[0].members} == {AdmissionState.SUPERSEDED}


def test_new_version_joins_with_another_query(cluster: Any, admitter: Any) -> None:
    """`first` gets lighter, which makes the room that `third` needs: neither fits before the other."""
    start_query(cluster, "filler", 0.5, "b")
    query_version_create(query=Query.objects.get(name="first"), body=body(0.1), user=admitter)
    make_query(cluster, "third", 0.7)
    members = ask(cluster, admitter, "first", "third")
    assert {row.verdict for row in members} == {Verdict.ADMIT}


def test_group_over_rest(cluster: Any, api_of: Any) -> None:
    make_query(cluster, "third", 0.1)
    make_query(cluster, "fourth", 0.1)
    admitter, asked = api_of("admitter"), {"cluster": "little", "members": [{"query": "third"}, {"query": "fourth"}]}
    address = admitter.post(URL, asked, format="json").json()["result_api_url"]
    assert admitter.get(address).json()["answer"] is None
    run_jobs()
    group = admitter.get(address).json()
    assert (group["verdict"], group["state"], group["names"]) == ("admit", "preview", ["third v1", "fourth v1"])
    assert [row["together"] for row in group["answer"]["members"]] == ["admit", "admit"]
    assert [row["decision"]["verdict"] for row in group["members"]] == ["admit", "admit"]
    (listed,) = admitter.get(f"{URL}?cluster=little").json()["results"]
    assert (listed["id"], listed["names"]) == (group["id"], group["names"])
    assert [row["query"] for row in listed["members"]] == ["third", "fourth"]
    assert not {"standing", "place", "decision"} & {*listed, *listed["members"][0]}
    member = f"/api/v1/admissions/{group['members'][1]['id']}"
    refused = admitter.post(f"{member}/apply")
    assert (refused.status_code, refused.json()["code"], refused.json()["group"]) == (409, "in_group", group["id"])
    assert api_of("operator").post(f"{address}/apply").status_code == 403
    applied = admitter.post(f"{address}/apply")
    assert (applied.status_code, applied.json()["state"]) == (200, "applied")
    assert states("third", "fourth") == [QueryState.RUNNING, QueryState.RUNNING]
    one = admitter.post(URL, {"cluster": "little", "members": [{"query": "third"}]}, format="json")
    assert (one.status_code, one.json()["faults"][0]["path"]) == (400, "members")
    bad = admitter.post(URL, {"cluster": "little", "members": [{"query": "third", "target": "x"}, {}]}, format="json")
    assert {fault["path"] for fault in bad.json()["faults"]} == {"members[0].target", "members[1].query"}


def test_who_may_not_admit_one_member_is_refused_for_all(cluster: Any) -> None:
    for name, team in (("third", "sales"), ("fourth", "ads")):
        make_query(cluster, name, 0.1)
        QuerySet(Query).filter(name=name).update(team=team_named(team))
    members = ask(cluster, user(Role.ADMITTER), "third", "fourth")
    person = user(Role.VIEWER)
    grant_give(user=person, role="admitter", team=team_named("sales"))
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token_create(user=person, name='t', scopes=['read', 'admit'])[1]}")
    address = f"{URL}/{members[0].group_id}"
    refused = client.post(f"{address}/decline", {"reason": "no"}, format="json")
    assert refused.status_code == 403
    assert "fourth v1 is a member of the group" in refused.json()["detail"]
    assert {row.state for row in members[0].members} == {AdmissionState.PREVIEW}


@pytest.mark.parametrize(("method", "action"), [("post", "preview"), ("post", "parts"), ("delete", "trial")])
def test_owner_of_one_member_asks_nothing_anew_of_it_alone(cluster: Any, method: str, action: str) -> None:
    """It would ask for all, or end what belongs to all: other teams' members included."""
    for name, team in (("third", "sales"), ("fourth", "ads")):
        make_query(cluster, name, 0.1)
        QuerySet(Query).filter(name=name).update(team=team_named(team))
    members = ask(cluster, user(Role.ADMITTER), "third", "fourth")
    person, client = user(Role.VIEWER), APIClient()
    grant_give(user=person, role="operator", team=team_named("sales"))
    client.force_authenticate(person)
    refused = getattr(client, method)(f"/api/v1/admissions/{members[0].pk}/{action}", {}, format="json")
    assert (refused.status_code, refused.json()["code"]) == (409, "in_group")
    assert AdmissionGroup.objects.count() == 1
    assert {row.state for row in members[0].members} == {AdmissionState.PREVIEW}


def test_deleted_member_is_not_named_to_owners_of_the_others(cluster: Any) -> None:
    for name, team in (("third", "sales"), ("fourth", "ads")):
        make_query(cluster, name, 0.1)
        QuerySet(Query).filter(name=name).update(team=team_named(team))
    admitter = user(Role.ADMITTER)
    members = ask(cluster, admitter, "third", "fourth")
    person, client = User.objects.create_user("ada"), APIClient()
    grant_give(user=person, role="author", team=team_named("sales"))
    client.force_authenticate(person)
    address = f"{URL}/{members[0].group_id}"
    query_delete(query=Query.objects.get(name="fourth"))
    assert client.get(address).json()["names"] == ["third v1", "a query that was deleted"]
    refused = client.post(f"{address}/preview")
    assert refused.json()["code"] == "group_incomplete"
    queue_review()
    answers = [refused, *map(client.get, (address, URL, f"/api/v1/admissions/{members[0].pk}"))]
    assert [answer.status_code for answer in answers] == [409, 200, 200, 200]
    assert not any("fourth" in answer.text for answer in answers)


def test_members_are_left_out_of_replays(cluster: Any, admitter: Any) -> None:
    """Each of the first two fits by itself; their verdict is that of the three."""
    for name in ("third", "fourth", "fifth"):
        make_query(cluster, name, 0.35)
    members = ask(cluster, admitter, "third", "fourth", "fifth")
    with pytest.raises(Conflict, match="decided with a group"):
        replay_request(request=members[0], user=None)
    answers = [policy_preview(cluster=cluster, document={})]
    for taken in (["policy"], ["model", "cluster", "policy", "load", "cost"]):
        job = month_replay_request(cluster=cluster, question={"taken": taken}, user=None)
        run_jobs()
        job.refresh_from_db()
        answers.append(MonthReplay.parse(job.result))
    assert {(answer.decisions, answer.replayed, answer.otherwise) for answer in answers} == {(3, 0, 0)}
    assert all("3 decisions: " in answer.lacking[0] and "with a group" in answer.lacking[0] for answer in answers)
