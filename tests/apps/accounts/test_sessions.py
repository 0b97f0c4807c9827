"""Sessions that have expired are removed by the schedule, and others are not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session

from apps.accounts.services import sessions_purge
from apps.core.clock import shared_now


@pytest.mark.django_db
def test_expired_sessions_are_removed() -> None:
    for key, hours in (("over", -1), ("open", 1)):
        Session.objects.create(session_key=key, session_data="", expire_date=shared_now() + timedelta(hours=hours))
    assert sessions_purge() == 1
    assert [session.session_key for session in Session.objects.all()] == ["open"]
