"""The field tables of the agent's configuration: which fields there are and what they hold."""

from __future__ import annotations

from agent.collect.options import KINDS
from engine.fields import Anything, Choice, Field, Listed, Mapped, Number, Table, Text
from engine.jarvis.settings import SETTINGS
from engine.klink.settings import SCHEDULE

__all__ = ["CHILD", "CONFIG", "QUERY", "RELAY", "SOURCE"]

TYPES = ("int64", "float64", "string", "bool", "timestamp")
LEAST_SPOOL_BYTES = 2**20
NAME = Text(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", "letters, digits, dots, dashes and underscores")
QUERY_NAME = Text(r"[^/\s]+/[^/\s]+", "cluster/query")
DIGEST = Text(r"[0-9a-f]{64}", "a SHA-256 in 64 hexadecimal digits")
ADDRESS = Text(r"[^\s:]+:\d{1,5}|\[[0-9A-Fa-f:]+\]:\d{1,5}", "host:port")
URL = Text(r"https?://[^\s]+", "an address that begins with http:// or https://")

SOURCE = Table(
    "a source",
    Field("kind", Choice(KINDS), required=True, help="which collector"),
    Field("options", Anything(), help="of that collector"),
    Field("time", NAME, required=True, help="the column of event time"),
    Field("columns", Mapped(Choice(TYPES)), required=True, help="columns of a record and their types"),
    Field("lateness_s", Number(least=0, most=86_400), help="how much older than the newest a record may be; 1"),
)
QUERY = Table(
    "a query",
    Field("query", QUERY_NAME, required=True, help="cluster/query"),
    Field("version", Number(least=0, whole=True), required=True),
    Field("plan", DIGEST, required=True, help="digest of the pipeline"),
    Field("pipeline", Anything(), required=True, help="the pipeline document"),
    Field("settings", SETTINGS, help="how it is adapted; those of the method scalar"),
    Field("refined", Anything(), nullable=True, help="what was learned of it, judged when the next epoch begins"),
    Field("weight", Number(above=0), help="share of the budget beside the agent's other queries; 1"),
)
CHILD = Table(
    "a child",
    Field("agent", NAME, required=True),
    Field("secret_hash", DIGEST, required=True, help="SHA-256 of the child's secret"),
    Field("queries", Mapped(DIGEST), help="plans by query that the child runs: the relay waits for its marks"),
)
RELAY = Table(
    "a relay",
    Field("listen", ADDRESS, required=True, help="where agents below send their frames"),
    Field("children", Listed(CHILD), required=True, help="agents whose frames it takes"),
    Field("pipelines", Mapped(Anything()), help="pipeline documents by digest, to merge the children's partials"),
    Field("idle_after_s", Number(above=0), help="a child silent for longer no longer holds the watermark back; 60"),
)
CONFIG = Table(
    "a configuration",
    Field("version", Number(least=0, whole=True), required=True),
    Field("agent", NAME, required=True, help="id of the agent"),
    Field("cluster", NAME, required=True),
    Field("epoch_s", Number(least=0.05, most=60), help="1"),
    Field("sub_epochs", Number(least=1, most=1000, whole=True), help="10"),
    Field("budget_cores", Number(above=0), help="CPU that the agent may use, in cores; 0.2"),
    Field("batch_records", Number(least=1, most=100_000, whole=True), help="records in a frame; 1,000"),
    Field("spool_max_bytes", Number(least=LEAST_SPOOL_BYTES, most=2**50, whole=True), help="268,435,456"),
    Field(
        "checkpoint_share",
        Number(least=0, most=1),
        help="copies of open windows that are sent, as a share of what else is; 0.1, and 0: none",
    ),
    Field("schedule", SCHEDULE, help="how the queries share the core; those of the policy klink"),
    Field("refined_schedule", Anything(), nullable=True, help="as it was refined, judged when the next epoch begins"),
    Field("sources", Mapped(SOURCE), required=True),
    Field("queries", Listed(QUERY), required=True),
    Field("relay", RELAY, nullable=True),
    Field("parent", Table("a parent", Field("url", URL, required=True)), nullable=True, help="a relay to send to"),
)
