"""``slack``, ``memory``, ``pick`` and ``forwarding`` of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import DocumentError, Fault, join_path
from engine.fields import BAD, Enumeration, Field, FieldTable, ListOf, MapOf, Number, String
from engine.klink.forwarding import SOURCE, forwarding_messages
from engine.klink.memory import best_gain, gain_as_printed, pick_by_gain
from engine.klink.slack import loop_steps, looped_slack_ms, stream_slack_ms
from engine.klink.watermarks import MEAN_VARIANCE, SweepForecast, moments, normal_forecast

__all__ = ["forwarding_command", "memory_command", "pick_command", "slack_command"]

_FAR_MS = 1e15  # thirty thousand years: beyond, sums of times and squares are no longer exact
_MAX_STEPS = 1_000_000  # of Algorithm 1's loop
_ROUNDING = 1e-6  # relative: a mean square below the square of its mean by no more than this is rounding

_INSTANT = Number(least=-_FAR_MS, most=_FAR_MS)
_DURATION = Number(least=0, most=_FAR_MS)

_STREAM = FieldTable(
    "a stream",
    Field("mu", ListOf(_DURATION, least=1), required=True, help="mean delay of each finished epoch, oldest first"),
    Field("chi", ListOf(Number(least=0, most=_FAR_MS**2), least=1), required=True, help="their mean squared delay"),
    Field("period", Number(above=0), required=True, help="from one window's deadline to the next"),
    Field("last_swm_generated", _INSTANT, required=True, help="when the last sweeping watermark was generated"),
    Field("pending_swm_ingested", _INSTANT, nullable=True, help="when one came that is not processed"),
)

_SLACK_PROBLEM = FieldTable(
    "slack problem",
    Field("t", _INSTANT, required=True, help="now"),
    Field("r", Number(above=0), required=True, help="step of Algorithm 1's loop"),
    Field("f", Number(above=0), required=True, help="confidence of the interval"),
    Field("h", Number(least=1, whole=True), required=True, help="epochs that count"),
    Field("var_mode", Enumeration(("predictive", MEAN_VARIANCE)), help="of one delay, or as printed (predictive)"),
    Field("z_mode", Enumeration(("f", "two_sigma")), help="width of the interval: by f, or as printed (f)"),
    Field(
        "query",
        FieldTable(
            "the query",
            Field("cost", _DURATION, required=True, help="CPU time of the work before the watermark"),
            Field("streams", ListOf(_STREAM, least=1), required=True),
        ),
        required=True,
    ),
)  # fmt: skip

_MAX_VALUE = 1e15  # events, times and ratios beyond it are a mistake


def slack_command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Per stream mean, variance, interval and slack (ms); of the query the least, and that of the last stream."""
    faults: list[Fault] = []
    read = _SLACK_PROBLEM.read(document, "", "", faults)
    if read is not BAD:
        _check_slack(read, faults)
    if faults:
        raise DocumentError(faults, "slack problem")
    forecasts = [_forecast(stream, read) for stream in read["query"]["streams"]]
    _check_steps(read, [forecast for _, forecast in forecasts], faults)
    if faults:
        raise DocumentError(faults, "slack problem")
    streams = [
        _stream(stream, variance, forecast, read)
        for stream, (variance, forecast) in zip(read["query"]["streams"], forecasts, strict=True)
    ]
    slacks = [stream["slack"] for stream in streams]
    return {"streams": streams, "slack": min(slacks), "slack_last": max(slacks)}


def _stream(
    stream: Mapping[str, Any], variance: float, forecast: SweepForecast, read: Mapping[str, Any]
) -> dict[str, Any]:
    now_ms, cost_ms, pending_ms = read["t"], read["query"]["cost"], stream.get("pending_swm_ingested")
    looped = None if pending_ms is not None else looped_slack_ms(now_ms, cost_ms, forecast, read["r"])
    return {
        "mean": forecast.mean_ms,
        "var": variance,
        "tmin": forecast.least_ms,
        "tmax": forecast.most_ms,
        "epochs": forecast.epochs,
        "slack": stream_slack_ms(now_ms, cost_ms, forecast, pending_ms),
        "slack_alg1": looped,
    }


