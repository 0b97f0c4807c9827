"""The whole question for a cluster: load of every source, dates of violations, probabilities, pool sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any

import numpy as np

from engine.arrays import FloatArray
from engine.capacity.outlook import SaturationForecasts, saturation_forecasts
from engine.document.deployment import Deployment
from engine.errors import EngineError
from engine.estimation.estimate import estimate
from engine.forecasts.answer import ForecastAnswer, ForecastBottleneck, ForecastCurves
from engine.forecasts.forecast import LEVEL, Factors, LoadForecast, SourceHistory, forecast
from engine.forecasts.history import DAY_S, wall_clock
from engine.forecasts.probability import OutlookProbability, PoolOutcome, max_paths, pool_outcomes, probability
from engine.forecasts.violations import Violations, scaled_deployment, violations
from engine.provisioning.answers.objectives import coarse_sentence
from engine.records import Fact
from engine.solvers import solving

__all__ = ["Outlook", "outlook"]

PATHS = 100
_LATE_S = 14 * DAY_S  # a history that ends so much before the newest says nothing of the future
_MOST = 4032  # buckets a model is fitted to: 24 weeks of hours

Progress = Callable[[float, str], None]


@dataclass(frozen=True, eq=False)
class Outlook:
    """Answers of a forecast. Buckets begin at `starts_s` and last `bucket_s`; rates are in events/s."""

    starts_s: float
    bucket_s: float
    horizon: int
    nodes: int
    sources: dict[str, LoadForecast]
    offsets: dict[str, int]
    refused: dict[str, Fact | str]
    violations: Violations | None
    bottlenecks: dict[str, ForecastBottleneck]
    probability: OutlookProbability | None
    pools: tuple[PoolOutcome, ...]
    assumptions: tuple[Fact | str, ...]
    saturation: SaturationForecasts | None = None

    @property
    def answer(self) -> ForecastAnswer:
        """Everything but the curves."""
        seen = self.violations
        return ForecastAnswer(
            self.starts_s,
            self.bucket_s,
            self.horizon,
            self.nodes,
            LEVEL,
            {name: source.facts for name, source in self.sources.items()},
            self.refused,
            tuple(
                replace(entry.facts, bottleneck=self.bottlenecks.get(entry.facts.query))
                for entry in (seen.outlooks if seen else ())
            ),
            seen.walks if seen else 0,
            self.probability.chances if self.probability else None,
            tuple(pool.facts for pool in self.pools),
            self.assumptions,
            seen.assumed if seen else (),
            seen.coarse_sources if seen else (),
            None if self.saturation is None else dict(self.saturation.queries),
            None if self.saturation is None else self.saturation.cluster,
        )

    def series(self) -> ForecastCurves:
        """The curves."""
        sources = {name: self._rates(name) for name in self.sources}
        document: ForecastCurves = {"sources": {n: _to_lists(curves) for n, (curves, _) in sources.items()}}
        if sources:
            total = np.sum([paths for _, paths in sources.values()], axis=0)
            low, high = np.quantile(total, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
            mean = np.sum([curves["mean"] for curves, _ in sources.values()], axis=0)
            document["total"] = _to_lists({"mean": mean, "low": low, "high": high})
        document["queries"] = {}
        for q, query_outlook in enumerate(self.violations.outlooks if self.violations else ()):
            curves = {
                "mean": query_outlook.mean_s,
                "low": query_outlook.low_s,
                "upper": query_outlook.upper_s,
                "high": query_outlook.high_s,
            }
            if self.probability:
                curves["violated"] = self.probability.per_bucket[:, q]
            document["queries"][query_outlook.facts.query] = _to_lists(curves)
        per_day = max(1, round(DAY_S / self.bucket_s))
        hours = self.bucket_s / 3600.0
        document["pools"] = {
            str(pool.size): np.round(pool.violated_buckets(per_day) * hours, 3).tolist()
            for pool in self.pools
            if pool.probability
        }
        return document

    def _rates(self, name: str) -> tuple[dict[str, FloatArray], FloatArray]:
        load_forecast, late = self.sources[name], self.offsets[name]
        curves = {key: getattr(load_forecast, key)[late:] / self.bucket_s for key in ("mean", "low", "high")}
        return curves, load_forecast.paths[:, late:] / self.bucket_s


def outlook(
    deployment: Deployment | None,
    histories: Mapping[str, SourceHistory],
    *,
    bucket_s: float,
    horizon: int,
    mace_every: int = 1,
    extra_nodes: Sequence[int] = (),
    closed: Sequence[str] = (),
    paths: int = PATHS,
    seed: int = 0,
    zone: tzinfo | None = None,
    progress: Progress | None = None,
) -> Outlook:
    """Forecast a cluster.

    Parameters
    ----------
    deployment : Deployment, optional
        What runs, at the width that Flow runs on. Without one only loads are forecast. A source named ``s@q`` is a
        private copy of ``s`` and follows its forecast.
    histories : mapping
        By source. Those that end more than 14 days before the newest are left out.
    bucket_s, horizon : float, int
        Length and number of future buckets; they follow the newest history's end.
    extra_nodes : sequence of int
        Pool sizes to judge, as differences to the present one.
    paths : int
        Futures by which probabilities are judged; fewer where the deployment is large.
    zone : tzinfo, optional
        Days and weeks follow its wall clock, through changes of the clock too.
    """
    solving()
    tell = progress or (lambda share, step: None)
    waits = deployment is not None and bool(deployment.backlogs)
    deployment = deployment.without_backlogs() if deployment else None
    starts_s = max((h.starts_s + len(h.counts) * bucket_s for h in histories.values()), default=0.0)
    forecasts, offsets, refused = _forecasts(histories, starts_s, bucket_s, horizon, paths, seed, tell, zone)
    empty: tuple[Any, ...] = (None, {}, None, (), ())
    answers = empty
    if deployment is not None and forecasts and deployment.objectives:
        try:
            answers = _judge_deployment(
                deployment, histories, forecasts, offsets, horizon, mace_every, extra_nodes, closed, seed, tell
            )
        except EngineError as error:
            answers = (*empty[:-1], (Fact("forecasts.latencies_refused", why=error.message),))
    saturation = None
    if deployment is not None and forecasts:
        tell(0.98, "Time to saturation")
        factors = Factors(deployment, histories, forecasts, offsets, horizon)
        saturation = saturation_forecasts(
            deployment,
            factors.of("mean"),
            factors.of("high"),
            factors.of("low"),
            starts_s=starts_s,
            bucket_s=bucket_s,
            unforecast=tuple(factors.fixed),
        )
    late = tuple(Fact("forecasts.source_refused", source=name, why=why) for name, why in refused.items())
    tell(1.0, "Done")
    seen, bottlenecks, chance, pools, notes = answers
    whole = (*notes, *([Fact("document.backlogs_left_out")] if waits and seen else []), *late)
    nodes = len(deployment.nodes) if deployment else 0
    return Outlook(
        starts_s,
        bucket_s,
        horizon,
        nodes,
        forecasts,
        offsets,
        refused,
        seen,
        bottlenecks,
        chance,
        pools,
        whole,
        saturation,
    )


def _forecasts(
    histories: Mapping[str, SourceHistory],
    starts_s: float,
    bucket_s: float,
    horizon: int,
    paths: int,
    seed: int,
    tell: Progress,
    zone: tzinfo | None,
) -> tuple[dict[str, LoadForecast], dict[str, int], dict[str, Fact | str]]:
    forecasts: dict[str, LoadForecast] = {}
    offsets: dict[str, int] = {}
    refused: dict[str, Fact | str] = {}
    for i, (name, history) in enumerate(histories.items()):
        tell(0.5 * i / len(histories), f"Forecasting {name}")
        behind_s = starts_s - (history.starts_s + len(history.counts) * bucket_s)
        late = round(behind_s / bucket_s)
        if behind_s > _LATE_S:
            refused[name] = Fact("forecasts.history_old", days=behind_s / DAY_S)
            continue
        try:
            forecasts[name] = _forecast_by_wall_clock(history, bucket_s, horizon + late, zone, paths, seed)
            offsets[name] = late
        except EngineError as error:
            refused[name] = error.message
    return forecasts, offsets, refused


def _forecast_by_wall_clock(
    history: SourceHistory, bucket_s: float, ahead: int, zone: tzinfo | None, paths: int, seed: int
) -> LoadForecast:
    """Forecast by the wall clock of `zone`, returned for the buckets in real time."""
    counts = history.counts[-_MOST:]
    start_s = history.starts_s + (len(history.counts) - len(counts)) * bucket_s
    local, places = wall_clock(counts, start_s, bucket_s, ahead, zone)
    local_forecast = forecast(local, bucket_s=bucket_s, horizon=int(places.max()) + 1, paths=paths, seed=seed)
    curves = {name: getattr(local_forecast, name)[places] for name in ("mean", "low", "high")}
    return replace(local_forecast, **curves, paths=local_forecast.paths[:, places])


def _judge_deployment(
    deployment: Deployment,
    histories: Mapping[str, SourceHistory],
    forecasts: Mapping[str, LoadForecast],
    offsets: Mapping[str, int],
    horizon: int,
    mace_every: int,
    extra_nodes: Sequence[int],
    closed: Sequence[str],
    seed: int,
    tell: Progress,
) -> tuple[Any, ...]:
    factors = Factors(deployment, histories, forecasts, offsets, horizon)
    mean, high = factors.of("mean"), factors.of("high")
    seen = violations(
        deployment,
        mean,
        high,
        mace_every=mace_every,
        progress=lambda share, step: tell(0.5 + 0.2 * share, step),
    )
    tell(0.7, "Bottlenecks")
    bottlenecks = _bottlenecks(deployment, seen, mean, high, mace_every)
    count = max_paths(deployment, horizon, mace_every=mace_every, wanted=len(next(iter(forecasts.values())).paths))
    futures = factors.futures(count)
    tell(0.75, "Probabilities")
    chance = probability(deployment, futures, table=seen.table, mace_every=mace_every, seed=seed)
    size = len(deployment.nodes)
    pools = pool_outcomes(
        deployment,
        [size + extra for extra in extra_nodes if size + extra > 0],
        busiest=high[int(high.sum(axis=1).argmax())],
        factors=futures,
        table=seen.table,
        mace_every=mace_every,
        closed=closed,
        seed=seed,
        step=lambda share, step: tell(0.8 + 0.2 * share, step),
    )
    coarse = [coarse_sentence(deployment, seen.coarse_sources)] if seen.coarse_sources else []
    gaps = [(entry.facts.query, entry.facts.lacking) for entry in seen.outlooks if entry.facts.lacking]
    lacking = [Fact("document.policy_gap_of", query=query, gap=gap) for query, gap in gaps]
    notes = [*coarse, *seen.assumptions, *lacking, Fact("forecasts.futures", count=count)]
    if factors.fixed:
        notes.append(Fact("forecasts.kept_as_present", names=factors.fixed))
    return seen, bottlenecks, chance, tuple(pools), tuple(notes)


def _bottlenecks(
    deployment: Deployment, seen: Violations, mean: FloatArray, high: FloatArray, mace_every: int
) -> dict[str, ForecastBottleneck]:
    """Bottleneck at each query's first violation (at the upper end, else at the expected load, else at risk)."""
    bottlenecks: dict[str, ForecastBottleneck] = {}
    answers: dict[tuple[str, int], Any] = {}
    for query_forecast in (entry.facts for entry in seen.outlooks):
        first, rows, band = (
            (query_forecast.first_high, high, "high")
            if query_forecast.first_high
            else (query_forecast.first_mean or query_forecast.first_risk, mean, "mean")
        )
        if first is None:
            continue
        key = (band, first.index)
        if key not in answers:
            scaled = scaled_deployment(deployment, rows[first.index])
            answers[key] = estimate(scaled, mace_every=mace_every, intervals=False).queries
        bottleneck = answers[key][query_forecast.query].bottleneck
        if bottleneck is not None:
            top = bottleneck.operators[0] if bottleneck.operators else None
            bottlenecks[query_forecast.query] = ForecastBottleneck(
                bottleneck.server,
                bottleneck.node,
                bottleneck.load_peak,
                bottleneck.load_mean,
                top.operator if top else None,
                top.share if top else None,
            )
    return bottlenecks


def _to_lists(curves: Mapping[str, FloatArray]) -> dict[str, list[float]]:
    """Six digits are more than a forecast knows and half the bytes."""
    return {name: [float(f"{value:.6g}") for value in values.tolist()] for name, values in curves.items()}
