"""Answers of the console as text for people, and as an exit status for pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.admission.text import decision_text
from engine.listing import column_lines
from engine.words import seconds_words, state_words, statistic_text

__all__ = [
    "BACKLOG_EXIT_TEXT",
    "ESTIMATE_EXIT_TEXT",
    "EXIT_TEXT",
    "FAILED",
    "PASSED",
    "USAGE",
    "admission_status",
    "admission_text",
    "backlog_text",
    "estimate_status",
    "estimate_text",
    "group_text",
    "manifest_answer_text",
    "manifest_status",
    "parts_under_way",
]

PASSED, FAILED, USAGE, REFUSED, OPEN = 0, 1, 2, 3, 4
EXIT_TEXT = """exit status:
  0  admit: the query may run (with --apply: it runs)
  1  no verdict: the console was not reached, or refused the question
  2  wrong usage
  3  reject; admit with changes, unless --accept-changes
  4  queue or review: later, or a person decides"""
ESTIMATE_EXIT_TEXT = """exit status:
  0  every objective holds
  1  no estimate: the console was not reached, or refused the question
  2  wrong usage
  3  an objective is breached
  4  an objective is at risk"""
BACKLOG_EXIT_TEXT = """exit status:
  0  shown, or stated
  1  not done: the console was not reached, or refused it
  2  wrong usage"""
_BY_VERDICT = {"admit": PASSED, "admit_with_changes": REFUSED, "reject": REFUSED, "queue": OPEN, "review": OPEN}


def admission_status(admission: Mapping[str, Any], *, apply: bool, accept_changes: bool) -> int:
    """Exit status of an answered request. A verdict that is not known never passes."""
    verdict = admission.get("verdict")
    status = _BY_VERDICT.get(str(verdict), FAILED)
    if verdict == "admit_with_changes" and accept_changes:
        status = PASSED
    if apply and status == PASSED and admission.get("state") != "applied":
        return OPEN
    return status


def admission_text(admission: Mapping[str, Any], address: str) -> str:
    """The decision, what became of the request, and where to look at it."""
    standing = admission.get("standing") or {}
    rows = [["Request", address]]
    if admission.get("state"):
        rows.append(["State", str(admission["state"])])
    if admission.get("state") == "preview" and admission.get("valid_until"):
        rows.append(["Valid until", str(admission["valid_until"])])
    for label, value in (("Note", admission.get("decision_reason")), ("Next", standing.get("why_not"))):
        rows += [[label, str(value)]] if value else []
    rows += [[name.capitalize(), words] for name, words in _missing_parts(admission)]
    decision = {
        "verdict": admission.get("verdict"),
        "query": admission.get("query"),
        **(admission.get("decision") or {}),
    }
    return "\n".join([decision_text(decision), "", *column_lines(rows, "")])


def group_text(group: Mapping[str, Any], address: str) -> str:
    """The verdict on a group, each member's verdicts, what became of it, and where to look at it."""
    answer, standing = group.get("answer") or {}, group.get("standing") or {}
    members = answer.get("members") or []
    table = [["query", "beside those before it", "once all are in", "alone"]]
    table += [
        [str(row.get("query")), *(str(row.get(name) or "-") for name in ("beside", "together", "alone"))]
        for row in members
    ]
    verdict = str(group.get("verdict") or "no verdict").replace("_", " ").upper()
    lines = [f"{verdict}  {', '.join(map(str, group.get('names') or []))}", f"  {answer.get('headline') or ''}", ""]
    lines += [*column_lines(table, ""), ""]
    rows = [["Request", address], ["State", str(group.get("state"))]]
    fitting = [str(row.get("query")) for row in members if row.get("is_fitting")]
    if members and len(fitting) < len(members):
        rows.append(["Fit together, by an estimate", ", ".join(fitting) or "none"])
    for label, value in (("Note", group.get("decision_reason")), ("Next", standing.get("why_not"))):
        rows += [[label, str(value)]] if value else []
    return "\n".join([*lines, *column_lines(rows, "")])


def parts_under_way(admission: Mapping[str, Any]) -> list[str]:
    """Parts of a decision that are still computed; its verdict stands without them."""
    parts = admission.get("parts") or {}
    return [name for name, part in parts.items() if (part or {}).get("state") in ("pending", "running")]


