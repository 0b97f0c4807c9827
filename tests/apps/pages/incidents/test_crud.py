"""Channels of incidents are made, changed and deleted in the browser."""

from __future__ import annotations

from apps.incidents.models import IncidentChannel
from tests.apps.pages.crud import CrudTests

_ROOT = "/c/little/incidents/channels/"


class TestChannelCrud(CrudTests):
    model = IncidentChannel
    create_url = f"{_ROOT}new/"
    change_url = f"{_ROOT}{{pk}}/"
    delete_url = f"{_ROOT}{{pk}}/delete/"
    key = {"name": "on-call"}
    valid = {
        "kind": "alertmanager",
        "name": "on-call",
        "address": "https://alerts.example.org",
        "severity": "critical",
        "group_s": "0",
        "enabled": "on",
    }
    changed = {"group_s": 60}
    invalid = {"address": "ftp://alerts.example.org"}
