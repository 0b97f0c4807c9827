"""Template tags, form rendering, feedback, the security policy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django import forms
from django.http import HttpResponse
from django.template import Context, Template
from django.test import Client, RequestFactory

from apps.core.errors import Malformed
from apps.ui.feedback import refresh, toast
from apps.ui.forms import show_faults
from apps.ui.parts import POLICY
from tests.apps.pages.html import body, one_line


def render(source: str, **context: Any) -> str:
    return one_line(Template("{% load ui %}" + source).render(Context(context)))


def test_number_filters_format_values_and_missing_ones() -> None:
    assert render("{{ x|seconds }}", x=8.2) == '8.2<span class="u">s</span>'
    assert render("{{ x|seconds_text }} {{ x|percent_text }}", x=None) == "– –"
    assert render("{% seconds_against 3.04 3 %}") == '3.04<span class="u">s</span>'


def test_live_parts_listen_to_their_topics() -> None:
    html = render('{% live "jobs" topic %}', topic="cluster:eu-1")
    assert "changed:jobs from:body, " in html
    assert "changed:cluster:eu-1 from:body" in html
    assert "changed:* from:body" in html


def test_page_url_of_an_unknown_page_is_empty() -> None:
    assert render("{% page_url 'pages:nothing-of-the-kind' %}") == ""
    assert render("{% page_url 'pages:overview' 'eu-1' %}") == "/c/eu-1/"


def test_the_rest_block_can_be_pasted_into_a_shell() -> None:
    request = RequestFactory().get("/")
    html = render('{% rest "POST" "/api/v1/clusters" body=body %}', request=request, body={"name": "Bob's <x>"})
    assert "curl -s -X POST" in html
    assert "&quot;http://testserver/api/v1/clusters&quot;" in html
    assert "Bob&#x27;\\&#x27;&#x27;s &lt;x&gt;" in html


class Form(forms.Form):
    name = forms.CharField(help_text="Lower-case letters.")
    size = forms.IntegerField(min_value=1)
    note = forms.CharField(required=False)


def test_a_field_is_labelled_hinted_and_says_what_is_wrong() -> None:
    form = Form({"name": "", "size": "0"})
    html = render(
        "{% form_faults form %}{% field form.name %}{% field form.size unit='s' %}{% field form.note %}", form=form
    )
    assert '<label for="id_name">' in html
    assert 'id="id_name_helptext"' in html
    assert 'id="id_name_error"' in html
    assert 'aria-invalid="true"' in html
    assert "id_name_helptext" in html.split('name="name"')[1].split(">")[0]
    assert "2 faults to correct" in html
    assert 'href="#id_size"' in html
    assert "optional" in html


def test_faults_of_a_service_are_shown_at_their_fields() -> None:
    form = Form({"name": "a", "size": "1"})
    assert form.is_valid()
    faults = [("name", "is taken"), ("size[0].x", "too small"), ("elsewhere", "is odd"), ("doc.note", "is long")]
    show_faults(form, Malformed("4 faults", faults), {"doc": "note"})
    assert form.errors["name"] == ["is taken"]
    assert form.errors["size"] == ["size[0].x: too small"]
    assert form.errors["note"] == ["doc.note: is long"]
    assert form.non_field_errors() == ["elsewhere: is odd"]


def test_toasts_and_refreshes_share_a_header() -> None:
    request = RequestFactory().get("/")
    response = refresh(HttpResponse(), "jobs")
    toast(request, "Done.", response)
    toasted = {"text": "Done.", "kind": "ok", "undo": ""}
    assert json.loads(response["HX-Trigger"]) == {"changed:jobs": {}, "toast": toasted}


@pytest.mark.django_db
def test_every_response_has_the_content_security_policy(client: Client) -> None:
    for path in ("/login/", "/nothing/", "/static/css/ui.css"):
        response = client.get(path)
        assert response["Content-Security-Policy"] == POLICY
        response.close()
    assert "unsafe-eval" not in POLICY
    assert "script-src 'self';" in POLICY


@pytest.mark.django_db
def test_no_page_has_inline_scripts(client: Client) -> None:
    html = client.get("/login/").content.decode()
    for part in html.split("<script")[1:]:
        assert "src=" in part.split(">")[0] or "application/json" in part.split(">")[0]
    assert "onclick" not in html


class _Asked(forms.Form):
    bound_s = forms.FloatField(initial=1.0)


def test_fault_at_a_field_does_not_repeat_the_name_of_the_field() -> None:
    form = _Asked({"bound_s": "-3"})
    fault = ("objective.bound_s", "bound_s is -3.0; allowed: a finite number above 0")
    show_faults(form, Malformed("No.", [fault]), {"objective.bound_s": "bound_s"})
    assert form.errors["bound_s"] == ["It is -3.0; allowed: a finite number above 0"]


def test_whole_numbers_of_a_form_have_no_fraction() -> None:
    for initial, shown in ((60.0, "60"), (0.5, "0.5")):
        html = render("{% field form.bound_s %}", form=_Asked(initial={"bound_s": initial}))
        assert f'value="{shown}"' in html


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("came_from", "leads_back"), [("http://testserver/login/", True), ("http://evil.test/", False)]
)
def test_error_page_links_back_to_this_site_only(client: Client, came_from: str, leads_back: bool) -> None:
    response = client.post("/nothing/", headers={"referer": came_from, "host": "testserver"})
    assert (f'href="{came_from}">Go back' in body(response)) is leads_back
