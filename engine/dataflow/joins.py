"""Joins of a document: pairs of columns, and what a join with another stream needs."""

from __future__ import annotations

from typing import Any, Final

from engine.dataflow.operators import OperationScope, StreamJoinSpec, WindowSpec, check_free, type_of
from engine.dataflow.types import WINDOW_START, Columns, Type
from engine.errors import Fault, join_path
from engine.fields import BAD

__all__ = ["OF_STREAMS", "Pairs", "bind_stream_join", "join_pairs"]

#: Of the records and of the other side, by the former's names.
Pairs = tuple[tuple[str, str], ...]

OF_STREAMS: Final = ("columns", "most", "time", "within")  # fields of a join with a stream alone
DEFAULT_MATCHES: Final = 100


def join_pairs(
    kept: dict[str, Any], columns: Columns, scope: OperationScope, path: str, faults: list[Fault]
) -> tuple[Pairs, Pairs, dict[str, Type]]:
    """Pairs of `on` and of `take`, and the columns that the latter makes."""
    on = tuple(sorted(kept["on"].items()))
    take = tuple(sorted(kept["take"].items()))
    for mine, theirs in on:
        pair = (type_of(mine, scope.columns, path, "on", faults), type_of(theirs, columns, path, "on", faults))
        if None not in pair and (pair[0] != pair[1] or pair[0] == Type.FLOAT64):
            text = f"on pairs {mine!r} ({pair[0]}) with {theirs!r} ({pair[1]}); allowed: one type, and not float64"
            faults.append(Fault(join_path(path, "on"), text))
    taken: dict[str, Type] = {}
    for name, theirs in take:
        check_free(name, scope, join_path(path, "take"), faults)
        taken[name] = type_of(theirs, columns, path, "take", faults) or Type.STRING
    return on, take, taken


def bind_stream_join(
    kept: dict[str, Any], scope: OperationScope, path: str, faults: list[Fault]
) -> tuple[StreamJoinSpec, dict[str, Type]] | None:
    """The spec of a join with another stream, and the columns after it."""
    _check_place(scope, path, faults)
    columns = _columns(kept, path, faults)
    if columns is None or scope.window is None:
        return None
    on, take, taken = join_pairs(kept, columns, scope, path, faults)
    needed = sorted({kept["time"], *(theirs for _, theirs in (*on, *take))} & columns.keys())
    spec = StreamJoinSpec(
        table=None,
        stream=kept["stream"],
        on=on,
        take=take,
        inner=kept.get("how", "inner") == "inner",
        columns=tuple((name, columns[name]) for name in needed),
        window=WindowSpec(kept["time"], scope.window.size_us, scope.window.slide_us),
        most=int(kept.get("most", DEFAULT_MATCHES)),
        within_agent=kept.get("within", "query") == "agent",
    )
    return spec, {**scope.columns, **taken}


def _check_place(scope: OperationScope, path: str, faults: list[Fault]) -> None:
    """Streams have no end: what matches is sought in one window, and once."""
    what = "op is 'join' with a stream"
    if scope.aggregate is not None:
        text = f"{what}, after the aggregate {scope.aggregate!r}; allowed: behind the window, before the aggregate"
        faults.append(Fault(path, text))
    elif scope.window is None:
        faults.append(Fault(path, f"{what}, but there is no window before it; allowed: a window, then the join"))
    if scope.stream_join is not None:
        text = f"{what}, as is {scope.stream_join!r} before it; allowed: one stream besides the source"
        faults.append(Fault(path, text))


def _columns(kept: dict[str, Any], path: str, faults: list[Fault]) -> Columns | None:
    """Columns of the other stream, with its time among them."""
    missing = [name for name in ("time", "columns") if name not in kept]
    faults.extend(Fault(join_path(path, name), f"{name} is missing; a join with a stream needs it") for name in missing)
    if missing or BAD in kept["columns"].values():
        return None
    columns = {name: Type(kind) for name, kind in kept["columns"].items()}
    if WINDOW_START in columns:
        faults.append(
            Fault(join_path(join_path(path, "columns"), WINDOW_START), "window_start is a window's; allowed: another")
        )
    kind = columns.get(kept["time"])
    if kind != Type.TIMESTAMP:
        listed = ", ".join(name for name, type_ in columns.items() if type_ == Type.TIMESTAMP)
        is_what = "no column" if kind is None else f"a {kind}"
        text = f"time is {kept['time']!r}, {is_what}; allowed: {listed or 'a column of type timestamp'}"
        faults.append(Fault(join_path(path, "time"), text))
    return columns
