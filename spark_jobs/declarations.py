"""State variables that are declared to Spark when they are first used.

A declaration costs a task milliseconds of the JVM, in every batch, and a task uses few of the variables that its
operator has. The driver declares all of them, before the first batch: it writes their schemas into the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.streaming import StatefulProcessorHandle

__all__ = ["DeclaringHandle"]


class DeclaringHandle:
    """A handle as `StatefulProcessorHandle`, whose variables are declared when they are first used."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._client = handle._statefulProcessorApiClient
        self._at_once = self._client.handle_state == StatefulProcessorHandleState.PRE_INIT

    def getValueState(self, name: str, schema: str) -> Any:  # noqa: N802 - Spark's
        return self._variable(lambda: self._handle.getValueState(name, _struct(schema)))

    def getListState(self, name: str, schema: str) -> Any:  # noqa: N802 - Spark's
        return self._variable(lambda: self._handle.getListState(name, _struct(schema)))

    def getMapState(self, name: str, key: str, value: str) -> Any:  # noqa: N802 - Spark's
        return self._variable(lambda: self._handle.getMapState(name, _struct(key), _struct(value)))

    def _variable(self, declare: Callable[[], Any]) -> Any:
        return declare() if self._at_once else _Variable(lambda: self._declared(declare))

    def _declared(self, declare: Callable[[], Any]) -> Any:
        """Spark takes declarations only before a task's first key; it asks what state the handle says it is in."""
        before = self._client.handle_state
        self._client.set_handle_state(StatefulProcessorHandleState.CREATED)
        try:
            return declare()
        finally:
            self._client.set_handle_state(before)


class _Variable:
    def __init__(self, declare: Callable[[], Any]) -> None:
        self._declare = declare

    @cached_property
    def _declared(self) -> Any:
        return self._declare()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._declared, name)


_TYPES = {"int": "integer", "bigint": "long"}


@cache
def _struct(columns: str) -> StructType:
    """Columns as Spark's type, without asking the JVM to read them.

    Examples
    --------
    >>> _struct("step bigint, rows binary").simpleString()
    'struct<step:bigint,rows:binary>'
    """
    found = StructType()
    for column in columns.split(", "):
        name, kind = column.split()
        found.add(name, _TYPES.get(kind, kind))
    return found
