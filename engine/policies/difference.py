"""Differences between two policies, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from engine.policies.policy import ClusterPolicy
from engine.records import Record, Words

__all__ = ["PolicyDifference", "policy_differences"]

_NAMES = ("name", "team", "pool")  # of what lists hold


@dataclass(frozen=True)
class PolicyDifference(Record):
    """A field that two policies differ in; null where one of them has none."""

    TITLE: ClassVar[str] = "a difference"

    path: Annotated[str, Words("Such as teams[payments].quotas.cores.nominal.")]
    before: Annotated[Any, Words("As JSON.")] = None
    after: Annotated[Any, Words("As JSON.")] = None

    @property
    def before_text(self) -> str:
        """The value before, for people; empty where there is none."""
        return _text(self.before)

    @property
    def after_text(self) -> str:
        """The value after, for people; empty where there is none."""
        return _text(self.after)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def policy_differences(before: ClusterPolicy, after: ClusterPolicy) -> tuple[PolicyDifference, ...]:
    """Fields in which two policies differ, in the order of their document; entries of lists go by their names.

    Examples
    --------
    >>> old, new = ClusterPolicy(), ClusterPolicy.parse({"margin": 0.2, "cohorts": [{"name": "shared"}]})
    >>> [(row.path, row.before, row.after) for row in policy_differences(old, new)]
    [('margin', 0.0, 0.2), ('cohorts[shared].name', None, 'shared')]
    """
    was, now = dict(_leaves("", before.to_dict())), dict(_leaves("", after.to_dict()))
    paths = [*now, *(path for path in was if path not in now)]
    return tuple(
        PolicyDifference(path, was.get(path), now.get(path)) for path in paths if was.get(path) != now.get(path)
    )


def _leaves(path: str, value: Any) -> list[tuple[str, Any]]:
    """(path, value) of every value that is no object and no list of objects."""
    if isinstance(value, Mapping):
        return [leaf for key, item in value.items() for leaf in _leaves(f"{path}.{key}".lstrip("."), item)]
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        names = [next((str(item[name]) for name in _NAMES if name in item), str(i)) for i, item in enumerate(value)]
        return [leaf for name, item in zip(names, value, strict=True) for leaf in _leaves(f"{path}[{name}]", item)]
    return [(path, value)] if value not in (None, []) else []
