"""Sentences of forecasts, of sizes compared by regret, and of backtests: what they rest on, and what came out."""

from __future__ import annotations

from collections.abc import Sequence

from engine.words import money_words
from engine.words.templates import Template

__all__ = ["BACKTESTS", "SENTENCES"]

_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _admitted_words(admitted: int, asked: int, was: int) -> str:
    """Clause about the admissions and their difference to the recorded ones."""
    if not asked:
        return "Nobody asked to be admitted"
    more = admitted - was
    number = dict(enumerate(_NUMBERS, 1)).get(abs(more), str(abs(more)))
    than = f"{number} {'more' if more > 0 else 'fewer'} than {'was' if abs(more) == 1 else 'were'}"
    return f"It would have admitted {admitted} of {asked}, {than if more else 'as many as were'}"


def _model_words(seasons: Sequence[int], trend: int) -> str:
    words = f"ETS, level {('without trend', 'with trend', 'with damped trend')[trend]}"
    return f"MSTL of {' and '.join(map(str, seasons))} buckets, {words}" if seasons else words


def _safest_words(best: int, safest: int, worst: float, least: float, currency: str) -> str:
    return (
        f"The smallest expected cost is {best}'s, but in its worst future it costs {money_words(worst, currency)} more "
        f"than the best size; {safest} never more than {money_words(least, currency)}."
    )


SENTENCES: dict[str, Template] = {
    "model": _model_words,
    "gaps_filled": "{missing} of {of} buckets were missing ({gaps} gaps, the longest of {longest_h:g} h); they were "
    "filled from the seasonal profile.",
    "no_season_held": "The history of {days:.3g} days holds neither a day nor a week more than twice: the model is "
    "simpler for it.",
    "no_week_held": "The history of {days:.3g} days holds no week more than twice: the model is simpler for it.",
    "no_season": "Neither a day nor a week repeats itself in it: the forecast follows the level alone.",
    "no_backtest": "The history is too short to be forecast from its own past: the error is not known.",
    "source_refused": "Source {source}: {why}",
    "history_old": "its history ends {days:.0f} days before the newest; it keeps its present arrivals",
    "latencies_refused": "Latencies are not forecast: {why}.",
    "futures": "Probabilities from {count} futures.",
    "kept_as_present": "Without a forecast and kept at their present arrivals: {names:comma}.",
    "shape": "Every bucket has the shape of the present arrivals, scaled source by source to the forecast rate; it is "
    "judged by one stretch of {length_s:duration}.",
    "upper_end": "The upper end takes every source at the upper end of its own band at once; probabilities draw them "
    "jointly.",
    "else_as_is": "Placement, plans, statistics and nodes stay as they are.",
    "by_walks": "Latency of every bucket by Mace, read as realised latencies by {walks} walks.",
    "by_mace": "Latency by Mace alone: it tends to be lower than what is realised.",
    # sizes by regret
    "best_by_both": "It has the smallest expected cost and the smallest largest regret.",
    "safest": _safest_words,
    "cheapest": "It has the smallest expected cost; {safest} has the smaller largest regret, but by less than half.",
}
BACKTESTS: dict[str, Template] = {
    "admitted": _admitted_words,
    "held": "every objective held",
    "at_risk": "every objective held in the median, {names:listed} at risk{names:either  for|, up to} "
    "{longest_s:duration}",
    "over": "{names:listed} over {names:either its objective|their objectives, }{first} for {longest_s:duration}",
    "as_recorded": "as recorded {over}",
    "moves": "{count:counted move}",
    "shape": "Every segment has the shape of the present arrivals, scaled source by source to what was recorded; a "
    "segment whose latency is over an objective counts in full.",
    "kept_as_present": "Without a record in this period and kept at their present arrivals: {names:comma}.",
    "gaps_filled": "Gaps were filled with the last known rate: {names:comma}.",
    "searches_left_out": "Only the first {most} times that an objective was threatened a placement was searched.",
    "fits_nowhere": "{query} fits no node: {why}",
    "everything": "Everything is admitted",
    "waited": "It waited, and then: {why}",
    "not_replayed": "It was admitted and cannot be replayed: {why}",
}