def _forecast(stream: Mapping[str, Any], read: Mapping[str, Any]) -> tuple[float, SweepForecast]:
    """Variance (ms2) and forecast of the next watermark; one that is here is certain."""
    pending_ms = stream.get("pending_swm_ingested")
    mu, chi = stream["mu"][-read["h"] :], stream["chi"][-read["h"] :]
    if pending_ms is not None:
        return 0.0, SweepForecast(pending_ms, 0.0, pending_ms, pending_ms, len(mu))
    mean, variance = moments(mu, chi, read.get("var_mode", "predictive"))
    deadline_ms = stream["last_swm_generated"] + stream["period"]
    forecast = normal_forecast(deadline_ms, mean, variance, len(mu), read["f"])
    if read.get("z_mode") == "two_sigma":
        half_ms = 2 * forecast.deviation_ms
        least_ms, most_ms = forecast.mean_ms - half_ms, forecast.mean_ms + half_ms
        forecast = SweepForecast(forecast.mean_ms, forecast.deviation_ms, least_ms, most_ms, len(mu))
    return variance, forecast


def _check_slack(read: Mapping[str, Any], faults: list[Fault]) -> None:
    """Faults that no single field shows: a confidence of 1, series that do not agree."""
    if read["f"] is not BAD and 1 + read["f"] >= 2:  # what rounds to 1 has no quantile either
        faults.append(Fault("f", f"f is {read['f']:g}; allowed: a finite number above 0 and below 1"))
    query = read["query"]
    streams = BAD if query is BAD else query["streams"]
    for index, stream in enumerate([] if streams is BAD else streams):
        if stream is not BAD:
            _check_history(stream, f"query.streams[{index}]", faults)
            _check_pending(stream, read["t"], f"query.streams[{index}]", faults)


def _check_pending(stream: Mapping[str, Any], now_ms: Any, path: str, faults: list[Fault]) -> None:
    """Fault of a watermark that came, but only later."""
    pending_ms = stream.get("pending_swm_ingested")
    if BAD not in (pending_ms, now_ms) and pending_ms is not None and pending_ms > now_ms:
        message = f"pending_swm_ingested is {pending_ms:g}; allowed: up to now (t), {now_ms:g}"
        faults.append(Fault(join_path(path, "pending_swm_ingested"), message))


def _check_history(stream: Mapping[str, Any], path: str, faults: list[Fault]) -> None:
    mu, chi = stream["mu"], stream["chi"]
    if mu is BAD or chi is BAD:
        return
    if len(mu) != len(chi):
        message = f"the history has {len(mu)} epochs in mu and {len(chi)} in chi; allowed: as many of both"
        faults.append(Fault(join_path(path, "chi"), message))
        return
    for epoch, (mean, square) in enumerate(zip(mu, chi, strict=True)):
        if mean is not BAD and square is not BAD and square < mean * mean * (1 - _ROUNDING):
            message = f"chi is {square:g}; allowed: the square of mu ({mean * mean:g}) or more"
            faults.append(Fault(f"{path}.chi[{epoch}]", message))


def _check_steps(read: Mapping[str, Any], forecasts: list[SweepForecast], faults: list[Fault]) -> None:
    most = max(loop_steps(read["t"], forecast, read["r"]) for forecast in forecasts)
    if most > _MAX_STEPS:
        message = f"r is {read['r']:g}, which makes {most:.0f} steps of an interval; allowed: {_MAX_STEPS:,} or fewer"
        faults.append(Fault("r", message))


_SERIES = ListOf(Number(least=0, most=_MAX_VALUE), least=1)

_MEMORY_PROBLEM = FieldTable(
    "memory problem",
    Field(
        "queries",
        MapOf(
            FieldTable(
                "a query",
                Field("queued", _SERIES, required=True, help="events before each operator"),
                Field("selectivity", _SERIES, required=True, help="events out per event in"),
                Field("cost_ms", _SERIES, required=True, help="CPU time of an event"),
            )
        ),
        required=True,
    ),
    Field("slacks", MapOf(Number(least=-_MAX_VALUE, most=_MAX_VALUE)), required=True, help="of each query, ms"),
    Field("r", Number(above=0), required=True, help="length of a cycle, ms"),
)


