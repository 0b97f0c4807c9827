"""Admission in the browser: every verdict, who may do what, what became stale, and what is wrong with a document."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from apps.admission.choices import AdmissionState, Verdict
from apps.admission.models import AdmissionRequest
from apps.fleet.models import Cluster
from apps.fleet.services import node_update
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import run_job
from apps.jobs.services import job_cancel, job_fail, job_start
from apps.pages.admission.tables import change_words
from apps.queries.arrivals.services import arrivals_create_from_counts
from apps.queries.choices import QueryState
from apps.queries.models import Query
from apps.queries.services import query_create
from apps.ui.numbers import seconds
from engine.admission.changes import LaterStart, NewNode, ObjectiveChange, OperatorMove, RateChange
from tests.apps import small_cluster
from tests.apps.pages.html import body
from tests.apps.policies.documents import set_policy
from workers.jobs import JOB_WORK

pytestmark = pytest.mark.django_db

NEW = "/c/little/admission/new/"
Browsers = Callable[..., Client]


@pytest.fixture
def cluster(db: None) -> Cluster:
    """Node a is at 0.6, node b at 0.4."""
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "first", 0.6, "a")
    small_cluster.start_query(cluster, "second", 0.4, "b")
    return cluster


@pytest.fixture
def admitter(browser_of: Browsers) -> Client:
    return browser_of("admitter")


def text(response: Any) -> str:
    """Text of the page: without tags, spaces as one."""
    html = re.sub(r"<(script|style|template).*?</\1>", "", response.content.decode(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html)).replace("\u00a0", " ")


def address(request: AdmissionRequest, action: str = "") -> str:
    return f"/c/little/admission/{request.pk}/{action}"


def ask(client: Client, query: str, **fields: Any) -> AdmissionRequest:
    """Preview a registered query through the form."""
    answer = client.post(NEW, {"query": query, **fields})
    assert answer.status_code == 302, text(answer)
    small_cluster.run_jobs()
    request = AdmissionRequest.objects.get(pk=answer["Location"].rstrip("/").rsplit("/", 1)[1])
    assert request.state == AdmissionState.PREVIEW
    return request


def test_query_that_fits_is_previewed_and_applied(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.3)
    assert "Its objective: worst case at most 2 s." in text(admitter.get(f"{NEW}?query=third"))
    request = ask(admitter, "third", reason="for the test")
    page = admitter.get(address(request))
    shown = text(page)
    assert "Admit: Every objective holds" in shown
    assert "Reason: for the test" in shown
    assert "1 of 2 other queries changes" in shown
    assert 'data-open="act-dialog"' in page.content.decode()
    assert "third starts at once with 1 operator on 1 node of Little. No neighbour moves." in shown
    assert admitter.post(address(request, "apply/"))["Location"] == address(request)
    shown = text(admitter.get(address(request)))
    assert "third v1 is applied." in shown
    assert "Applied just now by a-admitter." in shown
    assert Query.objects.get(name="third").state == QueryState.RUNNING


def test_rejection_shows_its_reason_and_alternatives(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.9)
    request = ask(admitter, "third")
    page = admitter.get(address(request))
    shown = text(page)
    assert request.verdict == Verdict.REJECT
    assert "would miss its objective" in shown
    assert (
        "Apply is off while the verdict is reject. Pick an alternative below and preview it, or ask for a review."
        in shown
    )
    assert 'aria-disabled="true" aria-describedby="why">Apply' in body(page)
    refused = admitter.post(address(request, "apply/"))
    assert refused.status_code == 422
    assert "The verdict is reject. Take an alternative or override." in text(refused)
    alternative = request.result["choices"][0]
    assert alternative["title"] in page.content.decode()
    follower = admitter.post(address(request, "preview/"), {"alternative": alternative["id"]})["Location"]
    assert "Estimating" in text(admitter.get(follower))
    small_cluster.run_jobs()
    shown = text(admitter.get(follower))
    assert "Admit with changes" in shown
    assert "With these changes:" in shown
    assert "Of the same question" in shown
    wrong = admitter.post(address(request, "preview/"), {"alternative": "wish-1"})
    assert wrong.status_code == 400
    assert "&#x27;wish-1&#x27; is not offered" in wrong.content.decode()


def test_rejection_names_who_suffers_by_how_much_where_and_when(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.5, bound_s=None)
    request = ask(admitter, "third", **{"node-work": "a"})
    row = next(effect for effect in request.result["effects"] if effect["query"] == "first")
    assert (request.verdict, row["before_state"], row["after_state"]) == (Verdict.REJECT, "holds", "breached")
    page = admitter.get(address(request))
    at = request.previewed_at + timedelta(seconds=row["when_s"])
    shown = re.sub(r" ?(s|ms)\b", r" \1", text(page))
    who = r"first: worst case \S+ m?s → over \S+ s within the horizon, .{1,25}, objective 2 s, on a"
    assert re.search(rf"{who}, most of it at {at:%H:%M} UTC, \d+ .{{1,9}} into the horizon", shown), shown
    assert "second" not in body(page).split('class="affected"')[1].split("</ul>")[0]


def test_picture_is_of_the_outcome_that_the_address_names(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.9)
    request = ask(admitter, "third")
    asked = body(admitter.get(address(request)))
    choice = next(choice for choice in request.result["choices"] if choice["kind"] == "scale_rate")
    own = next(effect for effect in choice["effects"] if effect["is_candidate"])
    page = admitter.get(f"{address(request)}?alternative={choice['id']}")
    shown, html = text(page), body(page)
    assert f"Admit with changes: {choice['title']}" in shown
    assert "The verdict on what was asked is reject" in shown
    assert 'data-open="act-dialog"' not in html and "Apply is off" not in shown
    assert f'name="alternative" value="{choice["id"]}"' in html
    assert f'hx-get="{address(request)}?alternative={choice["id"]}"' in html  # live updates keep it
    link = f'href="?alternative={choice["id"]}"'
    assert link in asked and 'hx-push-url="true"' in asked

    def drawn(html: str) -> str:
        return html.split('id="picture"')[1].split("</section>")[0]

    assert drawn(html) != drawn(asked)
    assert 'class="over"' in drawn(asked) and 'class="over"' not in drawn(html)
    assert f"third: {seconds(own['after_s'], apart_from=2.0)}, objective 2" in drawn(html)
    unknown = text(admitter.get(f"{address(request)}?alternative=wish-9"))
    assert "Reject: " in unknown


def test_query_without_a_place_is_shown_with_the_node_that_would_take_it(admitter: Client, cluster: Cluster) -> None:
    for node in cluster.nodes.all():
        node_update(node=node, state="draining")
    small_cluster.make_query(cluster, "third", 0.3)
    request = ask(admitter, "third")
    assert [choice["id"] for choice in request.result["choices"]] == ["add_node-1"]
    assert "Reject: third cannot be placed" in text(admitter.get(address(request)))
    page = admitter.get(f"{address(request)}?alternative=add_node-1")
    assert "Add 1 node" in text(page)
    assert "new-1: load new →" in body(page).split('id="picture"')[1]


def test_decision_kept_without_curves_is_shown_without_a_picture(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.9)
    request = ask(admitter, "third")
    AdmissionRequest.objects.update(curves=None)
    html = body(admitter.get(address(request)))
    assert 'id="picture"' not in html
    assert "Alternatives that would pass" in html


def test_pinned_rejection_says_what_it_would_be_without_the_pin(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.5)
    request = ask(admitter, "third", **{"node-work": "a"})
    shown = text(admitter.get(address(request)))
    assert request.verdict == Verdict.REJECT
    assert "Without the nodes asked for third would pass on b" in shown


def test_query_is_previewed_with_one_click(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.3)
    page = body(admitter.get("/c/little/queries/third/"))
    form = page.split(f'action="{NEW}"')[1].split("</form>")[0]
    assert 'name="query" value="third"' in form and "Preview admission" in form
    assert ask(admitter, "third").verdict == Verdict.ADMIT
    options = body(admitter.get(f"{NEW}?query=third"))
    assert '<details class="data options">' in options
    assert '<details class="data options" open>' in body(admitter.post(NEW, {"query": "third", "bound_s": "-1"}))


def test_apply_counts_what_it_does_and_names_whom_it_touches(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.9)
    request = ask(admitter, "third")
    choice = next(choice for choice in request.result["choices"] if choice["kind"] == "add_node")
    admitter.post(address(request, "preview/"), {"alternative": choice["id"]})
    small_cluster.run_jobs()
    follower = AdmissionRequest.objects.get(parent=request)
    dialog = body(admitter.get(address(follower))).split('id="act-dialog"')[1].split("</dialog>")[0]
    said = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", dialog))
    assert "third starts at once with 1 operator on 1 node of Little. No neighbour moves." in said
    assert "1 node is added: new-1." in said


def test_review_is_approved_or_declined_with_a_reason(browser_of: Browsers, cluster: Cluster) -> None:
    set_policy(cluster, evidence={"assumed": "review"})
    small_cluster.make_query(cluster, "third", 0.3)
    operator, admitter = browser_of("operator"), browser_of("admitter")
    request = ask(operator, "third")
    shown = text(operator.get(address(request)))
    assert "Review: " in shown
    assert "Approve is off: your role (Operator) may not decide. It needs the role Admitter or Administrator." in shown
    operator.post(address(request, "review/"), {})
    assert "Awaiting review" in text(operator.get(address(request)))
    assert operator.post(address(request, "approve/")).status_code == 403
    empty = admitter.post(address(request, "decline/"), {"reason": " "})
    assert empty.status_code == 400
    assert "say why; it is kept with the decision" in text(empty)
    admitter.post(address(request, "approve/"), {"reason": "small enough"})
    shown = text(admitter.get(address(request)))
    assert "Reason: small enough" in shown
    small_cluster.make_query(cluster, "fourth", 0.1)
    other = ask(operator, "fourth")
    admitter.post(address(other, "decline/"), {"reason": "not now"})
    assert "Declined just now by a-admitter. Reason: not now" in text(admitter.get(address(other)))


def test_a_later_start_is_queued(admitter: Client, cluster: Cluster) -> None:
    counts = [100.0] * 20 + [30.0] * 40
    arrivals_create_from_counts(cluster=cluster, source_id="batch", counts=counts, step_s=1.0)
    own = {"statistic": "worst", "bound_s": 2.0}
    query_create(cluster=cluster, name="later", body=small_cluster.body(0.9, "batch"), objective=own)
    request = ask(admitter, "later", may_wait_min="0.7")
    assert (request.verdict, request.may_wait_s) == (Verdict.QUEUE, 42.0)
    shown = text(admitter.get(address(request)))
    assert "Queue: later would pass if it starts" in shown
    assert "If it started at once" not in shown  # the picture is of the later start
    at_once = text(admitter.get(f"{address(request)}?alternative=as-asked"))
    assert "If it started at once" in at_once
    assert "Queue: later would pass if it starts" in at_once
    assert "later starts at" in shown and "Until then it waits" in shown
    admitter.post(address(request, "apply/"))
    shown = text(admitter.get(address(request)))
    assert "Place 1 of 1 in the queue. Expected start" in shown
    assert "starts by itself if that passes" in shown
    admitter.post(address(request, "withdraw/"))
    assert "Withdrawn just now by a-admitter" in text(admitter.get(address(request)))


def test_override_needs_the_role_and_a_reason(browser_of: Browsers, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.9)
    operator, admitter = browser_of("operator"), browser_of("admitter")
    request = ask(operator, "third")
    assert "Override" not in text(operator.get(address(request)))
    assert operator.post(address(request, "override/"), {"reason": "now"}).status_code == 403
    assert "Override" in text(admitter.get(address(request)))
    admitter.post(address(request, "override/"), {"reason": "a fair is on"})
    shown = text(admitter.get(address(request)))
    assert "Applied against its verdict just now by a-admitter." in shown
    assert "Reason: a fair is on" in shown
    assert "Applied, overridden" in text(admitter.get("/c/little/admission/"))


def test_viewer_reads_admissions_but_changes_nothing(browser_of: Browsers, admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.9)
    request = ask(admitter, "third")
    viewer = browser_of("viewer")
    page = viewer.get(address(request))
    html = page.content.decode()
    main = html.split('<main class="main"')[1].split("</main>")[0]
    assert "<form" not in main
    assert "Alternatives that would pass" in main
    picked = viewer.get(f"{address(request)}?alternative={request.result['choices'][0]['id']}").content.decode()
    assert "<form" not in picked.split('<main class="main"')[1].split("</main>")[0]
    assert "Preview an admission" not in text(viewer.get("/c/little/admission/"))


def test_stale_preview_lists_the_changes_of_the_cluster(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.3)
    request = ask(admitter, "third")
    node_update(node=cluster.nodes.get(name="a"), capacity_cps=900.0)
    shown = text(admitter.get(address(request)))
    assert "The cluster has moved since the preview. What changed:" in shown
    assert "Apply is off: the preview no longer speaks of the cluster as it is." in shown
    refused = admitter.post(address(request, "apply/"))
    assert refused.status_code == 409
    assert "node a" in text(refused)
    fresh = admitter.post(address(request, "preview/"))["Location"]
    small_cluster.run_jobs()
    assert "Admit: Every objective holds" in text(admitter.get(fresh))
    assert "A later preview of the same question takes its place." in text(admitter.get(address(request)))


def test_an_expired_preview_cannot_be_applied(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.3)
    request = ask(admitter, "third")
    AdmissionRequest.objects.update(valid_until=timezone.now() - timedelta(minutes=1))
    assert "The preview is no longer valid." in text(admitter.get(address(request)))
    assert admitter.post(address(request, "apply/")).status_code == 409


def test_failed_preview_shows_the_error_of_its_job(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.3)
    answer = admitter.post(NEW, {"query": "third"})
    request = AdmissionRequest.objects.select_related("job").get()
    assert f'id="job-{request.job_id}"' in admitter.get(answer["Location"]).content.decode()
    job_fail(job_start(request.job_id), {"code": "malformed", "message": "It cannot be read.", "faults": []})
    shown = text(admitter.get(answer["Location"]))
    assert "It cannot be read." in shown
    assert "Preview again" in shown


def test_document_is_registered_with_its_preview(admitter: Client, cluster: Cluster) -> None:
    file = SimpleUploadedFile("third.json", json.dumps(small_cluster.body(0.3)).encode())
    form = {"name": "third", "file": file, "statistic": "q0.9", "bound_s": "3"}
    answer = admitter.post(f"{NEW}?way=document", form)
    small_cluster.run_jobs()
    assert "with a p90 of at most 3 s" in text(admitter.get(answer["Location"]))
    assert Query.objects.get(name="third").objective_bound_s == 3.0


def test_form_shows_every_fault_of_a_document_and_keeps_its_text(admitter: Client, cluster: Cluster) -> None:
    inputs = [{"from": "nowhere", "selectivity": -1, "cycles_per_event": "many"}]
    document = json.dumps({"query": "third", "operators": [{"id": "work", "inputs": inputs}], "colour": "red"})
    answer = admitter.post(f"{NEW}?way=document", {"document": document})
    shown = answer.content.decode()
    assert answer.status_code == 422
    for path in (
        "document.operators[0].inputs[0].cycles_per_event",
        "document.operators[0].inputs[0].selectivity",
        "document.colour",
    ):
        assert path in shown
    assert "&quot;colour&quot;: &quot;red&quot;" in shown
    assert not Query.objects.filter(name="third").exists()
    broken = admitter.post(f"{NEW}?way=document", {"document": '{"query": }'})
    assert "line 1, column 11" in text(broken)
    assert "is an object" in text(admitter.post(f"{NEW}?way=document", {"document": "[]"}))
    assert "Paste the operators" in text(admitter.post(f"{NEW}?way=document", {"document": ""}))


def test_faults_of_the_admission_form_are_shown_at_their_fields(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.3)
    answer = admitter.post(NEW, {"query": "third", "statistic": "worst", "may_wait_min": "-1", "node-work": "zz"})
    html = answer.content.decode()
    assert answer.status_code == 422
    assert 'id="id_bound_s_error"' in html
    assert 'id="id_may_wait_min_error"' in html
    answer = admitter.post(NEW, {"query": "third", "node-work": "zz"})
    assert "placement.work: 'zz' is not an active node of little" in text(answer).replace("&#x27;", "'")
    assert 'name="query" value="third"' in answer.content.decode()
    assert "Choose a query." in text(admitter.post(NEW, {"query": ""}))
    assert "There is no query of that name." in text(admitter.post(NEW, {"query": "nobody"}))


def test_form_asks_for_nodes_of_operators(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.2)
    part = admitter.get("/c/little/admission/new/plan/?query=third", headers={"HX-Request": "true"}).content.decode()
    assert 'name="node-work"' in part
    assert "Version 1, newest" in part
    request = ask(admitter, "third", version="1", **{"node-work": "a"})
    assert request.placement == {"work": "a"}
    assert "as asked" in text(admitter.get(address(request)))


def test_list_of_admissions_is_filtered_searched_and_exported(admitter: Client, cluster: Cluster) -> None:
    assert "No requests yet" in text(admitter.get("/c/little/admission/"))
    small_cluster.make_query(cluster, "third", 0.3)
    small_cluster.make_query(cluster, "fourth", 0.9)
    ask(admitter, "third")
    ask(admitter, "fourth")
    page = admitter.get("/c/little/admission/?verdict=reject")
    assert "2 wait for somebody to act, of 2 requests." in text(page)
    rows = page.content.decode().split("<tbody>")[1]
    assert "fourth v1" in rows
    assert "third v1" not in rows
    assert "fourth v1" not in admitter.get("/c/little/admission/?q=thi").content.decode().split("<tbody>")[1]
    csv = admitter.get("/c/little/admission/?export=csv&sort=query").content.decode()
    assert csv.splitlines()[0] == "Request,Verdict,Finding,State,Asked"
    assert "Every objective holds: the worst case of third" in csv


def test_requests_of_another_cluster_are_not_found(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.3)
    request = ask(admitter, "third")
    small_cluster.small_cluster("other")
    assert admitter.get(f"/c/other/admission/{request.pk}/").status_code == 404


def test_changes_are_put_in_words() -> None:
    words = [
        change_words(change)
        for change in (
            RateChange("q", 0.72),
            NewNode("new-1", "a", 2e9, 2),
            ObjectiveChange("q", "worst", 5.0),
            OperatorMove("q/work", "b", 1),
            LaterStart(5, 20.0),
        )
    ]
    assert [word.replace("\u00a0", " ") for word in words] == [
        "q reads 72% of its events; its sources must hold back the rest",
        "the node new-1 is added, like a, with 2 cores of 2 Gcycles/s",
        "the objective of q becomes worst at most 5 s",
        "q/work goes to core 1 of b",
        "it starts 20 s after the preview",
    ]


def verdict_only(admitter: Client, query: str) -> AdmissionRequest:
    """A request that has its verdict, and no part yet."""
    admitter.post("/c/little/admission/new/", {"query": query})
    job = Job.objects.get(kind=JobKind.ADMISSION_PREVIEW, state=JobState.QUEUED)
    run_job(job.pk, JOB_WORK[job.kind])
    return AdmissionRequest.objects.latest("created_at")


def test_verdict_is_shown_and_applied_while_how_much_it_stands_is_computed(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.4)
    request = verdict_only(admitter, "third")
    page = admitter.get(address(request))
    shown = text(page)
    assert "Admit: Every objective holds" in shown
    assert "Whether it is thin not known yet" in shown
    assert "How much it stands" in shown
    assert "Waits for a worker. It appears here by itself; the verdict stands." in shown
    assert "How much more load or cost it would stand is not known yet." in shown
    assert f"changed:admission-parts:{request.pk}" in body(page)
    assert 'data-open="act-dialog">Apply' in body(page)
    small_cluster.run_jobs()
    there = text(admitter.get(address(request)))
    assert "It stays as it is with" in there
    assert "Whether it is thin" not in there
    assert "Waits for a worker" not in there


def test_rejection_says_that_alternatives_are_still_searched(admitter: Client, cluster: Cluster) -> None:
    small_cluster.make_query(cluster, "third", 0.9)
    request = verdict_only(admitter, "third")
    shown = text(admitter.get(address(request)))
    assert "Apply is off while the verdict is reject. What would pass is still searched." in shown
    assert "Alternatives that would pass" in shown
    job_cancel(request.parts_job)
    cut = admitter.get(address(request))
    assert "Cancelled. Its job was cancelled." in text(cut)
    assert "Whether anything would pass is not known." in text(cut)
    assert "Compute it again" in text(cut)
    assert admitter.post(address(request, "parts/"))["Location"] == address(request)
    small_cluster.run_jobs()
    assert "Pick one to see what it does" in text(admitter.get(address(request)))
    refused = admitter.post(address(request, "parts/"))
    assert refused.status_code == 409
    assert "No part of it was cut, cancelled or failed." in text(refused)
