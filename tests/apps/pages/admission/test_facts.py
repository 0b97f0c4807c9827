"""Decisions say what live queries wait for besides, and whose objective that breaks."""

from __future__ import annotations

import pytest
from django.utils import timezone

from apps.pages.admission.facts import live_waits
from engine.admission.answer import QueryEffect
from tests.apps.microbatch.own import own_batch
from tests.apps.telemetry.world import live_at, probing

pytestmark = pytest.mark.django_db


def _effect(query: str, after_s: float | None, bound_s: float | None) -> QueryEffect:
    return QueryEffect(query=query, statistic="worst", after_s=after_s, bound_s=bound_s)


def test_waits_of_a_live_query_include_epoch_trigger_and_batch() -> None:
    query = probing()
    live_at(query)
    for batch in range(3):
        own_batch(timezone.now(), batch, duration_s=0.5)
    holds = live_waits(query.cluster, [_effect("s2s", 1.0, 10.0), _effect("other", 1.0, 2.0)])
    assert holds is not None
    assert (holds.wait_s, holds.names, holds.over) == (3.5, ("s2s",), ())
    assert live_waits(query.cluster, [_effect("s2s", 1.0, 4.0)]).over == ("s2s",)
    assert live_waits(query.cluster, [_effect("s2s", 5.0, 4.0)]).over == ()  # it misses it without
    assert live_waits(query.cluster, [_effect("s2s", None, None)]).over == ()


def test_query_without_live_telemetry_has_no_waits() -> None:
    query = probing()
    assert live_waits(query.cluster, [_effect("s2s", 1.0, 10.0)]) is None
    assert live_waits(query.cluster, []) is None