def memory_command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Events each query can remove in a cycle, to which operator; the query that runs; the paper's formula beside."""
    faults: list[Fault] = []
    read = _MEMORY_PROBLEM.read(document, "", "", faults)
    if read is not BAD:
        _check_memory(read, faults)
    if faults:
        raise DocumentError(faults, "memory problem")
    gains, printed = {}, {}
    for name, query in read["queries"].items():
        gains[name] = best_gain(query["queued"], query["selectivity"], query["cost_ms"], read["r"])
        printed[name] = gain_as_printed(query["queued"], query["selectivity"])
    return {
        "gain": {name: list(gain) for name, gain in gains.items()},
        "picked": pick_by_gain({name: gain for name, (gain, _) in gains.items()}, read["slacks"]),
        "gain_as_printed": {name: list(gain) for name, gain in printed.items()},
    }


def _check_memory(read: Mapping[str, Any], faults: list[Fault]) -> None:
    queries, slacks = read["queries"], read["slacks"]
    if queries is BAD or slacks is BAD:
        return
    if not queries:
        faults.append(Fault("queries", "queries is empty; allowed: at least one query"))
    for name, query in queries.items():
        if name not in slacks:
            faults.append(Fault(join_path("slacks", name), f"{name} has no slack; every query needs one"))
        if query is not BAD:
            _check_lengths(query, join_path("queries", name), faults)
    unknown = [name for name in slacks if name not in queries]
    faults.extend(Fault(join_path("slacks", name), f"{name} is not among the queries") for name in unknown)


def _check_lengths(query: Mapping[str, Any], path: str, faults: list[Fault]) -> None:
    queued = query["queued"]
    for key in ("selectivity", "cost_ms"):
        series = query[key]
        if queued is not BAD and series is not BAD and len(series) != len(queued):
            message = f"{key} has {len(series)} operators; allowed: {len(queued)}, as many as queued"
            faults.append(Fault(join_path(path, key), message))


_PICK_PROBLEM = FieldTable("pick problem", Field("slacks", MapOf(Number()), required=True, help="of each query, ms"))


def pick_command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The query that runs next: least slack, above 0 too; ties by id."""
    faults: list[Fault] = []
    read = _PICK_PROBLEM.read(document, "", "", faults)
    if read is not BAD and read["slacks"] is not BAD and not read["slacks"]:
        faults.append(Fault("slacks", "slacks is empty; allowed: at least one query"))
    if faults:
        raise DocumentError(faults, "pick problem")
    slacks: dict[str, float] = read["slacks"]
    return {"picked": min(slacks, key=lambda name: (slacks[name], name))}


_FORWARDING_PROBLEM = FieldTable(
    "forwarding problem",
    Field(
        "ops", ListOf(ListOf(String(), least=2, most=2), least=1), required=True, help="[name, node] in pipeline order"
    ),
    Field("watermark_at", String(), required=True, help="source, or the operator that makes watermarks"),
)


def forwarding_command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Messages [from, to, [what]], sorted: `delay` of watermarks, `cost:NAME` of operators."""
    faults: list[Fault] = []
    read = _FORWARDING_PROBLEM.read(document, "", "", faults)
    if read is not BAD and read["ops"] is not BAD:
        _check_forwarding(read, faults)
    if faults:
        raise DocumentError(faults, "forwarding problem")
    return {"messages": [list(message) for message in forwarding_messages(read["ops"], read["watermark_at"])]}


def _check_forwarding(read: Mapping[str, Any], faults: list[Fault]) -> None:
    names: list[str] = []
    for index, op in enumerate(read["ops"]):
        name = BAD if op is BAD else op[0]
        if name is BAD:
            continue
        if name in names or name == SOURCE:
            other = "the name of what comes in" if name == SOURCE else "already an operator"
            faults.append(Fault(f"ops[{index}][0]", f"{name} is {other}; allowed: names that differ"))
        names.append(name)
    at = read["watermark_at"]
    if at is not BAD and at not in (SOURCE, *names):
        allowed = ", ".join((SOURCE, *names))
        faults.append(Fault("watermark_at", f"watermark_at is {at!r}; allowed: {allowed}"))
