"""Every change to queries and arrivals, in one place to import from."""

from apps.queries.arrivals.services import (
    arrivals_create_from_counts,
    arrivals_create_from_generator,
    arrivals_create_from_upload,
    arrivals_delete,
    arrivals_inspect,
    arrivals_replace,
)
from apps.queries.arrivals.uploads import uploads_purge
from apps.queries.definitions import query_announce, query_create, query_delete, query_update, query_version_create
from apps.queries.documents import DocumentImport, document_export, document_import
from apps.queries.lifecycle import placement_move, query_start, query_stop
from apps.queries.statistics import statistics_of, statistics_update

__all__ = [
    "DocumentImport",
    "arrivals_create_from_counts",
    "arrivals_create_from_generator",
    "arrivals_create_from_upload",
    "arrivals_delete",
    "arrivals_inspect",
    "arrivals_replace",
    "document_export",
    "document_import",
    "placement_move",
    "query_announce",
    "query_create",
    "query_delete",
    "query_start",
    "query_stop",
    "query_update",
    "query_version_create",
    "statistics_of",
    "statistics_update",
    "uploads_purge",
]
