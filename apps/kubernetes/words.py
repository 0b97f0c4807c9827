"""Sentences of answers to Kubernetes: for the person who applies a manifest, and for the log of an API server."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings

from apps.admission.choices import Verdict
from apps.admission.dry_runs import DryRunAnswer
from apps.admission.models import AdmissionRequest
from apps.admission.parts import parts_under_way
from apps.fleet.choices import Fallback
from engine.admission.answer import Thinness

__all__ = [
    "admission_link",
    "dry_run_words",
    "fallback_words",
    "message_line",
    "thin_warnings",
    "verdict_words",
    "warning_lines",
]

_MAX_MESSAGE = 2000
_MAX_WARNING = 250  # kubectl shows about 256 characters of one
_MAX_WARNINGS = 8
_MAX_ALTERNATIVES = 3


def message_line(text: str) -> str:
    """The text on one line, at a length that API servers take."""
    return _cut(" ".join(text.split()), _MAX_MESSAGE)


def warning_lines(texts: Sequence[str]) -> list[str]:
    """Warnings as API servers take them: few, short, each on one line."""
    return [_cut(" ".join(f"Sluice: {text}".split()), _MAX_WARNING) for text in texts][:_MAX_WARNINGS]


def admission_link(request: AdmissionRequest) -> str:
    """Address of the request's page."""
    return f"{settings.PUBLIC_URL}/c/{request.cluster.slug}/admission/{request.pk}/"


def verdict_words(request: AdmissionRequest) -> str:
    """Reject: the headline. See its page. It would pass with: … Warnings lose their end: the page goes before."""
    decision = request.decision
    titles = [alternative.title for alternative in decision.alternatives[:_MAX_ALTERNATIVES]] if decision else []
    would = f" It would pass with: {'; '.join(titles)}." if titles else ""
    if not titles and "alternatives" in parts_under_way(request):
        would = " What it would pass with is still searched."
    headline = decision.headline.rstrip(".") if decision else ""
    return f"{request.get_verdict_display()}: {headline}. See {admission_link(request)}{would}"


def dry_run_words(answer: DryRunAnswer) -> str:
    """Reject: the headline. A dry run has no page."""
    return f"{Verdict(answer.verdict).label}: {answer.headline.rstrip('.')}. A dry run registers nothing."


def thin_warnings(thin: Thinness, link: str = "") -> list[str]:
    """Warning of a verdict that stands little, or of which that is not known: answers wait for no parts."""
    words = {
        True: "the verdict is thin: it stands little more load or cost",
        "pending": "how much more load or cost the verdict stands is not known yet",
        "unknown": "how much more load or cost the verdict stands is not known",
    }
    return [f"{words[thin]}. {link}".strip()] if thin else []


def fallback_words(fallback: str, rule: str) -> str:
    """The rule that allows or denies."""
    verb = "allows" if fallback == Fallback.ALLOW else "denies"
    return f"The cluster's rule on {rule} {verb} it."


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
