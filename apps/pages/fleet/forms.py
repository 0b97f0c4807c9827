"""Forms of clusters, pools, nodes, links and imports. Services check the values."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.accounts.models import Team
from apps.core.reach import visible
from apps.fleet.choices import CycleUnit
from apps.fleet.models import KUBERNETES_RULES, Cluster, Link, Node, NodePool
from apps.fleet.services import MAX_PLANNED_NODES
from apps.pages.crud import RowForm
from apps.pages.labels import TypedLabelsField
from apps.ui.forms import MemoryField, row_field
from apps.ui.name_search import name_attributes

__all__ = ["ClusterForm", "ImportForm", "LinkForm", "NodeForm", "PlanForm", "PoolForm"]


class ClusterForm(RowForm):
    """A cluster: name, grid and policy. The address part is fixed once it exists."""

    class Meta:
        model = Cluster
        fields = [
            "name",
            "slug",
            "environment",
            "time_zone",
            "subinterval_s",
            "horizon_s",
            "currency",
            "preview_valid_s",
            "parts_budget_s",
            *KUBERNETES_RULES,
        ]
        labels = {
            "slug": "Address part",
            "time_zone": "Time zone",
            "subinterval_s": "Subinterval",
            "horizon_s": "Horizon",
            "preview_valid_s": "Validity of a preview",
            "parts_budget_s": "Time for each part of a preview",
            "kubernetes_unknown": "Kubernetes: a job that is not known",
            "kubernetes_late": "Kubernetes: no verdict in time",
            "kubernetes_review": "Kubernetes: a person has to decide",
        }
        help_texts = {
            "slug": "Lower-case letters, digits and hyphens; part of every address.",
            "time_zone": "Such as Europe/Berlin.",
            "currency": "For the prices of its pools: EUR, USD, GBP…",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["slug"]


class PoolForm(RowForm):
    labels = TypedLabelsField()
    cycle_unit = forms.ChoiceField(
        label="Unit of cycles",
        required=False,
        choices=CycleUnit.choices,
        help_text="Costs in cycles of a clock and in nanoseconds of CPU are kept apart.",
    )
    memory_bytes = MemoryField(
        label="Memory", required=False, help_text="Of a node, for the state of its operators, such as 32 GiB."
    )

    class Meta:
        model = NodePool
        fields = [
            "name",
            "capacity_cps",
            "cycle_unit",
            "cycles_per_ns",
            "cores",
            "memory_bytes",
            "price_per_hour",
            "labels",
            "team",
        ]
        labels = {
            "capacity_cps": "Capacity of one core",
            "cycles_per_ns": "Cycles per nanosecond",
            "price_per_hour": "Price per hour",
        }
        help_texts = {
            "name": "Lower-case letters, digits and hyphens.",
            "capacity_cps": "Cycles per second, such as 3e9. Existing nodes keep their own.",
            "cycles_per_ns": "Cycles of a clock that a core does in a nanosecond of CPU. Empty: not known.",
            "cores": "Existing nodes keep their own.",
            "team": "Its members see the pool and its nodes.",
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        teams = self.fields["team"]
        teams.queryset = visible(Team.objects.all()) | Team.objects.filter(pk=self.instance.team_id)

    def clean_cycle_unit(self) -> str:
        return str(self.cleaned_data["cycle_unit"] or self.instance.cycle_unit)


class NodeForm(RowForm):
    labels = TypedLabelsField()
    cycle_unit = forms.ChoiceField(
        label="Unit of cycles",
        required=False,
        choices=[("", "As in its pool"), *CycleUnit.choices],
        help_text="What its capacity counts.",
    )
    capacity_cps = forms.FloatField(
        label="Capacity of one core", required=False, help_text="Cycles per second. Empty: as in its pool."
    )
    cores = forms.IntegerField(min_value=1, required=False, help_text="Empty: as in its pool.")
    memory_bytes = MemoryField(
        label="Memory",
        required=False,
        help_text="What the state of its operators may take, such as 32 GiB. Empty: as in its pool.",
    )

    class Meta:
        model = Node
        fields = ["pool", "name", "capacity_cps", "cycle_unit", "cycles_per_ns", "cores", "memory_bytes", "labels"]
        labels = {"cycles_per_ns": "Cycles per nanosecond"}
        help_texts = {
            "name": "Lower-case letters, digits and hyphens.",
            "cycles_per_ns": "Cycles of a clock that a core does in a nanosecond of CPU. Empty: not known.",
        }

    def __init__(self, *args: Any, cluster: Cluster, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row_field(self, "pool").queryset = cluster.pools.all()
        row_field(self, "pool").empty_label = None


class PlanForm(forms.Form):
    """Number of nodes to plan in a pool."""

    count = forms.IntegerField(
        label="Nodes",
        min_value=1,
        max_value=MAX_PLANNED_NODES,
        initial=1,
        help_text="Their names continue those of the pool.",
    )


class LinkForm(RowForm):
    class Meta:
        model = Link
        fields = ["source", "target", "bandwidth_bytes_s", "delay_s"]
        labels = {"source": "From", "target": "To", "bandwidth_bytes_s": "Bandwidth", "delay_s": "Delay"}

    def __init__(self, *args: Any, cluster: Cluster, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["source"], self.fields["target"]
            return
        for name in ("source", "target"):
            label = self.fields[name].label
            self.fields[name] = forms.ModelChoiceField(
                cluster.nodes.all(),
                label=label,
                to_field_name="name",
                widget=forms.TextInput(attrs=name_attributes(cluster.slug, "nodes")),
                error_messages={"invalid_choice": "There is no node of that name."},
            )


class ImportForm(forms.Form):
    """A table of nodes or links, pasted or as a file."""

    kind = forms.ChoiceField(label="Kind of rows", choices=[("nodes", "Nodes"), ("links", "Links")])
    file = forms.FileField(required=False, help_text="CSV with a heading line, or JSON: a list of objects.")
    text = forms.CharField(
        label="Or paste it",
        required=False,
        widget=forms.Textarea(attrs={"rows": 10, "spellcheck": "false"}),
        help_text=(
            "Nodes: `name, pool, capacity_cps, cores, memory_bytes, state, labels`. "
            "Links: `from, to, bandwidth_bytes_s, delay_s`."
        ),
    )

    def clean(self) -> None:
        super().clean()
        data = self.cleaned_data
        if bool(data.get("file")) == bool(data.get("text", "").strip()):
            raise forms.ValidationError("Choose a file or paste a table, one of the two.")

    @property
    def table(self) -> str:
        """The table as text; bytes that are no UTF-8 are replaced."""
        file = self.cleaned_data.get("file")
        if not file:
            return self.cleaned_data["text"]
        return file.read().decode("utf-8-sig", errors="replace")
