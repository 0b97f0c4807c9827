"""People, groups, teams and what they are granted, for those who administer everything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.debug import sensitive_post_parameters

from apps.accounts import grants, services, teams
from apps.accounts.choices import Role
from apps.accounts.forms import new_password_field
from apps.accounts.models import Grant, Group, Team, User
from apps.accounts.permissions import signed_in_user
from apps.accounts.selectors import access_of, grants_listed, groups_listed, people_listed, teams_listed
from apps.core.errors import Malformed
from apps.core.limits import MAX_NAME, MAX_NOTE
from apps.core.reach import row_visible
from apps.fleet.models import Cluster
from apps.pages.base import Page, done, try_service
from apps.pages.labels import SelectorField
from apps.signin.second_factor import has_second_factor, second_factor_remove
from apps.signin.sessions import sessions_end, sessions_of
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag
from engine.words import counted, listed

__all__ = [
    "GrantNew",
    "GrantRemove",
    "GroupDelete",
    "GroupPage",
    "GroupsPage",
    "PeoplePage",
    "PersonPage",
    "PersonPassword",
    "TeamDelete",
    "TeamPage",
    "TeamsPage",
]

_TABS = {"people": "pages:people", "groups": "pages:groups", "teams": "pages:teams"}
EVERYTHING = ""  #: of the field `place`


class PersonForm(forms.Form):
    """A person who can sign in."""

    username = forms.CharField(label="User name", max_length=150)
    password = new_password_field("Initial password")
    role = forms.ChoiceField(
        label="Role on everything", choices=Role.choices, initial=Role.VIEWER, help_text="More is granted on its page."
    )


class PersonPasswordForm(forms.Form):
    """Another password of a person."""

    password = new_password_field(help_text="At least 10 characters. Tell them on a way of their own.")


class GroupForm(forms.Form):
    """A group and who is in it."""

    name = forms.CharField(max_length=MAX_NAME)
    members = forms.CharField(
        required=False, widget=forms.Textarea(attrs={"rows": 6}), help_text="User names, one a line or between commas."
    )

    def clean_members(self) -> list[User]:
        names = [name for line in self.cleaned_data["members"].splitlines() for name in line.replace(",", " ").split()]
        people = {person.username: person for person in User.objects.filter(username__in=names)}
        unknown = [repr(name) for name in dict.fromkeys(names) if name not in people]
        if unknown:
            raise forms.ValidationError(f"There is no person {listed(unknown)}.")
        return list(people.values())


class TeamForm(forms.Form):
    """A team."""

    name = forms.CharField(max_length=MAX_NAME)
    description = forms.CharField(max_length=MAX_NOTE, required=False)
    clusters = forms.ModelMultipleChoiceField(
        Cluster.objects.order_by("slug"),
        to_field_name="slug",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Its authors may register queries of it there; where it owns queries already, they may as well.",
    )


class GrantForm(forms.Form):
    """A role somewhere for a person or a group."""

    role = forms.ChoiceField(choices=Role.choices, initial=Role.VIEWER)
    place = forms.ChoiceField(label="On", required=False)
    selector = SelectorField(
        label="Only what has the labels",
        help_text="In a cluster: the queries that they choose, and to be seen sources, pools and nodes. "
        "Such as domain=payments,tier in (a,b),!canary. Empty: all of it.",
    )

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        clusters = [
            (f"cluster:{key}", slug) for key, slug in Cluster.objects.values_list("pk", "slug").order_by("slug")
        ]
        owners = [(f"team:{key}", name) for key, name in Team.objects.values_list("pk", "name")]
        groups = [(EVERYTHING, "Everything"), ("Clusters", clusters), ("What a team owns", owners)]
        self.fields["place"].choices = [entry for entry in groups if entry[1]]  # type: ignore[attr-defined]

    @property
    def values(self) -> dict[str, Any]:
        """Role and place as the service takes them."""
        kind, _, key = self.cleaned_data["place"].partition(":")
        place = {"cluster": Cluster, "team": Team}.get(kind)
        row = {} if place is None else {kind: place._default_manager.filter(pk=key).first()}
        return {"role": self.cleaned_data["role"], "selector": self.cleaned_data["selector"], **row}


class _AdministrationPage(Page):
    scope = write_scope = "admin"
    tab = ""

    def page(self, context: Any, status: int = 200, template: str = "") -> HttpResponse:
        tabs = [(name.capitalize(), reverse(url), name == self.tab) for name, url in _TABS.items()]
        return super().page({"tabs": tabs, **context}, status, template)


class _ListPage(_AdministrationPage):
    """A list, and a form that makes a row of it."""

    template_name = "pages/people/list.html"
    noun = ""
    note = ""
    form_class: type[forms.Form]

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show(self.form_class())

    def post(self, request: HttpRequest) -> HttpResponse:
        form = self.form_class(request.POST)
        if form.is_valid():
            row, ok = try_service(form, lambda: self.create(form.cleaned_data))
            if ok:
                return done(request, f"{row} is created.", *self.address(row))
        return self.show(form, 422)

    def show(self, form: forms.Form, status: int = 200) -> HttpResponse:
        context = {"table": self.table(), "form": form, "noun": self.noun, "note": self.note, "rest": self.tab}
        return self.page(context, status)

    def table(self) -> Table:
        raise NotImplementedError

    def create(self, values: dict[str, Any]) -> Any:
        raise NotImplementedError

    def address(self, row: Any) -> tuple[Any, ...]:
        return f"pages:{self.noun}", row.pk


class PeoplePage(_ListPage):
    """`/settings/people/`: the list; POST creates a person."""

    tab, noun, form_class = "people", "person", PersonForm
    note = "Roles are given to people and groups: on everything, a cluster, labels in one, or what a team owns."

    def create(self, values: dict[str, Any]) -> User:
        return services.user_create(**values)

    def table(self) -> Table:
        columns = [
            Column("username", "Person", _link("pages:person"), sort="username", csv=str),
            Column("role", "Role", lambda user: user.get_role_display()),
            Column("groups", "Groups", lambda user: _names(user.memberships.all())),
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
        everywhere = Grant.objects.filter(cluster=None, team=None)
        keep = lambda rows, value: rows.filter(grants__in=everywhere.filter(role=value))  # noqa: E731
        return Table(
            self.request,
            columns,
            people_listed().prefetch_related("grants", "memberships__grants"),
            caption="People",
            default_sort="username",
            filters=[Filter("role", roles, keep)],
            search=["username", "email"],
            search_label="Name",
            file_name="people",
        )


class PersonPage(_AdministrationPage):
    """`/settings/people/<pk>/`: what a person may do where, and why; POST changes role, access or sign-in."""

    template_name = "pages/people/person.html"
    tab = "people"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        person = _row(User, "person", pk)
        context = {
            "person": person,
            "access": access_of(person),
            "form": GrantForm(),
            "is_self": person == request.user,
            "sessions": sessions_of(person),
            "has_factor": has_second_factor(person),
        }
        return self.page(context)

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        person = _row(User, "person", pk)
        changes: dict[str, Any] = {name: request.POST[name] for name in ("role", "is_active") if name in request.POST}
        if "is_active" in changes:
            changes["is_active"] = changes["is_active"] == "true"
        by = signed_in_user(request)
        if "second_factor" in request.POST:
            second_factor_remove(user=person, by=by)
            return done(request, f"{person.username} is asked for no code until they set one up.", "pages:person", pk)
        if "sessions" in request.POST:
            ended = sessions_end(user=person)
            text = f"{counted(ended, 'session')} of {person.username} {'has' if ended == 1 else 'have'} ended."
            return done(request, text, "pages:person", pk)
        services.user_update(user=person, by=by, **changes)
        return done(request, f"{person.username} is changed.", "pages:person", pk)


class PersonPassword(_AdministrationPage):
    """`/settings/people/<pk>/password/`: GET the form, POST gives a person another password."""

    template_name = "pages/people/password.html"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        return self.page({"person": _row(User, "person", pk), "form": PersonPasswordForm()})

    @method_decorator(sensitive_post_parameters())
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        person, form = _row(User, "person", pk), PersonPasswordForm(request.POST)
        if form.is_valid():
            password, by = form.cleaned_data["password"], signed_in_user(request)
            _, ok = try_service(form, lambda: services.password_set(user=person, password=password, by=by))
            if ok:
                text = f"{person.username} has another password; every session of theirs has ended."
                return done(request, text, "pages:person", pk)
        return self.page({"person": person, "form": form}, 422)


class GroupsPage(_ListPage):
    """`/settings/groups/`: the list; POST creates a group."""

    tab, noun, form_class = "groups", "group", GroupForm
    note = "What a group is granted, each of its members may do."

    def create(self, values: dict[str, Any]) -> Group:
        return grants.group_create(**values)

    def table(self) -> Table:
        columns = [
            Column("name", "Group", _link("pages:group"), sort="name", csv=str),
            Column("members", "Members", lambda group: group.member_count, sort="member_count", num=True),
            Column("grants", "Roles", lambda group: group.grant_count, sort="grant_count", num=True),
        ]
        empty = {
            "icon": "people",
            "title": "No groups yet",
            "text": "Create one to give roles to several people at once.",
        }
        return Table(
            self.request,
            columns,
            groups_listed(),
            caption="Groups",
            default_sort="name",
            search=["name"],
            search_label="Name",
            file_name="groups",
            empty=empty,
        )


class GroupPage(_AdministrationPage):
    """`/settings/groups/<pk>/`: members and roles of a group; POST changes name and members."""

    template_name = "pages/people/group.html"
    tab = "groups"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        group = _row(Group, "group", pk)
        members = "\n".join(group.members.order_by("username").values_list("username", flat=True))
        return self.show(group, GroupForm(initial={"name": group.name, "members": members}))

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        group, form = _row(Group, "group", pk), GroupForm(request.POST)
        if form.is_valid():
            _, ok = try_service(form, lambda: grants.group_update(group=group, **form.cleaned_data))
            if ok:
                return done(request, f"{group} is changed.", "pages:group", pk)
        return self.show(group, form, 422)

    def show(self, group: Group, form: GroupForm, status: int = 200) -> HttpResponse:
        access = grants_listed().filter(group=group)
        return self.page({"group": group, "access": access, "group_form": form, "form": GrantForm()}, status)


class GroupDelete(_AdministrationPage):
    """POST: delete a group with what it was granted."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        group = _row(Group, "group", pk)
        grants.group_delete(group=group)
        return done(request, f"{group} is deleted.", "pages:groups")


