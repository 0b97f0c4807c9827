"""Forms of placement: a search with its rules, and applying a proposal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.http import QueryDict

from apps.fleet.models import Cluster
from apps.planning.choices import PlacementAlgorithm, PlacementObjective
from apps.planning.placement_moves import BATCH_SIZE, MAX_BATCH_SIZE, MAX_PACE
from apps.planning.placement_parameters import MAX_BUDGET_S
from apps.queries.models import Operator
from apps.queries.snapshots.elements import operator_id

__all__ = ["RULES", "PlacementApplyForm", "PlacementRule", "PlacementSearchForm"]

#: What may be said of an operator and a node, or another operator.
RULES = {"pin": "stays on", "forbid": "must not be on", "apart": "not with"}


class PlacementRule:
    """One line of the advanced section."""

    def __init__(self, operator: str = "", kind: str = "pin", other: str = "") -> None:
        self.operator, self.kind, self.other = operator.strip(), kind if kind in RULES else "pin", other.strip()

    @property
    def is_empty(self) -> bool:
        return not self.operator and not self.other


class PlacementSearchForm(forms.Form):
    """A search. Constraints on single operators are lines of `rule_operator`, `rule_kind`, `rule_other`."""

    objective = forms.ChoiceField(label="Make small", choices=PlacementObjective.choices)
    budget_s = forms.FloatField(
        label="Search for",
        min_value=0.1,
        max_value=MAX_BUDGET_S,
        help_text=f"It ends earlier when nothing better can exist. Up to {MAX_BUDGET_S:g} s.",
    )
    max_moves = forms.IntegerField(
        label="At most",
        required=False,
        min_value=0,
        help_text="Empty: as many as it takes. Moves that gain less than 1% together are left out.",
    )
    may_split = forms.BooleanField(
        label="May split stateless operators",
        required=False,
        help_text="Where one operator alone is the bottleneck, replicas share its events.",
    )
    algorithm = forms.ChoiceField(
        choices=PlacementAlgorithm.choices, required=False, help_text="Greedy ends without a search: to compare with."
    )
    seed = forms.IntegerField(
        required=False, min_value=0, help_text="Of the random numbers: the same one walks the same way."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["initial"] = {"budget_s": 5, "seed": 0, **(kwargs.get("initial") or {})}
        super().__init__(*args, **kwargs)

    @property
    def rules(self) -> list[PlacementRule]:
        """The lines as they were sent, else one empty line."""
        return _rules(self.data) or [PlacementRule()]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        for rule in _rules(self.data):
            if not rule.operator or not rule.other:
                missing = "an operator" if not rule.operator or rule.kind == "apart" else "a node"
                said = f"{rule.operator or '…'} {RULES[rule.kind]} {rule.other or '…'}"
                self.add_error(None, f"Rule “{said}”: enter {missing}, or empty the line.")
        return data

    def asked(self, cluster: Cluster) -> dict[str, Any]:
        """As the service takes it."""
        data = self.cleaned_data
        return {
            "algorithm": data["algorithm"] or PlacementAlgorithm.SEARCH,
            "objective": data["objective"],
            "budget_s": data["budget_s"],
            "seed": data["seed"] or 0,
            "constraints": self._constraints(cluster),
        }

    def _constraints(self, cluster: Cluster) -> dict[str, Any]:
        data = self.cleaned_data
        constraints: dict[str, Any] = {"pin": {}, "forbid": {}, "apart": []}
        for rule in _rules(self.data):
            if rule.kind == "pin":
                constraints["pin"][rule.operator] = rule.other
            elif rule.kind == "forbid":
                constraints["forbid"].setdefault(rule.operator, []).append(rule.other)
            else:
                constraints["apart"].append([rule.operator, rule.other])
        constraints = {name: value for name, value in constraints.items() if value}
        if data["max_moves"] is not None:
            constraints["max_moves"] = data["max_moves"]
        if data["may_split"]:
            constraints["may_split"] = list(_stateless(cluster))
        return constraints


class PlacementApplyForm(forms.Form):
    """Pace and size of the batches of moves."""

    pace = forms.FloatField(
        label="Pace",
        min_value=0,
        max_value=MAX_PACE,
        initial=1,
        help_text="Pause after each batch as a multiple of its estimated duration, at most 30 s. 0: none.",
    )
    batch_size = forms.IntegerField(
        label="Moves at a time",
        min_value=1,
        max_value=MAX_BATCH_SIZE,
        initial=BATCH_SIZE,
        help_text="Moves that touch the same node are never made together.",
    )


def _rules(data: Any) -> list[PlacementRule]:
    if not isinstance(data, QueryDict):
        return []
    lines = zip(data.getlist("rule_operator"), data.getlist("rule_kind"), data.getlist("rule_other"), strict=False)
    return [rule for rule in (PlacementRule(*line) for line in lines) if not rule.is_empty]


def _stateless(cluster: Cluster) -> Iterable[str]:
    rows = Operator.objects.filter(version__running_as__cluster=cluster, stateless=True)
    for query, name in rows.values_list("version__query__name", "name"):
        yield operator_id(query, name)
