"""``slack`` of the command line: when a query's next watermarks are expected, and the time left until then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Choice, Field, Listed, Number, Table
from engine.klink.algorithm1 import looped_slack_ms, steps
from engine.klink.distribution import MEAN_VARIANCE, moments, normal_forecast
from engine.klink.slack import stream_slack_ms
from engine.klink.view import SweepForecast
from engine.wording import join

__all__ = ["command"]

_FAR_MS = 1e15  # thirty thousand years: beyond, sums of times and squares are no longer exact
_MOST_STEPS = 1_000_000  # of Algorithm 1's loop
_ROUNDING = 1e-6  # relative: a mean square below the square of its mean by no more than this is rounding

_INSTANT = Number(least=-_FAR_MS, most=_FAR_MS)
_DURATION = Number(least=0, most=_FAR_MS)

_STREAM = Table(
    "a stream",
    Field("mu", Listed(_DURATION, least=1), required=True, help="mean delay of each finished epoch, oldest first"),
    Field("chi", Listed(Number(least=0, most=_FAR_MS**2), least=1), required=True, help="their mean squared delay"),
    Field("period", Number(above=0), required=True, help="from one window's deadline to the next"),
    Field("last_swm_generated", _INSTANT, required=True, help="when the last sweeping watermark was generated"),
    Field("pending_swm_ingested", _INSTANT, nullable=True, help="when one came that is not processed"),
)

_PROBLEM = Table(
    "slack problem",
    Field("t", _INSTANT, required=True, help="now"),
    Field("r", Number(above=0), required=True, help="step of Algorithm 1's loop"),
    Field("f", Number(above=0), required=True, help="confidence of the interval"),
    Field("h", Number(least=1, whole=True), required=True, help="epochs that count"),
    Field("var_mode", Choice(("predictive", MEAN_VARIANCE)), help="of one delay, or as printed (predictive)"),
    Field("z_mode", Choice(("f", "two_sigma")), help="width of the interval: by f, or as printed (f)"),
    Field(
        "query",
        Table(
            "the query",
            Field("cost", _DURATION, required=True, help="CPU time of the work before the watermark"),
            Field("streams", Listed(_STREAM, least=1), required=True),
        ),
        required=True,
    ),
)  # fmt: skip


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Per stream mean, variance, interval and slack (ms); of the query the least, and that of the last stream."""
    faults: list[Fault] = []
    read = _PROBLEM.read(document, "", "", faults)
    if read is not BAD:
        _judge(read, faults)
    if faults:
        raise DocumentError(faults, "slack problem")
    forecasts = [_forecast(stream, read) for stream in read["query"]["streams"]]
    _judge_steps(read, [forecast for _, forecast in forecasts], faults)
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


def _judge(read: Mapping[str, Any], faults: list[Fault]) -> None:
    """Faults that no single field shows: a confidence of 1, series that do not agree."""
    if read["f"] is not BAD and 1 + read["f"] >= 2:  # what rounds to 1 has no quantile either
        faults.append(Fault("f", f"f is {read['f']:g}; allowed: a finite number above 0 and below 1"))
    query = read["query"]
    streams = BAD if query is BAD else query["streams"]
    for index, stream in enumerate([] if streams is BAD else streams):
        if stream is not BAD:
            _judge_history(stream, f"query.streams[{index}]", faults)


def _judge_history(stream: Mapping[str, Any], path: str, faults: list[Fault]) -> None:
    mu, chi = stream["mu"], stream["chi"]
    if mu is BAD or chi is BAD:
        return
    if len(mu) != len(chi):
        message = f"the history has {len(mu)} epochs in mu and {len(chi)} in chi; allowed: as many of both"
        faults.append(Fault(join(path, "chi"), message))
        return
    for epoch, (mean, square) in enumerate(zip(mu, chi, strict=True)):
        if mean is not BAD and square is not BAD and square < mean * mean * (1 - _ROUNDING):
            message = f"chi is {square:g}; allowed: the square of mu ({mean * mean:g}) or more"
            faults.append(Fault(f"{path}.chi[{epoch}]", message))


def _judge_steps(read: Mapping[str, Any], forecasts: list[SweepForecast], faults: list[Fault]) -> None:
    most = max(steps(read["t"], forecast, read["r"]) for forecast in forecasts)
    if most > _MOST_STEPS:
        message = f"r is {read['r']:g}, which makes {most:.0f} steps of an interval; allowed: {_MOST_STEPS:,} or fewer"
        faults.append(Fault("r", message))
