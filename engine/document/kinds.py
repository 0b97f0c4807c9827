"""Values of the deployment document: what bounds them, and the few that a field may have."""

from __future__ import annotations

from typing import Annotated

from engine.document.cycles import CYCLE_UNITS
from engine.kinds import MIN_NUMBER, Enumeration, Number, String
from engine.klink.settings import POLICIES
from engine.records import Words

__all__ = [
    "AGGREGATE_FUNCTIONS",
    "ALPHA",
    "BYTES",
    "CAPACITY",
    "CORES",
    "COST_NOISE",
    "COST_SHARE",
    "CYCLES_PER_NS",
    "CYCLE_UNIT",
    "DISPERSION",
    "FIELD_COUNT",
    "FILTER_FUNCTIONS",
    "FORMAT",
    "ID",
    "INDEX",
    "INTERVAL",
    "MAX_DISPERSION",
    "MAX_LINKS",
    "MAX_NODES",
    "MAX_OPERATORS",
    "MAX_SOURCES",
    "MEMORY",
    "NOT_NEGATIVE",
    "OPERATOR_KINDS",
    "POSITIVE",
    "PRICE",
    "PRIORITY",
    "SCHEDULING",
    "SPAN",
    "STATISTIC",
    "SUBINTERVALS",
    "VALUE_TYPES",
    "VERSION",
    "WAIT",
    "WIDTH",
    "CostDispersion",
    "CostDispersionEvents",
]

FORMAT = "sluice/deployment"
VERSION = 1

ID = String()
NOT_NEGATIVE = Number(least=0, smallest=MIN_NUMBER)
POSITIVE = Number(above=0)
# Beyond these, sums overflow: a latency without end would be computed without end.
CAPACITY = Number(least=1e-6, most=1e18)
BYTES = Number(least=0, most=1e18)
#: Interference beyond it is a mistake.
ALPHA = Number(least=0, most=1e6)
#: A cost of which less remains on a quiet host, or under more load, was not measured.
COST_SHARE = Number(least=1e-3, most=1)
# Times are counted in subintervals, by whole numbers of 64 bits.
WIDTH = Number(least=1e-6, most=1e8)
SPAN = Number(least=1e-6, most=1e12)
PRICE = Number(least=0, most=1e12)
INDEX = Number(least=0, whole=True)
# Beyond these a figure is a mistake: a cost whose deviation is a hundred times its mean, clumps of a million events.
COST_CV2 = Number(least=0, most=1e4)
MAX_DISPERSION = 1e6
DISPERSION = Number(least=0, most=MAX_DISPERSION)
# Longer waits than three years are a mistake, and so are batches shorter than a millisecond.
WAIT = Number(least=0, most=1e8)
INTERVAL = Number(least=1e-3, most=1e8)
FIELD_COUNT = Number(least=0, most=10_000, whole=True)
# A few bytes must not ask for more memory than a machine has: each core is a server with a series of its own.
CORES = Number(least=1, most=1024, whole=True)
MEMORY = Number(least=0)
# What one document may have: larger ones would take a worker's memory before anybody could say what they are.
MAX_SOURCES = MAX_OPERATORS = MAX_LINKS = 100_000
MAX_NODES = 20_000
SUBINTERVALS = Number(least=1, most=10_000_000, whole=True)
STATISTIC = String(
    r"worst|mean|q(0?\.\d*[1-9]\d*|1(\.0*)?)", "worst, mean, or q and a number above 0 and up to 1, such as q0.99"
)
SCHEDULING = Enumeration(POLICIES)
CYCLE_UNIT = Enumeration(CYCLE_UNITS)
CYCLES_PER_NS = Number(least=1e-3, most=1e3)
#: Types of values that a model of queries tells apart.
VALUE_TYPES = ("int", "string", "double")
FILTER_FUNCTIONS = ("<", ">", "<=", ">=", "==", "!=", "startswith", "endswith", "contains", "other")
AGGREGATE_FUNCTIONS = ("min", "max", "mean", "avg", "sum", "count", "other")
OPERATOR_KINDS = ("source", "filter", "map", "join", "aggregate", "window", "sink", "other")
PRIORITY = Number(whole=True)
#: How the cost of an input varies; `cost_noise_faults` has the rule across them.
CostCv2 = Annotated[Annotated[float, COST_CV2] | None, Words("variance over squared mean of one event's cost")]
CostDispersion = Annotated[
    Annotated[float, DISPERSION] | None,
    Words("cost_dispersion_events times the relative variance of mean costs of so many consecutive events"),
]
CostDispersionEvents = Annotated[float, Number(least=1, most=1e9)] | None
COST_NOISE = ("cost_cv2", "cost_dispersion", "cost_dispersion_events")
