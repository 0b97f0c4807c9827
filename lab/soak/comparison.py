"""Comparison of both sides' stories: what clients were promised against what a console's database tells."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate
from lab.soak.client_ledger import Write

__all__ = ["Story", "doubled", "late_queries", "lost", "unanswered", "unserial"]

Story = Mapping[str, Any]  #: as `lab.soak.server_ledger` prints it
_MACE_EVERY = 4  # slices of an exported document that make a subinterval
_RUNS_ON = ("applied", "queued")


def lost(writes: Sequence[Write], story: Story) -> list[str]:
    """Faults: things that were acknowledged and are not there."""
    queries = {query["name"]: query for query in story["queries"]}
    admissions = {str(row["id"]): row for row in story["admissions"]}
    recorded = {change[0] for change in story["changes"]}
    notes = {policy["note"] for policy in story["policies"]}
    found = []
    for write in (write for write in writes if write.is_acknowledged):
        is_there = {
            "query": write.subject in queries,
            "admission": write.answer.get("result_api_url", "").rpartition("/")[2]
            in admissions,  # perhaps an older one
            "apply": admissions.get(write.subject, {}).get("state") in _RUNS_ON,
            "withdraw": admissions.get(write.subject, {}).get("state") == "withdrawn",
            "policy": write.subject in notes,
        }.get(write.kind, True)
        if not is_there:
            found.append(f"{write.kind} {write.subject} was acknowledged and is not there")
        if write.kind in ("query", "description", "form", "stop", "policy") and not recorded & set(write.request_ids):
            found.append(f"{write.kind} {write.subject} was acknowledged and the ledger does not tell of it")
    return [*found, *_lost_descriptions(writes, queries), *_lost_states(writes, queries)]


def _lost_descriptions(writes: Iterable[Write], queries: Mapping[str, Any]) -> list[str]:
    """The last acknowledged description stands, or one whose sender had no answer.

    REST writes with If-Match: what reaches the console after the next one was acknowledged is refused. A form has
    nothing of the kind, and may be carried out as late as its process wakes up.
    """
    by_query = defaultdict(list)
    for write in writes:
        if write.kind in ("description", "form"):
            by_query[write.subject].append(write)
    found = []
    for name, edits in by_query.items():
        since = max((edit.number for edit in edits if edit.is_acknowledged), default=0)
        unknown = {edit.value for edit in edits if not edit.status and (edit.number > since or edit.kind == "form")}
        allowed = unknown | ({edit.value for edit in edits if edit.number == since} if since else {""})
        if name in queries and queries[name]["description"] not in allowed:
            found.append(f"query {name} has a description that is not the last acknowledged one")
    return found


def _lost_states(writes: Iterable[Write], queries: Mapping[str, Any]) -> list[str]:
    """Faults: queries that do not run after their last acknowledged apply, or run after a stop."""
    last: dict[str, Write] = {}
    unclear = set()
    for write in sorted(writes, key=lambda write: write.number):
        name = write.value if write.kind in ("apply", "admission") else write.subject
        if write.kind in ("apply", "stop") and write.is_acknowledged:
            last[name] = write
            unclear.discard(name)
        elif write.kind in ("apply", "stop", "admission") and (write.status is None or write.kind == "admission"):
            unclear.add(name)
    wanted = {"apply": "running", "stop": "stopped"}
    return [
        f"query {name} is {queries[name]['state']} after an acknowledged {write.kind}"
        for name, write in last.items()
        if name not in unclear and name in queries and queries[name]["state"] != wanted[write.kind]
    ]


def doubled(writes: Sequence[Write], story: Story) -> list[str]:
    """Faults: things that one write did more than once."""
    found = []
    created = defaultdict(set)
    for request_id, kind, name, action in story["changes"]:
        if action == "create":
            created[request_id].add((kind, name))
    for write in writes:
        effects = Counter(effect for request_id in write.request_ids for effect in created[request_id])
        found += [f"{write.kind} {write.subject} made {what} {n} times" for what, n in effects.items() if n > 1]
        if write.kind == "query" and write.status == 409:
            found.append(f"query {write.subject}, a new name, was refused as there already: {write.answer}")
    reasons = Counter(row["reason"] for row in story["admissions"] if row["reason"])
    children = {write.subject for write in writes if write.kind == "admission"}
    found += [f"admission {reason} is there {n} times" for reason, n in reasons.items() if n > 1 and reason in children]
    notes = Counter(policy["note"] for policy in story["policies"] if policy["note"])
    found += [f"policy {note} is there {n} times" for note, n in notes.items() if n > 1]
    versions = Counter(name for name, _ in story["versions"] if name.startswith("k8s-"))
    found += [f"query {name} has {n} versions of one manifest" for name, n in versions.items() if n > 1]
    uids = Counter(review["uid"] for review in story["reviews"])
    return [*found, *(f"review {uid} is there {n} times" for uid, n in uids.items() if n > 1)]


def unanswered(writes: Sequence[Write], story: Story, received: Mapping[str, int], begun_before: str) -> list[str]:
    """Jobs without an end that began before a moment (ISO 8601), and messages that arrived at one side alone."""
    found = [
        f"job {job['title']!r} ({job['kind']}) is {job['state']} since {job['created_at']}"
        for job in story["jobs"]
        if job["created_at"] < begun_before
    ]
    ended = {str(row["id"]): row["state"] for row in story["admissions"]}
    found += [f"admission {key} is {state} without a job" for key, state in ended.items() if state == "estimating"]
    for delivery in story["deliveries"]:
        if delivery["state"] == "sent" and not received.get(str(delivery["id"])):
            found.append(f"delivery {delivery['id']} is said to have arrived and did not")
        elif delivery["state"] not in ("sent", "waiting", "sending"):
            found.append(f"delivery {delivery['id']} is {delivery['state']}: {delivery['last_error']}")
    return found


def late_queries(document: Mapping[str, Any]) -> list[str]:
    """Queries of an exported document that do not hold when it is estimated anew; their states beside them."""
    if not document["operators"]:
        return []
    estimated = estimate(Deployment.parse(document), mace_every=_MACE_EVERY)
    return [f"{name} {report.state}" for name, report in estimated.queries.items() if report.state != "holds"]


def unserial(admitted: Mapping[str, Any], refused: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Why no serial order of the same questions admits just these; empty where one does.

    `admitted` is the document of what runs on one core, `refused` the operators of each query that does not, by name,
    with its objective as last element. More load never lowers a latency, so what holds together holds in every part
    of itself: the order that begins with all that were admitted lets each of them in, and each of the others has to be
    one too many for them.
    """
    found = [f"{late}, although it was admitted" for late in late_queries(admitted)]
    for name, (*operators, objective) in refused.items():
        document = {
            **admitted,
            "operators": [*admitted["operators"], *operators],
            "objectives": [*admitted["objectives"], objective],
        }
        if not late_queries(document):
            found.append(f"{name} was refused, although it fits beside all that were admitted")
    return found
