"""Two teams, an admitter and an auditor share a cluster for a day, each signed in at a real provider."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.apps.signin.providers import SECRET, RealProvider, real_provider
from tests.apps.small_cluster import body
from tests.e2e.installation import Installation
from tests.e2e.test_browser import apply, field, heading, verdict

pytestmark = [pytest.mark.e2e, pytest.mark.night]

SLUG = "shared"
_WAIT_MS = 60_000
_SET_UP = f"""
import django
django.setup()
from apps.accounts.grants import grant_give, group_create
from apps.accounts.teams import team_create
from tests.apps.small_cluster import small_cluster
cluster = small_cluster("{SLUG}", nodes=("a",))
for name in ("payments", "growth"):
    grant_give(role="author", group=group_create(name=name), team=team_create(name=name, clusters=[cluster]))
grant_give(role="admitter", group=group_create(name="platform"), cluster=cluster)
grant_give(role="viewer", group=group_create(name="audit"))
"""
_PEOPLE = {"ada": "payments", "bob": "growth", "olga": "platform", "kim": "audit"}


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealProvider]:
    with real_provider(tmp_path_factory.mktemp("provider")) as provider:
        for name, group in _PEOPLE.items():
            provider.set_person(f"{name}-1", preferred_username=name, groups=[group])
        yield provider


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, provider: RealProvider) -> Iterator[Installation]:
    """A console that people sign in to at the provider, who are nobody but what their groups make them."""
    folder = tmp_path_factory.mktemp("shared")
    secret = folder / "oidc_secret"
    secret.write_text(SECRET)
    settings = {"ISSUER": provider.url, "CLIENT_ID": "sluice", "CLIENT_SECRET_FILE": str(secret), "ROLE": "none"}
    installation = Installation(folder, **{f"SLUICE_OIDC_{name}": value for name, value in settings.items()})
    try:
        installation.start()
        installation.script(_SET_UP)
        yield installation
    finally:
        installation.stop()


@pytest.fixture
def people(browser: Browser, shared: Installation, provider: RealProvider) -> Iterator[dict[str, Page]]:
    """A browser of each, signed in."""
    pages = {}
    for name in _PEOPLE:
        context = browser.new_context(base_url=shared.url, viewport={"width": 1280, "height": 900})
        context.set_default_timeout(_WAIT_MS)
        context.route(re.compile(r"^https://"), lambda route: route.abort())  # the provider's style
        page = pages[name] = context.new_page()
        page.goto(f"/login/?next=/c/{SLUG}/")
        page.get_by_role("link", name="Sign in with single sign-on").click()
        page.locator("input[name=sub]").fill(f"{name}-1")
        page.get_by_role("button", name="Authorize").click()
        expect(page).to_have_url(re.compile(f"/c/{SLUG}/$"))
    yield pages
    for page in pages.values():
        page.context.close()


def test_two_teams_an_admitter_and_an_auditor_share_a_cluster(people: dict[str, Page]) -> None:
    ada, bob, olga, kim = people.values()
    register(ada, "card-fraud", 0.6)
    register(bob, "funnel", 0.6)

    ada.goto(f"/c/{SLUG}/queries/")
    expect(ada.locator("main")).to_contain_text("card-fraud")
    expect(ada.locator("main")).not_to_contain_text("funnel")
    assert status(ada, f"/c/{SLUG}/queries/funnel/") == 404
    assert status(ada, f"/c/{SLUG}/admission/new/?query=card-fraud") in {403, 404}

    for name, words in (("card-fraud", "Admit: Every objective holds"), ("funnel", "Reject")):
        olga.goto(f"/c/{SLUG}/admission/new/?query={name}")
        olga.get_by_role("button", name="Preview admission").click()
        expect(verdict(olga)).to_contain_text(words)
        if name == "card-fraud":
            apply(olga, name)

    ada.goto(f"/c/{SLUG}/queries/card-fraud/")
    expect(heading(ada)).to_contain_text(re.compile("Holds|holds"))
    bob.goto(f"/c/{SLUG}/queries/funnel/")
    expect(heading(bob)).to_contain_text("Draft")
    expect(bob.locator("body")).not_to_contain_text("card-fraud")
    bob.locator("main").get_by_role("link", name="Decisions").click()
    bob.locator("main tbody a").first.click()
    expect(bob.locator("main")).to_contain_text("A query of another team would miss its objective")
    expect(bob.locator("body")).not_to_contain_text("card-fraud")

    kim.goto(f"/c/{SLUG}/changes/")
    for words in ("ada", "bob", "olga", "card-fraud", "funnel"):
        expect(kim.locator("main")).to_contain_text(words)
    with kim.expect_download() as download:
        kim.get_by_role("link", name="Export CSV").first.click()
    assert "card-fraud" in download.value.path().read_text()
    assert status(kim, f"/c/{SLUG}/queries/-/new/") == 403
    assert status(ada, "/settings/people/") == 403


def register(page: Page, name: str, load: float) -> None:
    """A query of the reader's only team."""
    page.goto(f"/c/{SLUG}/queries/-/new/")
    field(page, "document").fill(json.dumps(body(load)))
    field(page, "name").fill(name)
    field(page, "statistic").select_option("worst")
    field(page, "bound_s").fill("2")
    page.get_by_role("button", name="Create query").click()
    expect(heading(page)).to_contain_text(name)


def status(page: Page, path: str) -> int:
    answer = page.request.get(path)
    return answer.status
