"""Selectors of labels: one syntax with all faults at once, and the same answer in memory and in the database."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from django.http import QueryDict

from apps.core.errors import Malformed
from apps.core.labels import label_faults, labels_parse, labels_text, selector_parse
from apps.fleet.models import Node
from apps.fleet.selectors import NodeFilter
from apps.fleet.services import node_create, pool_update
from apps.queries.models import Query
from tests.apps.small_cluster import small_cluster


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("env=prod", "env=prod"),
        (" tier in ( b, a,a ),env == prod ", "env=prod,tier in (a,b)"),
        ("tier in (a)", "tier=a"),
        ("tier notin(a)", "tier!=a"),
        ("!canary,canary.example.com/wave", "!canary,canary.example.com/wave"),
        ("env=,in in (in,notin)", "env=,in in (in,notin)"),
        ("7=8,7=8", "7=8"),
    ],
)
def test_a_selector_has_one_form(typed: str, shown: str) -> None:
    assert str(selector_parse(typed)) == shown
    assert selector_parse(shown) == selector_parse(typed)


@pytest.mark.parametrize(
    ("typed", "faults"),
    [
        ("", 1),
        ("  ", 1),
        ("env=prod,", 1),
        ("env prod,tier>3,_x=1", 3),
        ("!env=prod", 1),
        ("env in (a,b", 1),
        ("env in ()) or (a", 1),
        ("tierin (a)", 1),
        ("env in (-a,b c,d)", 2),
        ("a/b/c=1", 1),
        ("UPPER.com/a=1", 1),
        ("env=" + "x" * 254, 1),
        ("x" * 501, 1),
        ("env in (" + ",".join(map(str, range(51))) + ")", 1),
        ("env='prod'", 1),
    ],
)
def test_a_selector_is_refused_with_every_fault(typed: str, faults: int) -> None:
    with pytest.raises(Malformed) as refused:
        selector_parse(typed, "selector")
    assert [fault.path for fault in refused.value.faults] == ["selector"] * faults


def test_labels_are_refused_with_every_fault() -> None:
    bad = {"rack": 7, "zone": "a b", "-x": "1", "ok": "localhost:41234-1ef2cc", "none": ""}
    assert [fault.path for fault in label_faults(bad)] == ["labels.rack", "labels.zone", "labels"]
    assert [fault.path for fault in label_faults([])] == ["labels"]
    with pytest.raises(Malformed) as refused:
        labels_parse("a=1 b a=2,c=$")
    assert len(refused.value.faults) == 3
    assert labels_parse(labels_text({"b": "", "a": "1"})) == {"a": "1", "b": ""}


SELECTORS = [
    "env=prod", "env!=prod", "env", "!env", "env in (prod,dev)", "env notin (prod,dev)", "7=8", "7!=8", "a.b/c_d=1",
    "env=prod,!7", "env=", "rack=r1,env notin (dev)", "!rack", "none__such!=x",
]  # fmt: skip
LABELS: list[dict[str, str]] = [
    {}, {"env": "prod"}, {"env": "dev", "7": "8"}, {"env": "", "a.b/c_d": "1"}, {"7": "9", "rack": "r2"},
    {"env": "prod", "rack": "r1", "7": "8"},
]  # fmt: skip


@pytest.mark.django_db
def test_a_database_chooses_what_matches_in_memory() -> None:
    """Of queries by their labels, of nodes by those of their pool where they have none of that name."""
    cluster = small_cluster()
    pool = pool_update(pool=cluster.pools.get(), labels={"env": "prod", "rack": "r1"})
    Query.objects.filter(cluster=cluster).delete()
    for i, labels in enumerate(LABELS):
        Query.objects.create(cluster=cluster, name=f"q{i}", labels=labels)
        node_create(pool=pool, name=f"labelled-{i}", labels=labels)
    nodes = Node.objects.filter(name__startswith="labelled-")
    for text in SELECTORS:
        selector = selector_parse(text)
        found = set(Query.objects.filter(selector.condition("labels")).values_list("name", flat=True))
        assert found == {f"q{i}" for i, labels in enumerate(LABELS) if selector.matches(labels)}, text
        rows = NodeFilter(QueryDict(urlencode({"labels": text})), queryset=nodes).qs
        of_nodes = {f"labelled-{i}" for i, labels in enumerate(LABELS) if selector.matches({**pool.labels, **labels})}
        assert set(rows.values_list("name", flat=True)) == of_nodes, text