class TeamsPage(_ListPage):
    """`/settings/teams/`: the list; POST creates a team."""

    tab, noun, form_class = "teams", "team", TeamForm
    note = "Teams own queries. A query that names a new team makes it."

    def create(self, values: dict[str, Any]) -> Team:
        return teams.team_create(**values)

    def table(self) -> Table:
        columns = [
            Column("name", "Team", _link("pages:team"), sort="name", csv=str),
            Column("description", "Description", lambda team: team.description or "–"),
            Column("queries", "Queries", lambda team: team.query_count, sort="query_count", num=True),
            Column("grants", "Roles", lambda team: team.grant_count, sort="grant_count", num=True),
        ]
        empty = {"icon": "people", "title": "No teams yet", "text": "Create one here, or name one in a query."}
        return Table(
            self.request,
            columns,
            teams_listed(),
            caption="Teams",
            default_sort="name",
            search=["name", "description"],
            search_label="Name or description",
            file_name="teams",
            empty=empty,
        )


class TeamPage(_AdministrationPage):
    """`/settings/teams/<pk>/`: a team, who has a role on what it owns; POST changes it."""

    template_name = "pages/people/team.html"
    tab = "teams"

    def get(self, request: HttpRequest, pk: int) -> HttpResponse:
        team = _row(Team, "team", pk)
        return self.show(team, TeamForm(initial=_team_values(team)))

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        team, form = _row(Team, "team", pk), TeamForm(request.POST)
        if form.is_valid():
            _, ok = try_service(form, lambda: teams.team_update(team=team, **form.cleaned_data))
            if ok:
                return done(request, f"{team} is changed.", "pages:team", pk)
        return self.show(_row(Team, "team", pk), form, 422)

    def show(self, team: Team, form: TeamForm, status: int = 200) -> HttpResponse:
        owned = team.queries.select_related("cluster").order_by("cluster__slug", "name")[:_SHOWN]
        access = grants_listed().filter(team=team)
        context = {"team": team, "form": form, "access": access, "queries": owned, "query_count": team.queries.count()}
        return self.page(context, status)


