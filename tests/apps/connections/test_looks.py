"""Looks: what of an engine's picture is kept for its page."""

from __future__ import annotations

from apps.connections.looks import KeptLook, look_of
from engine.connectors.picture import Exchange
from tests.apps.connections.pictures import shop_look, shop_picture


def test_look_names_places_and_inputs_instead_of_ids() -> None:
    look = look_of(shop_picture(160.0))
    job = look.jobs[0]
    source, work = job.operators
    assert (look.version, job.name, job.polls) == ("2.3.0", "shop", 0)
    assert [place.name for place in look.places] == ["tm1", "tm2"]
    assert source.inputs == () and source.cost_s is None
    assert work.inputs == (Exchange("orders", "hash"),)
    assert work.places == ("tm1", "tm2")


def test_kept_look_holds_the_statistics_of_sampled_operators() -> None:
    (job, *_) = KeptLook.parse(shop_look(160.0)).jobs
    sample = job.operators[1]
    assert job.polls == 7
    assert (sample.events, sample.cost_s, sample.span_s, sample.contended_s) == (500, 0.006, 60, 12)
