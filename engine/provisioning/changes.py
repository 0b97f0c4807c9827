"""Forms of the changes a what-if may make: which fields each has, read strictly and all at once.

A change is a JSON object known by the field that names what it changes. Whether the names exist is a matter of the
deployment it is applied to: `engine.provisioning.scenario`.
"""

from __future__ import annotations

from typing import Any

from engine.errors import Fault
from engine.fields import BAD, Anything, Field, Number, Series, Table, Text
from engine.tables import CAPACITY, CORES, ID, NOT_NEGATIVE, POSITIVE, PRICE, STATISTIC
from engine.wording import show, suggest

__all__ = ["FORMS", "MOST_LOAD", "MOST_NODES", "Change", "read_change", "read_list"]

Change = dict[str, Any]

MOST_NODES = 1024  # of one change: each core is a server with a series of its own
MOST_LOAD = 1e6  # times the present one, all changes of it together

FORMS = {
    "scale_source": Table(
        "a scaled source",
        Field("scale_source", Text(), required=True, help="a source, or * for all"),
        Field("by", NOT_NEGATIVE, required=True),
    ),
    "scale_query": Table(
        "a scaled query",
        Field("scale_query", ID, required=True),
        Field("by", NOT_NEGATIVE, required=True),
    ),
    "arrivals": Table(
        "other arrivals",
        Field("arrivals", ID, required=True, help="a source"),
        Field("factors", Series(), help="what to multiply each subinterval by"),
        Field("values", Series(), help="events in every subinterval"),
    ),
    "add_nodes": Table(
        "new nodes",
        Field("add_nodes", Number(least=1, most=MOST_NODES, whole=True), required=True),
        Field("like", ID, help="a node; not needed with capacity_cps"),
        Field("capacity_cps", CAPACITY),
        Field("cores", CORES),
        Field("price_per_hour", PRICE, nullable=True),
    ),
    "lose_node": Table("a lost node", Field("lose_node", ID, required=True)),
    "capacity": Table(
        "another capacity",
        Field("capacity", ID, required=True, help="a node"),
        Field("by", Number(least=1e-6, most=1e6)),
        Field("capacity_cps", CAPACITY),
    ),
    "resize_pool": Table(
        "a resized pool",
        Field("resize_pool", ID, required=True),
        Field("nodes", Number(least=0, most=MOST_NODES, whole=True), required=True),
    ),
    "objective": Table(
        "another objective",
        Field("objective", ID, required=True, help="a query"),
        Field("statistic", STATISTIC, help="as it is, or worst, unless given"),
        Field("bound_s", POSITIVE, required=True),
    ),
    "add_query": Table("a new query", Field("add_query", Anything(), required=True, help="a candidate")),
    "remove_query": Table("a removed query", Field("remove_query", ID, required=True)),
}
# Fields of which a change has exactly one.
_ONE_OF = {"arrivals": ("factors", "values"), "capacity": ("by", "capacity_cps")}


def read_list(items: Any, path: str, faults: list[Fault]) -> list[Change | None]:
    """The changes of a list in their places; None where one is faulty."""
    if not isinstance(items, (list, tuple)):
        faults.append(Fault(path, f"changes is {show(items)}; allowed: a list"))
        return []
    return [read_change(item, path, i, faults) for i, item in enumerate(items)]


def read_change(item: Any, parent: str, index: int, faults: list[Fault]) -> Change | None:
    """One change of a known form without a fault in its fields, or None."""
    path = f"{parent}[{index}]"
    if not isinstance(item, dict):
        faults.append(Fault(path, f"item {index} is {show(item)}; allowed: an object"))
        return None
    named = [name for name in FORMS if name in item]
    if not named:
        near = next((words for key in item if (words := suggest(str(key), list(FORMS)))), "")
        faults.append(Fault(path, f"item {index} names no change; allowed: {', '.join(FORMS)}{near}"))
        return None
    count = len(faults)
    record: Any = FORMS[named[0]].read(item, parent, index, faults)
    choices = _ONE_OF.get(named[0], ())
    given = [name for name in choices if name in item]
    if choices and len(given) != 1:
        faults.append(Fault(path, f"{' and '.join(given) or 'neither'} is given; allowed: one of {', '.join(choices)}"))
    if named[0] == "add_nodes" and "like" not in item and "capacity_cps" not in item:
        faults.append(Fault(f"{path}.like", "like is missing; new nodes need a node to be like, or capacity_cps"))
    return None if record is BAD or len(faults) > count else record
