"""Help: terms, the way to the API, and the documentation: every page, every link of it, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from django.test import Client

from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db
DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_every_guide_is_shown_and_its_links_resolve(browser: Client) -> None:
    seen: dict[str, int] = {}
    waiting = ["/help/docs/README.md"]
    while waiting:
        address = waiting.pop()
        if address in seen:
            continue
        answer = browser.get(address)
        seen[address] = answer.status_code
        if address.endswith(".md"):
            text = answer.content.decode().partition('class="in guide"')[2]
            links = [link.partition("#")[0] for link in re.findall(r'(?:href|src)="([^"]+)"', text)]
            waiting += [urljoin(address, link) for link in links if link and "://" not in link and link[0] != "/"]
    assert set(seen.values()) == {200}
    pages = {f"/help/docs/{path.relative_to(DOCS).as_posix()}" for path in DOCS.rglob("*.md")}
    assert pages <= set(seen)


@pytest.mark.parametrize("path", ["nothing.md", "../manage.py", "..%2fmanage.py", "models", "", "/etc/passwd"])
def test_files_outside_the_documentation_are_not_found(browser: Client, path: str) -> None:
    assert browser.get(f"/help/docs/{path}").status_code == 404


def test_headings_have_anchors_and_html_is_escaped(browser: Client) -> None:
    html = browser.get("/help/docs/user-guide.md").content.decode()
    assert '<h2 id="known-limits">' in html
    assert "<h1>User guide</h1>" in html and html.count("<h1") == 1
    help_page = browser.get("/help/").content.decode()
    assert "/help/docs/user-guide.md" in help_page


def test_guides_need_a_sign_in(db: None) -> None:
    assert Client().get("/help/docs/README.md").status_code == 302


def test_help_explains_terms_and_links_the_api_schema(browser: Client) -> None:
    html = body(browser.get("/help/"))
    for word in ("Admit with changes", "At risk", "Predicted", "Headroom", "Mace"):
        assert word in html
    assert "/api/schema/" in body(browser.get("/help/api/"))
