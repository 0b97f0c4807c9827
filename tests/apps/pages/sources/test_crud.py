"""Sources of records and static tables: created, changed and deleted in the browser."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from apps.telemetry.models import StaticTable, TelemetrySource
from tests.apps.pages.crud import CrudTests

ADDRESS = "/c/little/sources/"


class TestSources(CrudTests):
    model = TelemetrySource
    key = {"source_id": "probes"}
    create_url = f"{ADDRESS}new/source/"
    change_url = f"{ADDRESS}collected/{{name}}/"
    delete_url = f"{ADDRESS}collected/{{name}}/delete/"
    valid = {
        "source_id": "probes",
        "kind": "producer",
        "columns": "ts timestamp\nurl string",
        "time": "ts",
        "lateness_s": "1.0",
        "options": "",
    }
    changed = {"lateness_s": "2.5"}
    invalid = {"columns": "ts"}

    def address(self, url: str, row: Model) -> str:
        return url.format(name=getattr(row, "source_id", ""))


class TestTables(CrudTests):
    model = StaticTable
    key = {"name": "racks"}
    create_url = f"{ADDRESS}new/table/"
    change_url = f"{ADDRESS}tables/{{name}}/"
    delete_url = f"{ADDRESS}tables/{{name}}/delete/"
    valid = {"name": "racks", "columns": "", "text": "ip,rack\n10.0.0.1,r1\n"}
    invalid = {"text": ""}

    def test_form_changes_the_rows_of_a_table(self, browser: Any) -> None:
        row = self.make(browser)
        text = "ip,rack\n10.0.0.1,r1\n10.0.0.2,r2\n"
        assert browser.post(self.address(self.change_url, row), self.typed(text=text)).status_code == 302
        assert StaticTable.objects.get(name="racks").rows == [["10.0.0.1", "r1"], ["10.0.0.2", "r2"]]

    def test_name_that_is_taken_is_refused(self, browser: Any) -> None:
        self.make(browser)
        answer = browser.post(self.create_url, self.typed(text="ip,rack\n10.9.9.9,r9\n"))
        assert answer.status_code == 422
        assert "a table of that name exists" in answer.content.decode()
        assert StaticTable.objects.get(name="racks").rows == [["10.0.0.1", "r1"]]
