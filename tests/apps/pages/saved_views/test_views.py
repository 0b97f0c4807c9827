"""Saved views of lists: kept, opened by link and by default, changed by those who may."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.fleet.models import Cluster
from apps.saved_views.models import DefaultView, SavedView
from apps.saved_views.selectors import ViewCaller
from apps.saved_views.services import my_default_set, saved_view_create, team_default_set
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db

QUERIES = "/c/little/queries/"
LATE_ONLY = {"list_name": "queries", "name": "Late", "parameters": "state=breached&sort=query", "next": QUERIES}


def caller(user: User) -> ViewCaller:
    return ViewCaller(user, user.scopes)


def names(html: str) -> list[str]:
    """Queries of the list."""
    return [name for name in ("calm", "late") if f'href="{QUERIES}{name}/"' in html]


def test_filters_and_order_are_saved_and_opened_by_link(browser: Client, cluster: Cluster) -> None:
    saved = browser.post("/views/new/", LATE_ONLY)
    view = SavedView.objects.get()
    assert saved["Location"] == f"{QUERIES}?view={view.pk}"
    html = body(browser.get(saved["Location"]))
    assert names(html) == ["late"]
    assert f'<code class="vh" id="view-link">http://testserver{QUERIES}?view={view.pk}</code>' in html
    assert names(body(browser.get(QUERIES))) == ["calm", "late"]


def test_link_to_somebody_elses_view_opens_it(browser_of: Callable[..., Client], cluster: Cluster) -> None:
    owner, reader = browser_of("operator"), browser_of("viewer")
    link = owner.post("/views/new/", LATE_ONLY)["Location"]
    assert names(body(reader.get(link))) == ["late"]
    assert "Save these filters as" in body(reader.get(link))
    assert link not in body(reader.get(QUERIES))


def test_view_applies_in_every_cluster_and_says_what_a_list_does_not_have(
    browser: Client, user_of: Callable[..., User], cluster: Cluster
) -> None:
    parameters = {"pool": "gone", "state": "active", "colour": "red", "sort": "-height"}
    view = saved_view_create(by=caller(user_of("operator")), list_name="nodes", name="Old", parameters=parameters)
    html = body(browser.get(f"/c/little/fleet/?view={view.pk}"))
    for lost in ("pool = gone", "colour = red", "sort = -height"):
        assert f"<code>{lost}</code>" in html
    assert "<code>state = active</code>" not in html
    assert "which this list does not have now" in html
    assert 'href="/c/little/fleet/nodes/a/"' in html


def test_view_of_no_row_shows_none_rather_than_all(
    browser: Client, user_of: Callable[..., User], cluster: Cluster
) -> None:
    view = saved_view_create(
        by=caller(user_of("operator")), list_name="queries", name="Queued", parameters={"state": "queued"}
    )
    html = body(browser.get(f"{QUERIES}?view={view.pk}"))
    assert names(html) == []
    assert "Nothing matches" in html
    assert "does not have now" not in html


def test_link_to_a_deleted_view_falls_back_to_all_rows(browser: Client, cluster: Cluster) -> None:
    for link in ("b0a2f0f2-3f0c-4c52-9d6c-1a1a86cf9e35", "nonsense"):
        html = body(browser.get(f"{QUERIES}?view={link}"))
        assert "There is no such view of this list" in html
        assert names(html) == ["calm", "late"]


def test_default_opens_the_list_and_all_rows_stay_in_reach(
    browser: Client, user_of: Callable[..., User], cluster: Cluster
) -> None:
    user = user_of("operator")
    view = saved_view_create(by=caller(user), list_name="queries", name="Late", parameters={"state": "breached"})
    my_default_set(by=caller(user), list_name="queries", view=view)
    html = body(browser.get(QUERIES))
    assert names(html) == ["late"]
    assert f'href="{QUERIES}?view=all"' in html
    assert names(body(browser.get(f"{QUERIES}?view=all"))) == ["calm", "late"]
    assert names(body(browser.get(f"{QUERIES}?state=holds"))) == ["calm"]


def test_removing_the_only_filter_of_a_view_shows_all_rows(
    browser: Client, user_of: Callable[..., User], cluster: Cluster
) -> None:
    view = saved_view_create(
        by=caller(user_of("operator")), list_name="queries", name="Late", parameters={"state": "breached"}
    )
    html = body(browser.get(f"{QUERIES}?view={view.pk}"))
    assert f'<a class="chip" href="{QUERIES}?view=all">All' in html


def test_team_default_opens_the_list_for_others_unless_they_choose(
    browser_of: Callable[..., Client], user_of: Callable[..., User], cluster: Cluster
) -> None:
    owner, viewer = user_of("operator"), browser_of("viewer")
    view = saved_view_create(
        by=caller(owner), list_name="queries", name="Late", parameters={"state": "breached"}, is_team=True
    )
    team_default_set(view=view, by=caller(owner), is_default=True)
    assert names(body(viewer.get(QUERIES))) == ["late"]
    chosen = viewer.post("/views/default/", {"list_name": "queries", "view": "all", "next": QUERIES})
    assert chosen["Location"] == f"{QUERIES}?view=all"
    assert names(body(viewer.get(QUERIES))) == ["calm", "late"]
    viewer.post("/views/default/", {"list_name": "queries", "view": "", "next": QUERIES})
    assert names(body(viewer.get(QUERIES))) == ["late"]


def test_changed_filters_are_saved_over_the_view_by_its_owner_alone(
    browser_of: Callable[..., Client], cluster: Cluster
) -> None:
    owner, other = browser_of("operator"), browser_of("admitter")
    owner.post("/views/new/", {**LATE_ONLY, "is_team": "on"})
    view = SavedView.objects.get()
    changed = f"{QUERIES}?view={view.pk}&state=holds"
    assert "Change “Late” to this" in body(owner.get(changed))
    assert "Change “Late” to this" not in body(other.get(changed))
    update = {**LATE_ONLY, "is_team": "on", "parameters": "state=holds"}
    assert other.post(f"/views/{view.pk}/", update).status_code == 403
    assert owner.post(f"/views/{view.pk}/", update).status_code == 302
    view.refresh_from_db()
    assert view.parameters == {"state": "holds"}


def test_viewer_saves_own_views_and_none_for_the_team(browser_of: Callable[..., Client], cluster: Cluster) -> None:
    viewer = browser_of("viewer")
    assert 'name="is_team"' not in body(viewer.get(f"{QUERIES}?state=breached"))
    viewer.post("/views/new/", {**LATE_ONLY, "is_team": "on", "is_my_default": "on"})
    view = SavedView.objects.get()
    assert not view.is_team
    assert DefaultView.objects.get().view == view


def test_administrator_deletes_a_view_of_the_team(browser_of: Callable[..., Client], cluster: Cluster) -> None:
    browser_of("operator").post("/views/new/", {**LATE_ONLY, "is_team": "on"})
    view = SavedView.objects.get()
    assert browser_of("viewer").post(f"/views/{view.pk}/delete/").status_code == 403
    assert "Its owner or an administrator changes it" in body(browser_of("viewer").get(f"/views/{view.pk}/"))
    assert browser_of("admin").post(f"/views/{view.pk}/delete/").status_code == 302
    assert not SavedView.objects.exists()


def test_faults_of_a_view_are_shown_at_its_name(browser: Client, cluster: Cluster) -> None:
    browser.post("/views/new/", LATE_ONLY)
    twice = browser.post("/views/new/", LATE_ONLY)
    assert twice.status_code == 422
    assert 'id="id_name_error"' in body(twice)
    empty = browser.post("/views/new/", {**LATE_ONLY, "name": "All", "parameters": ""})
    assert empty.status_code == 422
    assert SavedView.objects.count() == 1


def test_saving_leads_to_no_other_site(browser: Client, cluster: Cluster) -> None:
    saved = browser.post("/views/new/", {**LATE_ONLY, "next": "//evil.example/"})
    assert saved["Location"] == "/views/"


def test_all_views_are_listed_with_links_into_the_cluster(browser: Client, cluster: Cluster) -> None:
    browser.get(QUERIES)
    browser.post("/views/new/", LATE_ONLY)
    view = SavedView.objects.get()
    assert f'href="{QUERIES}?view={view.pk}"' in body(browser.get("/views/"))
