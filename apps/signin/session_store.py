"""Sessions in the database, with their person beside the data (`SESSION_ENGINE`).

So the sessions of a person are found and ended without reading everybody's, and none is left out.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends import db
from django.utils import timezone

from apps.signin.models import Session

__all__ = ["PROVIDER_SESSION", "SessionStore"]

PROVIDER_SESSION = "provider_session"  #: in the data of a session: the key of its row of the provider's tokens


class SessionStore(db.SessionStore):  # named as Django's own, whose salt is that of data from before
    """A session; `seen_at` is when it was last seen, as far as that is stored."""

    seen_at: datetime | None = None

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        row: Session = super().create_model_instance(data)
        row.user_id = int(data[SESSION_KEY]) if SESSION_KEY in data else None
        row.provider_session_id = data.get(PROVIDER_SESSION)
        row.seen_at = self.seen_at = timezone.now()
        return row

    def _get_session_from_db(self) -> Session | None:
        row: Session | None = super()._get_session_from_db()
        self.seen_at = row.seen_at if row is not None else None
        return row
