"""Parameters of what is looked for, read strictly and with every fault at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.core.errors import Fault, Malformed, fault_count
from apps.planning.choices import Find
from engine.fields import BAD, Field, Flag, Listed, Mapped, Number, Table, Text
from engine.tables import CAPACITY, PRICE

__all__ = ["FACTOR", "MOST_NODES", "MOST_SIZES", "options_read"]

MOST_SIZES = 60  # sizes of one sweep
MOST_NODES = 2000  # nodes of one fleet
FACTOR = Number(least=0.01, most=100.0)

_NOT_NEGATIVE = Number(least=0.0)
_COUNT = Number(least=1, most=MOST_NODES, whole=True)
_TYPE = Table(
    "a node type",
    Field("name", Text(), required=True),
    Field("capacity_cps", CAPACITY, required=True, help="cycles/s of one core"),
    Field("cores", Number(least=1, most=1024, whole=True), required=True),
    Field("price_per_hour", PRICE, required=True),
    Field("max", _COUNT, nullable=True, help="most nodes of this type"),
)
_SEED = Field("seed", Number(least=0, whole=True))
_LOSE_ONE = Field("lose_one", Flag(), help="every objective is to hold with any one node lost")
_HEADROOM = Field("headroom_s", _NOT_NEGATIVE, help="seconds to keep below every objective")
_MAX = Field("max_nodes", _COUNT)
_KEEP = Field("keep_present", Flag(), help="new nodes join those there are (default) or take their place")
_MIX = (_SEED, _LOSE_ONE, _KEEP, Field("types", Listed(_TYPE, least=1, most=6), required=True))

_TABLES = {
    Find.COMPARE: Table("options", _SEED, _LOSE_ONE, Field("flow", Flag()), Field("intervals", Flag())),
    Find.SWEEP: Table(
        "options",
        Field("factor", FACTOR, help="all sources times this"),
        Field("sources", Mapped(FACTOR), help="single sources times this, besides factor"),
        Field("pool", Text(), nullable=True, help="whose nodes are added or taken"),
        Field("sizes", Listed(_COUNT, least=1, most=MOST_SIZES), help="numbers of nodes of the whole cluster"),
        Field("bound_s", Number(above=0.0), nullable=True, help="one worst case for all, instead of their objectives"),
        Field("objective_factor", FACTOR, help="every objective times this"),
        _LOSE_ONE,
        _HEADROOM,
    ),
    Find.SMALLEST_POOL: Table(
        "options",
        _SEED,
        _LOSE_ONE,
        _HEADROOM,
        _MAX,
        _KEEP,
        Field("pool", Text(), nullable=True, help="what further nodes are like"),
    ),
    Find.CHEAPEST_MIX: Table("options", *_MIX, _HEADROOM),
    Find.PARETO: Table("options", *_MIX),
    Find.SURVIVAL: Table("options", _SEED),
    Find.GROWTH: Table("options", Field("most", Number(above=1.0, most=1000.0), help="largest factor looked at")),
}


def options_read(find: str, given: Any) -> dict[str, Any]:
    """The parameters of a search as they were given, checked.

    Raises
    ------
    Malformed
        With every fault, each under ``options``.
    """
    faults: list[Fault] = []
    read = _TABLES[Find(find)].read(given, "", "options", faults)
    if faults or read is BAD:
        raise Malformed(f"The options have {fault_count(faults)}; first: {faults[0].message}", faults)
    assert isinstance(read, Mapping)
    return {name: value for name, value in read.items() if value is not None}
