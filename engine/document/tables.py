"""Field tables of the deployment document: the only definition of its fields and their values."""

from __future__ import annotations

from pydantic.json_schema import JsonSchemaValue

from engine.document.cycles import CYCLE_UNITS
from engine.document.elements import (
    EVENT,
    MAX_BACKLOG_AGE_S,
    MEASURED,
    ON_CLOSE,
    ON_UPDATE,
    SAMPLE,
    STATED,
    THESE,
    WINDOW_END,
)
from engine.fields import (
    MIN_NUMBER,
    Anything,
    Enumeration,
    Field,
    FieldTable,
    Flag,
    ListOf,
    MapOf,
    Number,
    NumberSeries,
    String,
)
from engine.klink.settings import POLICIES

__all__ = [
    "AGGREGATE_FUNCTIONS",
    "BACKLOG",
    "CANDIDATE",
    "COST_NOISE",
    "DEPLOYMENT",
    "EVENT_FIELDS",
    "FILTER_FUNCTIONS",
    "FORMAT",
    "MAX_DISPERSION",
    "OPERATOR",
    "SOURCE",
    "VALUE_TYPES",
    "VERSION",
    "json_schema",
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
KINDS = ("source", "filter", "map", "join", "aggregate", "window", "sink", "other")

EVENT_FIELDS = FieldTable(
    "the fields of an event", *(Field(name, FIELD_COUNT) for name in ("ints", "strings", "doubles"))
)
BACKLOG = FieldTable(
    "a backlog",
    Field("events", Number(least=0, most=1e15), nullable=True, help="events that wait; at the known rate unless given"),
    Field("behind_s", WAIT, nullable=True, help="age of the oldest of them; at the known rate unless given"),
    Field(
        "age_s",
        NOT_NEGATIVE,
        nullable=True,
        help=f"seconds since it was read; not used beyond {MAX_BACKLOG_AGE_S:g}",
    ),
    Field("origin", Enumeration((STATED, MEASURED)), help=f"{STATED} unless given"),
)
SOURCE = FieldTable(
    "a source",
    Field("id", ID, required=True),
    Field("arrivals", NumberSeries(), required=True, help="events in every subinterval"),
    Field("event_fields", EVENT_FIELDS, nullable=True, help="fields of an event by type"),
    Field(
        "arrivals_step_s",
        WIDTH,
        nullable=True,
        help="width at which counts are really known, a multiple of the subinterval",
    ),
    Field("dispersion", DISPERSION, nullable=True, help="index of dispersion of the counts"),
    Field("dispersion_step_s", WIDTH, nullable=True, help="width of the counts that it was measured on"),
    Field(
        "backlog",
        BACKLOG,
        nullable=True,
        help="events that wait for its readers where the horizon begins; left out: none",
    ),
)
NODE = FieldTable(
    "a node",
    Field("id", ID, required=True),
    Field("capacity_cps", CAPACITY, help="cycles/s of one core"),
    Field(
        "capacity_series_cps",
        NumberSeries(),
        help="cycles/s of one core, per subinterval; the last also holds afterwards",
    ),
    Field("cores", CORES),
    Field("pool", ID, nullable=True),
    Field("price_per_hour", PRICE, nullable=True),
    Field("memory_bytes", MEMORY, nullable=True, help="what the state of its operators may take"),
    Field("labels", MapOf(String())),
    Field("scheduling", SCHEDULING, nullable=True, help="its policy; the deployment's unless given"),
    Field("cycle_unit", CYCLE_UNIT, nullable=True, help="what its capacity counts; the deployment's unless given"),
    Field(
        "cycles_per_ns",
        CYCLES_PER_NS,
        nullable=True,
        help="cycles of a clock that one core does in a nanosecond of CPU, where it was measured",
    ),
)
MODEL = FieldTable(
    "a model",
    Field("output", ListOf(Number(), least=3, most=3), required=True, help="c0, c1, c2: events put out"),
    Field("cycles", ListOf(Number(), least=3, most=3), required=True, help="c0, c1, c2: cycles"),
)
BATCH = FieldTable(
    "a batch",
    Field("events", NOT_NEGATIVE, required=True),
    Field("outputs", NOT_NEGATIVE, required=True),
    Field("cycles", NOT_NEGATIVE, required=True),
)
#: How the cost of an input varies; `checks.check_cost_noise` has the rule across them.
COST_NOISE = (
    Field("cost_cv2", COST_CV2, nullable=True, help="variance over squared mean of one event's cost"),
    Field(
        "cost_dispersion",
        DISPERSION,
        nullable=True,
        help="cost_dispersion_events times the relative variance of mean costs of so many consecutive events",
    ),
    Field("cost_dispersion_events", Number(least=1, most=1e9), nullable=True),
)
INPUT = FieldTable(
    "an input",
    Field("from", ID, required=True, help="a source or another operator"),
    Field("selectivity", NOT_NEGATIVE, help="events put out per event read; needed without a model"),
    Field("cycles_per_event", NOT_NEGATIVE, help="left out: it never ran, and a nominal cost stands in"),
    Field("model", MODEL, nullable=True, help="polynomials in the events of a subinterval"),
    Field("batches", ListOf(BATCH), help="the sample behind the statistics, batch by batch"),
    *COST_NOISE,
    Field("backlog", BACKLOG, nullable=True, help="events that wait here, in place of the source's; left out: its own"),
)
PART = FieldTable(
    "a part of a split",
    Field("node", ID, required=True),
    Field("core", INDEX),
    Field("fraction", POSITIVE, required=True),
)
WINDOW = FieldTable(
    "a window",
    Field("policy", Enumeration(("time", "count")), required=True),
    Field("type", Enumeration(("tumbling", "sliding")), required=True),
    Field("size", SPAN, required=True, help="seconds or events"),
    Field("slide", SPAN, nullable=True, help="needed for a sliding window"),
    Field(
        "watermark_delay_s",
        WAIT,
        nullable=True,
        help="event time: it closes when an event so much later than its end has come; left out: by the clock",
    ),
    Field("allowed_lateness_s", WAIT, nullable=True, help="results are held so long after the watermark; event time"),
    Field("emit", Enumeration((ON_CLOSE, ON_UPDATE)), nullable=True, help="on_close unless given"),
    Field(
        "measured_from",
        Enumeration((EVENT, WINDOW_END)),
        nullable=True,
        help="what the latency of its results counts from: each event (unless given), or the window's end",
    ),
)
TRIGGER = FieldTable(
    "a trigger",
    Field("interval_s", INTERVAL, required=True, help="seconds from one batch to the next"),
    Field("overhead_s", WAIT, nullable=True, help="seconds of a batch beyond the work of its events"),
)
FILTER = FieldTable(
    "a filter",
    Field("function", Enumeration(FILTER_FUNCTIONS), required=True),
    Field("literal_type", Enumeration(VALUE_TYPES), required=True),
)
JOIN = FieldTable("a join", Field("key_type", Enumeration(VALUE_TYPES), required=True))
AGGREGATE = FieldTable(
    "an aggregation",
    Field("function", Enumeration(AGGREGATE_FUNCTIONS), required=True),
    Field("argument_type", Enumeration(VALUE_TYPES), required=True),
    Field("group_by_type", Enumeration(("none", *VALUE_TYPES)), help="none unless given"),
)
EVIDENCE = FieldTable(
    "evidence",
    Field("kind", Enumeration(("assumed", "predicted", "measured")), required=True),
    Field("events", NOT_NEGATIVE),
    Field("age_s", NOT_NEGATIVE, nullable=True),
    Field("cycle_unit", CYCLE_UNIT, nullable=True, help="what its costs count; the deployment's unless given"),
)
OPERATOR = FieldTable(
    "an operator",
    Field("id", ID, required=True),
    Field("node", ID),
    Field("core", INDEX),
    Field("split", ListOf(PART, least=1), help="instead of node: shares that add up to 1"),
    Field("inputs", ListOf(INPUT), required=True),
    Field("bytes_per_event", BYTES),
    Field("stateless", Flag(), nullable=True),
    Field("query", ID, nullable=True),
    Field("kind", Enumeration(KINDS), nullable=True),
    Field("filter", FILTER, nullable=True, help="of a filter"),
    Field("join", JOIN, nullable=True, help="of a join"),
    Field("aggregate", AGGREGATE, nullable=True, help="of an aggregation"),
    Field("window", WINDOW, nullable=True),
    Field("trigger", TRIGGER, nullable=True, help="it runs in micro-batches"),
    Field("buffer_timeout_s", WAIT, nullable=True, help="what it puts out leaves in buffers, full or so old"),
    Field("state_bytes", BYTES, nullable=True, help="of all replicas together"),
    Field("state_on_disk", Flag(), nullable=True, help="the state lies on disk: no node's memory bounds it"),
    Field("tuple_values_in", NOT_NEGATIVE, nullable=True),
    Field("tuple_values_out", NOT_NEGATIVE, nullable=True),
    Field("evidence", EVIDENCE, nullable=True),
    Field("reads", ListOf(ID), nullable=True, help="fields of an event that it looks at; for a join, its keys"),
    Field("writes", ListOf(ID), nullable=True, help="fields that it adds or changes; all others pass unchanged"),
    Field("expression", Anything(), nullable=True),
    Field("unread", ListOf(ID), help="what of its plan nobody understood, so that no estimate holds its wait"),
)
LINK = FieldTable(
    "a link",
    Field("from", ID, required=True),
    Field("to", ID, required=True),
    Field("bandwidth_bytes_s", CAPACITY, nullable=True, help="null: no limit"),
    Field("delay_s", WAIT),
)
COMBINE = FieldTable(
    "combine",
    Field("kind", Enumeration(("sum", "max", "interference")), required=True),
    Field("alpha", ALPHA, help="for interference only"),
)
OBJECTIVE = FieldTable(
    "an objective",
    Field("query", ID, required=True),
    Field("statistic", STATISTIC, required=True),
    Field("bound_s", POSITIVE, required=True),
)
CONSTRAINTS = FieldTable(
    "constraints",
    Field("pin", MapOf(ID), help="operator: the node it must stay on"),
    Field("forbid", MapOf(ListOf(ID)), help="operator: nodes it must not be on"),
    Field("apart", ListOf(ListOf(ID, least=2)), help="operators that must not share a node"),
    Field("max_moves", INDEX, nullable=True),
    Field("may_split", ListOf(ID), nullable=True),
)
PRIORITY = Number(whole=True)

DEPLOYMENT = FieldTable(
    "a deployment",
    Field("format", Enumeration((FORMAT,))),
    Field("version", Enumeration((VERSION,))),
    Field("subinterval_s", WIDTH, required=True),
    Field("subintervals", SUBINTERVALS, help="needed only without sources"),
    Field("sources", ListOf(SOURCE)),
    Field("nodes", ListOf(NODE)),
    Field("operators", ListOf(OPERATOR)),
    Field("links", ListOf(LINK)),
    Field("combine", COMBINE),
    Field("scheduling", SCHEDULING, nullable=True, help="policy of the nodes that name none; stimulus-time"),
    Field("cycle_unit", CYCLE_UNIT, nullable=True, help="unit of nodes and costs that name none; nominal"),
    Field(
        "statistics_of",
        Enumeration((SAMPLE, THESE)),
        nullable=True,
        help="these: counted on the very arrivals estimated; a sample unless given",
    ),
    Field("objectives", ListOf(OBJECTIVE)),
    Field("priorities", MapOf(PRIORITY)),
    Field("constraints", CONSTRAINTS),
    Field("plans", MapOf(ListOf(ListOf(OPERATOR)))),
)
CANDIDATE = FieldTable(
    "a candidate",
    Field("query", ID, required=True),
    Field("operators", ListOf(OPERATOR, least=1), required=True),
    Field("sources", ListOf(SOURCE)),
    Field(
        "objective",
        FieldTable(
            "an objective", Field("statistic", STATISTIC, required=True), Field("bound_s", POSITIVE, required=True)
        ),
        nullable=True,
    ),
    Field("priority", PRIORITY),
    Field("may_wait_s", NOT_NEGATIVE),
    Field("cycle_unit", CYCLE_UNIT, nullable=True, help="unit of costs that name none; nominal"),
)


def json_schema() -> JsonSchemaValue:
    """The deployment document as JSON Schema (draft 2020-12), made from the field tables.

    Rules that reach across fields (unknown nodes, cycles, lengths) are beyond a schema; `Deployment.parse` has them.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sluice deployment",
        "description": f"Format {FORMAT}, version {VERSION}",
    } | DEPLOYMENT.schema()
