"""Tags that pages are laid out of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.template import Context, Template
from django.test import RequestFactory

from tests.apps.pages.html import one_line

CLUSTER = SimpleNamespace(slug="eu-1")


def render(source: str, **context: Any) -> str:
    return one_line(Template(source).render(Context(context)))


def test_trail_leads_to_pages_of_the_cluster_and_ends_with_a_bare_label() -> None:
    html = render('{% page_head "Import" "" "Fleet" "pages:fleet" "Import" %}{% endpage_head %}', cluster=CLUSTER)
    assert '<a href="/c/eu-1/fleet/">Fleet</a>' in html
    assert "<li>Import</li>" in html
    assert "<p>" not in html


def test_trail_leads_to_a_page_of_no_cluster() -> None:
    html = render('{% page_head "API" "" "Help" "pages:help" %}{% endpage_head %}', cluster=CLUSTER)
    assert '<a href="/help/">Help</a>' in html


def test_text_before_actions_stands_below_the_title() -> None:
    html = render('{% page_head "Jobs" %}<p>two</p>{% actions %}<b>act</b>{% endpage_head %}')
    assert html.index("<h1>Jobs</h1>") < html.index("<p>two</p>") < html.index("</div>") < html.index("<b>act</b>")


@pytest.mark.parametrize(("content", "header"), [("rows", ""), ("<i>end</i>{% body %}rows", "<i>end</i>")])
def test_panel_puts_what_stands_before_the_body_into_its_header(content: str, header: str) -> None:
    html = render('{% panel "t-x" "Load" css="tight" anchor="x" %}' + content + "{% endpanel %}")
    assert '<section class="panel tight" aria-labelledby="t-x" id="x">' in html
    assert f'<h2 id="t-x">Load</h2>{header}</header>' in html.replace("> <", "><")
    assert html.endswith("rows</section>")


def test_title_from_data_is_escaped() -> None:
    assert "&lt;b&gt;" in render('{% panel "t-x" name %}{% endpanel %}', name="<b>")
    assert "&lt;b&gt;" in render('{% table "x" name %}{% endtable %}', name="<b>")
    assert "&lt;b&gt;" in render('{% fact "Name" name %}', name="<b>")
    assert "&lt;b&gt;" in render("{% options names '' %}", names=["<b>"])


def test_table_in_a_panel_keeps_its_own_headings() -> None:
    html = render(
        '{% panel "t-x" "X" %}<p>note</p>{% body %}'
        '{% table "nodes" "Node" "num:Load" "vh:Actions" %}<th>More</th>{% body %}<tr></tr>{% endtable %}{% endpanel %}'
    )
    assert html.index("<p>note</p>") < html.index("</header>") < html.index("<th>More</th>") < html.index("</thead>")
    assert '<th scope="col" class="num">Load</th>' in html
    assert '<span class="vh">Actions</span>' in html
    assert "<tbody><tr></tr></tbody>" in html


def test_form_carries_the_token_and_its_attributes() -> None:
    html = render(
        '{% post "pages:node-state" "n1" css="row" data_confirm="Sure?" novalidate=True %}x{% endpost %}',
        cluster=CLUSTER,
        csrf_token="secret",
    )
    assert '<form method="post" class="row" action="/c/eu-1/fleet/nodes/n1/state/"' in html
    assert ' data-confirm="Sure?" novalidate>' in html
    assert 'name="csrfmiddlewaretoken" value="secret"' in html


def test_button_of_an_action_is_a_form_of_its_own() -> None:
    html = render('{% action "Delete" "/gone/" css="btn danger" %}', csrf_token="secret")
    assert html.startswith('<form method="post" action="/gone/">')
    assert html.endswith('<button class="btn danger">Delete</button></form>')


def test_chosen_option_is_selected() -> None:
    assert render("{% options pairs 2 %}", pairs=[(1, "one"), (2, "two")]) == (
        '<option value="1">one</option><option value="2" selected>two</option>'
    )


def test_entry_names_its_hint_and_its_errors() -> None:
    html = render(
        '{% entry "rate" "rate" "Rate" kind="number" unit="s" hint="Per core" errors=errors %}', errors=["low"]
    )
    assert 'aria-describedby="rate-hint" aria-invalid="true"' in html
    assert '<span class="muted">s</span>' in html
    assert "low" in html


def test_live_part_fetches_the_present_address_again() -> None:
    html = render('<div {% live_part "jobs" "jobs" %}>', request=RequestFactory().get("/jobs/?state=failed"))
    assert 'hx-get="/jobs/?state=failed"' in html
    assert 'hx-select="#jobs" hx-swap="outerHTML"' in html
    assert "changed:jobs from:body" in html


def test_name_is_a_link_where_it_leads_somewhere() -> None:
    assert render("{% named name url %}", name="<n1>", url="/n1/") == '<a class="name" href="/n1/">&lt;n1&gt;</a>'
    assert render("{% named name url %}", name="n1", url="") == "n1"


def test_link_leads_to_a_page_of_the_cluster() -> None:
    html = render('{% link "Change" "pages:node-edit" "n1" css="btn quiet" %}', cluster=CLUSTER)
    assert html == '<a class="btn quiet" href="/c/eu-1/fleet/nodes/n1/edit/">Change</a>'


def test_key_of_a_picture_draws_its_stroke() -> None:
    html = render('{% key_stroke "M1 5h20" "c-alt" "Bytes" stroke_width="2" %}')
    assert '<path d="M1 5h20" stroke="var(--c-alt)" stroke-width="2" />' in html
    assert html.endswith("</svg> Bytes</span>")
