"""People who may sign in, for administrators: list, create, change role, switch off."""

from __future__ import annotations

from django import forms
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_post_parameters

from apps.accounts import services
from apps.accounts.choices import Role
from apps.accounts.forms import new_password_field
from apps.accounts.models import Grant, User
from apps.accounts.permissions import signed_in_user
from apps.core.errors import Missing
from apps.pages.base import Page, done, try_service
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag

__all__ = ["PeoplePage", "PersonChange", "PersonForm", "PersonPassword"]


class PersonForm(forms.Form):
    """A person who can sign in."""

    username = forms.CharField(label="User name", max_length=150)
    password = new_password_field("Initial password")
    role = forms.ChoiceField(choices=Role.choices, initial=Role.VIEWER)


class PersonPasswordForm(forms.Form):
    """Another password of a person."""

    password = new_password_field(help_text="At least 10 characters. Tell them on a way of their own.")


class PeoplePage(Page):
    """`/settings/people/`: the list; POST creates a person."""

    template_name = "pages/people/list.html"
    scope = write_scope = "admin"

    def get(self, request: HttpRequest) -> HttpResponse:
        table = people_table(request)
        return self.page({"table": table, "form": PersonForm()})

    def post(self, request: HttpRequest) -> HttpResponse:
        form = PersonForm(request.POST)
        if form.is_valid():
            person, ok = try_service(form, lambda: services.user_create(**form.cleaned_data))
            if ok:
                return done(request, f"{person.username} can sign in.", "pages:people")
        return self.page({"table": people_table(request), "form": form}, 422)


class PersonChange(Page):
    """POST: change a person's role, or allow and forbid to sign in."""

    http_method_names = ["post"]
    scope = write_scope = "admin"

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        person = _person(pk)
        changes = {name: request.POST[name] for name in ("role", "is_active") if name in request.POST}
        if "is_active" in changes:
            changes["is_active"] = changes["is_active"] == "true"
        services.user_update(user=person, by=signed_in_user(request), **changes)
        return done(request, f"{person.username} is changed.", "pages:people")


class PersonPassword(Page):
    """`/settings/people/<pk>/password/`: GET the form, POST gives a person another password."""

    template_name = "pages/people/password.html"
    scope = write_scope = "admin"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return self.page({"person": _person(pk), "form": PersonPasswordForm()})

    @method_decorator(sensitive_post_parameters())
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        person, form = _person(pk), PersonPasswordForm(request.POST)
        if form.is_valid():
            password, by = form.cleaned_data["password"], signed_in_user(request)
            _, ok = try_service(form, lambda: services.password_set(user=person, password=password, by=by))
            if ok:
                text = f"{person.username} has another password; every session of theirs has ended."
                return done(request, text, "pages:people")
        return self.page({"person": person, "form": form}, 422)


def _person(pk: int) -> User:
    person = User.objects.filter(pk=pk).first()
    if person is None:
        raise Missing(f"There is no person {pk}.")
    return person


def _everywhere() -> QuerySet[Grant]:
    return Grant.objects.filter(cluster=None, team=None)


def people_table(request: HttpRequest) -> Table:
    columns = [
        Column("username", "Person", lambda user: user.username, sort="username"),
        Column("role", "Role", lambda user: user.get_role_display(), sort="role_rank"),
        Column("active", "May sign in", lambda user: "yes" if user.is_active else "no", sort="is_active"),
        Column(
            "seen",
            "Last sign-in",
            lambda user: time_tag(user.last_login) if user.last_login else "never",
            sort="last_login",
            csv=lambda user: user.last_login,
            num=True,
        ),
    ]
    roles = [Choice(role, str(Role(role).label)) for role in Role.values]
    return Table(
        request,
        columns,
        User.objects.annotate(role_rank=Subquery(_everywhere().filter(user=OuterRef("pk")).values("role"))),
        caption="People",
        default_sort="username",
        filters=[Filter("role", roles, lambda rows, value: rows.filter(grants__in=_everywhere().filter(role=value)))],
        search=["username", "email"],
        search_label="Name",
        file_name="people",
    )
