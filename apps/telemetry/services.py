"""Every change to telemetry, in one place to import from."""

from apps.telemetry.agents import agent_delete, agent_update
from apps.telemetry.enrolment import agent_enrol, enrolment_create, enrolment_revoke
from apps.telemetry.heartbeats import agent_heartbeat
from apps.telemetry.ingest import frames_ingest
from apps.telemetry.live import assignment_set, live_delete, live_refresh, live_start, live_stop, live_update
from apps.telemetry.producing import batch_take
from apps.telemetry.sources import source_delete, source_upsert, table_delete, table_upsert

__all__ = [
    "agent_delete",
    "agent_enrol",
    "agent_heartbeat",
    "agent_update",
    "assignment_set",
    "batch_take",
    "enrolment_create",
    "enrolment_revoke",
    "frames_ingest",
    "live_delete",
    "live_refresh",
    "live_start",
    "live_stop",
    "live_update",
    "source_delete",
    "source_upsert",
    "table_delete",
    "table_upsert",
]
