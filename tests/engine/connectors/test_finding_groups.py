"""Findings are folded by kind, and those that change the answer come first."""

from __future__ import annotations

from engine.connectors.finding_groups import fold_findings, is_decisive
from engine.connectors.picture import Finding, FindingLevel


def finding(level: FindingLevel, code: str, subject: str = "") -> Finding:
    return Finding(level, code, subject, f"{subject} is {code}.")


def test_findings_of_one_kind_are_one_line_with_their_count() -> None:
    alike = [finding("assumed", "buffer_timeout_assumed", f"job-{i}") for i in range(140)]
    (kind,) = fold_findings(alike)
    assert (kind.count, len(kind.subjects), kind.message) == (140, 140, "job-0 is buffer_timeout_assumed.")
    assert not kind.decisive


def test_what_changes_the_answer_comes_before_any_other_level() -> None:
    findings = [
        finding("found", "trigger_measured"),
        finding("warning", "prometheus_warning"),
        finding("assumed", "exchange_open", "q4/join"),
        finding("missing", "busy_time_missing", "q1/source"),
        finding("warning", "counts_differ", "q7/window"),
    ]
    assert [kind.code for kind in fold_findings(findings)] == [
        "counts_differ",
        "busy_time_missing",
        "exchange_open",
        "prometheus_warning",
        "trigger_measured",
    ]


def test_no_finding_is_lost_by_folding() -> None:
    findings = [finding("warning", f"kind-{i % 7}", f"job-{i}") for i in range(50)]
    assert sum(kind.count for kind in fold_findings(findings)) == 50


def test_what_was_found_changes_no_answer_whatever_its_code() -> None:
    assert is_decisive(finding("missing", "no_events")) and not is_decisive(finding("found", "no_events"))