def _missing_parts(admission: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Parts that are not there and could be, with why."""
    under_way = parts_under_way(admission)
    for name, part in (admission.get("parts") or {}).items():
        state = (part or {}).get("state")
        if name in under_way:
            yield name, "still being computed"
        elif state in ("out_of_budget", "cancelled", "failed"):
            yield name, f"{str(state).replace('_', ' ')}: {part.get('message')}"


#: Grounds of an answer to Kubernetes that need no verdict. Not known and not in time never pass.
_BY_BASIS = {"running": PASSED, "unchanged": PASSED, "stops": PASSED, "other": PASSED, "less": OPEN}


def manifest_status(answer: Mapping[str, Any], *, apply: bool, accept_changes: bool) -> int:
    """The worst of a manifest's objects: refused, then without a verdict, then open.

    A rule of the cluster that lets Kubernetes start what is not known is no verdict: a pipeline stops at it.
    """
    reviews = answer.get("reviews") or []
    statuses = {_review_status(review, apply=apply, accept_changes=accept_changes) for review in reviews}
    return next((status for status in (REFUSED, FAILED, OPEN) if status in statuses), PASSED if statuses else FAILED)


def _review_status(review: Mapping[str, Any], *, apply: bool, accept_changes: bool) -> int:
    if review.get("basis") == "verdict":
        return admission_status(review, apply=apply, accept_changes=accept_changes)
    return _BY_BASIS.get(str(review.get("basis")), FAILED)


def manifest_answer_text(answer: Mapping[str, Any]) -> str:
    """An object a paragraph: what Kubernetes would be answered, by which ground, and why."""
    paragraphs = []
    for review in answer.get("reviews") or []:
        verb = "ALLOWED" if review.get("allowed") else "DENIED"
        place = "/".join(part for part in (review.get("namespace"), review.get("name")) if part)
        ground = review.get("verdict") if review.get("basis") == "verdict" else review.get("basis")
        lines = [f"{verb}  {review.get('kind')} {place}  ({ground})", f"  {review.get('message')}"]
        said = str(review.get("message"))
        warnings = [str(text).removeprefix("Sluice: ") for text in review.get("warnings") or []]
        lines += [f"  warning: {text}" for text in warnings if text.rstrip("…") not in said]
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs) or "The manifest holds no object."


def estimate_status(estimate: Mapping[str, Any]) -> int:
    """0 where every objective holds, 3 where one is breached, 4 where one is at risk or nobody knows."""
    states = {row.get("state") for row in _estimated(estimate)}
    return REFUSED if "breached" in states else OPEN if {"at_risk", "unknown"} & states else PASSED


def estimate_text(estimate: Mapping[str, Any]) -> str:
    """A table of queries: estimate, interval, objective, state, where the time goes; and what is not known of them."""
    rows = [["query", "estimate", "interval", "objective", "state", "slowest on"]]
    for row in _estimated(estimate):
        low, high = row.get("low_s"), row.get("high_s")
        interval = f"{_seconds(low)} to {_seconds(high)}" if low is not None and high is not None else "-"
        bound = (
            f"{statistic_text(row.get('statistic') or '')} {_seconds(row['bound_s'])}"
            if row.get("bound_s") is not None
            else "-"
        )
        server = row.get("bottleneck") or (row.get("result") or {}).get("bottleneck")
        where = server.get("server") if isinstance(server, Mapping) else server
        state = state_words(row["state"], is_measured=False) if row.get("state") else "-"
        rows.append([str(row.get("query")), _seconds(row.get("estimate_s")), interval, bound, state, str(where or "-")])
    if len(rows) == 1:
        return "No query runs."
    lines = column_lines(rows, "")
    notes = [f"{row.get('query')}: {words}" for row in _estimated(estimate) if (words := _standing_words(row))]
    notes += _catch_up_lines(estimate)
    return "\n".join([*lines, "", *notes] if notes else lines)


def _standing_words(row: Mapping[str, Any]) -> str:
    """Words on a latency that is not known, or has no end; empty where the figures are what it is."""
    standing = row.get("standing") or (row.get("result") or {}).get("standing") or {}
    return str(standing.get("words") or "")


def _catch_up_lines(estimate: Mapping[str, Any]) -> list[str]:
    """When each query has caught up with what waits, and what of it is not used."""
    result = estimate.get("result") or {}
    caught = [(row, (row.get("result") or row).get("catch_up")) for row in _estimated(estimate)]
    lines = [f"{row.get('query')} {catch_up['words']}." for row, catch_up in caught if catch_up]
    unused = [
        found for found in result.get("backlogs") or estimate.get("backlogs") or () if found["standing"] != "used"
    ]
    return [*lines, *(str(found["words"]) for found in unused)]


def backlog_text(query: str, backlogs: Sequence[Mapping[str, Any]]) -> str:
    """A table of what waits at the inputs of a query."""
    rows = [["input", "events", "behind", "read"]]
    for row in backlogs:
        where = f"{row['from']} at {row['operator']}" if row.get("operator") else str(row["from"])
        events = "-" if row.get("events") is None else f"{row['events']:,.0f}"
        stale = ", too old: not used" if row.get("is_stale") else ""
        read = f"{row.get('origin')} {_seconds(row.get('age_s'))} ago{stale}"
        rows.append([where, events, _seconds(row.get("behind_s")), read])
    return "\n".join(column_lines(rows, "")) if len(rows) > 1 else f"Nothing is known to wait for {query}."


def _estimated(estimate: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The queries of an estimate, of a cluster (a list) or of a document (by name)."""
    queries = estimate.get("queries")
    if queries is None:
        queries = (estimate.get("result") or {}).get("queries") or []
    return [{"query": name, **row} for name, row in queries.items()] if isinstance(queries, Mapping) else list(queries)


def _seconds(value: float | None) -> str:
    return "-" if value is None else seconds_words(value)[0].replace("\u00a0", " ")
