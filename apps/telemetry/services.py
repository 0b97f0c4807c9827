"""Every change to telemetry, in one place to import from."""

from apps.telemetry.agents.heartbeats import agent_heartbeat
from apps.telemetry.agents.services import agent_delete, agent_enrol, agent_update, enrolment_create, enrolment_revoke
from apps.telemetry.ingest.frames import frames_ingest
from apps.telemetry.ingest.producers import batch_take
from apps.telemetry.live.services import assignment_set, live_delete, live_refresh, live_start, live_stop, live_update
from apps.telemetry.live.sources import source_delete, source_upsert, table_delete, table_upsert

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