def _team_values(team: Team) -> dict[str, Any]:
    slugs = list(team.clusters.values_list("slug", flat=True))
    return {"name": team.name, "description": team.description, "clusters": slugs}


class TeamDelete(_AdministrationPage):
    """POST: delete a team that owns nothing."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        team = _row(Team, "team", pk)
        teams.team_delete(team=team)
        return done(request, f"{team} is deleted.", "pages:teams")


class GrantNew(_AdministrationPage):
    """POST: give a person (`user`) or a group (`group`) a role somewhere."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form, kind = GrantForm(request.POST), "user" if "user" in request.POST else "group"
        key = request.POST.get(kind, "")
        if not key.isdigit() or not form.is_valid():
            faults = [(name, str(message)) for name, messages in form.errors.items() for message in messages]
            raise Malformed("The role cannot be given.", faults or [(kind, f"{key!r} is not the number of a {kind}")])
        model: Any = User if kind == "user" else Group
        holder = _row(model, "person" if kind == "user" else "group", int(key))
        grant = grants.grant_give(**{kind: holder}, **form.values)
        return done(request, f"{holder} is {grant.get_role_display().lower()} on {grant.place}.", *_page_of(grant))


class GrantRemove(_AdministrationPage):
    """POST: take a role away again."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        grant = row_visible(grants_listed(), "grant", pk=pk)
        text, to = f"{grant} is taken away.", _page_of(grant)
        grants.grant_take(grant=grant)
        return done(request, text, *to)


_SHOWN = 50


def _row(model: Any, noun: str, pk: int) -> Any:
    return row_visible(model._default_manager.all(), noun, pk=pk)


def _page_of(grant: Grant) -> tuple[str, int]:
    if grant.user_id is not None:
        return "pages:person", grant.user_id
    assert grant.group_id is not None
    return "pages:group", grant.group_id


def _link(to: str) -> Any:
    def cell(row: Any) -> SafeString:
        return format_html('<a class="name" href="{}">{}</a>', reverse(to, args=[row.pk]), row)

    return cell


def _names(rows: Iterable[Any] | QuerySet[Any]) -> str:
    return ", ".join(str(row) for row in rows) or "–"
