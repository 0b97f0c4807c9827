"""Looks: what of an engine's picture is kept for its page."""

from __future__ import annotations

import json

from apps.connections.looks import look_document
from tests.apps.connections.pictures import shop_look, shop_picture


def test_look_names_places_and_inputs_instead_of_ids() -> None:
    look = look_document(shop_picture(160.0))
    job = look["jobs"][0]
    source, work = job["operators"]
    assert (look["version"], job["name"], job["polls"]) == ("2.3.0", "shop", 0)
    assert [place["name"] for place in look["places"]] == ["tm1", "tm2"]
    assert source["inputs"] == [] and "cost_s" not in source
    assert work["inputs"] == [{"from": "orders", "strategy": "hash"}]
    assert work["places"] == ["tm1", "tm2"]


def test_look_holds_the_statistics_of_sampled_operators_and_is_json() -> None:
    look = shop_look(160.0)
    job = look["jobs"][0]
    assert job["polls"] == 7
    sampled = [job["operators"][1][name] for name in ("events", "cost_s", "span_s", "contended_s")]
    assert sampled == [500, 0.006, 60, 12]
    assert json.loads(json.dumps(look)) == look
