"""State variables in memory, with the interface of Spark's, so that a step runs without a query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any


class MemoryHandle:
    """Variables of one key of an operator, as `StatefulProcessorHandle` gives them."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def getValueState(self, name: str, schema: str) -> Any:
        return self._made.setdefault(name, _Value())

    def getListState(self, name: str, schema: str) -> Any:
        return self._made.setdefault(name, _List())

    def getMapState(self, name: str, key: str, value: str) -> Any:
        return self._made.setdefault(name, _Map())


class _Value:
    value: tuple[Any, ...] | None = None

    def exists(self) -> bool:
        return self.value is not None

    def get(self) -> tuple[Any, ...] | None:
        return self.value

    def update(self, value: tuple[Any, ...]) -> None:
        self.value = value

    def clear(self) -> None:
        self.value = None


class _List(list[tuple[Any, ...]]):
    def get(self) -> Iterator[tuple[Any, ...]]:
        return iter(self)

    def appendValue(self, value: tuple[Any, ...]) -> None:
        self.append(value)


class _Map(dict[tuple[Any, ...], tuple[Any, ...]]):
    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return self.get(key)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self[key] = value

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self.pop(key, None)


class MemoryState(defaultdict[str, MemoryHandle]):
    """Handles of an operator by key."""

    def __init__(self) -> None:
        super().__init__(MemoryHandle)
