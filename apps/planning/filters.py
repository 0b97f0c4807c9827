"""Filters of lists of scenarios and what-ifs, shared by pages and API."""

from __future__ import annotations

import django_filters

from apps.planning.choices import Find, WhatIfState
from apps.planning.models import Scenario, WhatIf

__all__ = ["ScenarioFilter", "WhatIfFilter"]


class ScenarioFilter(django_filters.FilterSet):
    """`?cluster=eu-1&name=Friday`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    name = django_filters.CharFilter(field_name="name", lookup_expr="icontains", label="Part of its name")

    class Meta:
        model = Scenario
        fields = ["cluster", "name"]


class WhatIfFilter(django_filters.FilterSet):
    """`?cluster=eu-1&find=survival&state=answered&bench=false`."""

    cluster = django_filters.CharFilter(field_name="cluster__slug", label="Slug of the cluster")
    find = django_filters.MultipleChoiceFilter(choices=Find.choices)
    state = django_filters.MultipleChoiceFilter(choices=WhatIfState.choices)
    bench = django_filters.BooleanFilter(field_name="from_bench", label="Asked by moving the bench")

    class Meta:
        model = WhatIf
        fields = ["cluster", "find", "state", "bench"]
