"""Names as people choose them: markup, formulas, other scripts, line breaks. No form of a report runs any of them."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable
from email import message_from_string, policy
from typing import Any

import pytest
from django.test import Client

from apps.accounts.choices import Role
from apps.accounts.teams import team_named
from apps.core.errors import Malformed
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_update
from apps.reports.deliveries import deliveries_send_due
from apps.reports.lifecycle import REPORT, report_file
from apps.reports.models import Report
from apps.reports.services import definition_create, webhook_create
from tests.apps import small_cluster

pytestmark = pytest.mark.django_db

MARKUP = "<script>alert(1)</script> & <b>Größe</b> 負荷 😀"
SECTIONS = {"sections": ["objectives", "fleet", "changes"]}


@pytest.fixture
def report(cluster: Cluster, write: Callable[[Report], Report]) -> Report:
    """Mailed, of a cluster and a team with names of that kind."""
    cluster_update(cluster=cluster, name=MARKUP)
    cluster.queries.update(team=team_named("=HYPERLINK(0)"))
    made = definition_create(
        cluster=cluster, kind="provisioning", name=MARKUP, parameters=SECTIONS, emails=["ops@example.org"]
    )
    return write(REPORT.request(definition=made)[0])


def test_markup_is_text_in_every_form(report: Report, mailbox: Any) -> None:
    html = (report_file(report, "html") or b"").decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;Größe" in html
    assert "<script" not in html
    assert (report_file(report, "pdf") or b"").startswith(b"%PDF-")
    assert json.loads(report_file(report, "json") or b"")["name"] == MARKUP
    assert deliveries_send_due() == 1
    mail = message_from_string(mailbox.mails[0], policy=policy.default)
    assert mail["Subject"].strip().startswith(MARKUP)
    page = next(part for part in mail.walk() if part.get_content_type() == "text/html").get_content()
    assert "&lt;script&gt;" in page
    assert "<script" not in page


def test_markup_is_text_on_the_pages(report: Report) -> None:
    browser = Client()
    browser.force_login(small_cluster.user(Role.OPERATOR))
    for address in ("/c/little/reports/", f"/c/little/reports/{report.pk}/"):
        page = browser.get(address).content.decode()
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page


def test_csv_cells_that_look_like_formulas_are_quoted(report: Report) -> None:
    with zipfile.ZipFile(io.BytesIO(report_file(report, "csv") or b"")) as archive:
        rows = list(csv.DictReader(io.StringIO(archive.read("objectives.csv").decode())))
    assert {row["team"] for row in rows} == {"'=HYPERLINK(0)"}


@pytest.mark.parametrize("name", ["a\nBcc: all@example.org", "a\rb", "a\x1bb", "a\u2028b"])
def test_names_of_more_than_a_line_are_refused(cluster: Cluster, name: str) -> None:
    for make in (
        lambda: definition_create(cluster=cluster, kind="provisioning", name=name, parameters=SECTIONS),
        lambda: webhook_create(cluster=cluster, name=name, url="https://example.org/"),
        lambda: cluster_update(cluster=cluster, name=name),
    ):
        with pytest.raises(Malformed) as refused:
            make()
        assert [fault.path for fault in refused.value.faults] == ["name"]


def test_line_breaks_in_a_stored_name_add_no_mail_header(
    cluster: Cluster, write: Callable[[Report], Report], mailbox: Any
) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(name="Little\nBcc: all@example.org")
    made = definition_create(
        cluster=Cluster.objects.get(pk=cluster.pk),
        kind="provisioning",
        name="Weekly",
        parameters=SECTIONS,
        emails=["ops@example.org"],
    )
    write(REPORT.request(definition=made)[0])
    assert deliveries_send_due() == 1
    assert mailbox.recipients == ["ops@example.org"]
    mail = message_from_string(mailbox.mails[0], policy=policy.default)
    assert mail["Bcc"] is None
    assert mail["Subject"].startswith("Weekly, Little Bcc: all@example.org:")
