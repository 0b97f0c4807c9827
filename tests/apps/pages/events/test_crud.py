"""Events are planned, changed and deleted in the browser."""

from __future__ import annotations

import pytest

from apps.planning.models import PlannedEvent
from tests.apps.pages.crud import CrudTests
from tests.apps.pages.events.test_views import FORM
from tests.apps.planning.test_events import cluster

__all__ = ["cluster"]


@pytest.mark.moment
class TestEventCrud(CrudTests):
    model = PlannedEvent
    create_url = "/c/little/events/new/"
    change_url = "/c/little/events/{pk}/change/"
    delete_url = "/c/little/events/{pk}/delete/"
    key = {"name": "Friday"}
    valid = FORM
    changed = {"name": "Black Friday", "lead_time_days": 3.0}
    invalid = {"factors": "nobody 3x"}
