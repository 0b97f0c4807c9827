"""Picture of candidate placements by their predicted costs, coloured by the votes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.utils.safestring import SafeString

from apps.predictions.choices import TargetMetric
from apps.ui.numbers import Quantity, rate, seconds, seconds_range
from apps.ui.svg.axes import grid_line
from apps.ui.svg.scales import LogScale, Scale, log_ticks, nice_ticks
from apps.ui.svg.shapes import Shape, circle, group, path, picture, rect, text, title
from engine.costream.answer import PlacementPoint
from engine.words import counted, listed

__all__ = ["NARROW", "WIDE", "CandidateChart", "CandidatePoint", "PredictionFrame", "cost_range", "cost_text"]


@dataclass(frozen=True)
class PredictionFrame:
    """Places in a picture, in its own units."""

    css: str
    width: int
    left: int
    right: int
    top: int = 26
    base: int = 262

    @property
    def height(self) -> int:
        return self.base + 38


WIDE, NARROW = PredictionFrame("fig wide", 760, 56, 742), PredictionFrame("fig narrow", 366, 46, 354, base=232)
_Scaled: TypeAlias = Callable[[float], float]  # from a value to a place
_LOG_FROM = 20.0  # greatest over least: from here on an axis counts in decades


def cost_text(metric: str, value: Any) -> Quantity:
    """A predicted cost with its unit."""
    return rate(value) if metric == TargetMetric.THROUGHPUT else seconds(value)


def cost_range(metric: str, low: Any, high: Any) -> str:
    """3.1 to 5.6 s, or 940 /s to 1.2 k/s."""
    if metric != TargetMetric.THROUGHPUT:
        return str(seconds_range(low, high))
    first, last = rate(low), rate(high)
    return f"{first.text} to {last}" if first.unit == last.unit else f"{first} to {last}"


@dataclass(frozen=True)
class _Axis:
    """Values of a metric: their range, and whether they count in decades."""

    metric: str
    low: float
    high: float
    in_decades: bool

    @classmethod
    def of(cls, metric: str, values: Sequence[float]) -> _Axis:
        least, greatest = min(values), max(values)
        if least > 0 and greatest / least > _LOG_FROM:
            return cls(metric, least / 1.25, greatest * 1.25, True)
        return cls(metric, 0.0, (greatest or 1.0) * 1.1, False)

    def scale(self, begin: float, end: float) -> _Scaled:
        kind = LogScale if self.in_decades else Scale
        return kind(self.low, self.high, begin=begin, end=end)

    def ticks(self, count: int) -> list[float]:
        return log_ticks(self.low, self.high, count) if self.in_decades else nice_ticks(self.high, count)

    @property
    def name(self) -> str:
        label = TargetMetric(self.metric).label
        return f"{label}, in decades" if self.in_decades else label

    def tick_text(self, value: float) -> str:
        return str(cost_text(self.metric, value)) if value else "0"


@dataclass(frozen=True)
class CandidatePoint:
    """A candidate placement as the picture and its table show it.

    `facts` is a point of the engine's answer, `heuristics` are names and words of the trivial placements that it is.
    """

    facts: PlacementPoint
    nodes: tuple[str, ...]
    is_chosen: bool = False
    heuristics: tuple[tuple[str, str], ...] = ()

    @property
    def is_marked(self) -> bool:
        return self.is_chosen or bool(self.heuristics)

    @property
    def passes(self) -> bool:
        return self.facts.passes

    @property
    def kind(self) -> str:
        """Entry of the key that it belongs to."""
        if not self.passes:
            return "fails"
        return "outside" if self.facts.outside else "passes"

    @property
    def votes(self) -> str:
        """Outcome of the votes, in a word or two."""
        failures = ["failure"] * (not self.facts.success) + ["back-pressure"] * self.facts.backpressure
        if failures:
            return listed(failures)
        return "passes, outside the domain" if self.facts.outside else "passes"

    @property
    def where(self) -> str:
        return listed(self.nodes, 4)

    @property
    def label(self) -> str:
        """Its names as one: Chosen and everything on n09."""
        said = listed([*(["chosen"] * self.is_chosen), *(words for _, words in self.heuristics)], 3)
        return said[:1].upper() + said[1:]


class CandidateChart:
    """Candidates by the metric they are chosen by and by another one, coloured by the votes.

    Parameters
    ----------
    candidates : sequence of CandidatePoint
    target : str
        Metric to the right; the throughput goes up, or the end-to-end latency where the target is the throughput.
    total : int
        Candidates that were predicted; those drawn are spread over them.
    """

    def __init__(self, candidates: Sequence[CandidatePoint], target: str, total: int) -> None:
        self.candidates, self.target, self.total = list(candidates), target, total
        upright = TargetMetric.END_TO_END_LATENCY if target == TargetMetric.THROUGHPUT else TargetMetric.THROUGHPUT
        own = [end for candidate in self.marked for end in (candidate.facts.low, candidate.facts.high)]
        self.x = _Axis.of(target, [*(candidate.facts.mean(target) for candidate in self.candidates), *own])
        self.y = _Axis.of(str(upright), [candidate.facts.mean(str(upright)) for candidate in self.candidates])

    @property
    def marked(self) -> list[CandidatePoint]:
        """Those with a name of their own."""
        return [candidate for candidate in self.candidates if candidate.is_marked]

    @property
    def finding(self) -> str:
        """The picture in words."""
        passing = sum(candidate.passes for candidate in self.candidates)
        drawn = counted(len(self.candidates), "candidate")
        named = [f"{candidate.label}: {self.target_text(candidate)}, {candidate.votes}" for candidate in self.marked]
        return f"{drawn} by predicted {self.target_name.lower()}, {passing} pass the votes. {'; '.join(named)}."

    @property
    def target_name(self) -> str:
        return TargetMetric(self.target).label

    @property
    def other_name(self) -> str:
        return TargetMetric(self.y.metric).label

    def target_text(self, candidate: CandidatePoint) -> str:
        """4.2 s (3.1 to 5.6 s)."""
        facts = candidate.facts
        return f"{cost_text(self.target, facts.mean(self.target))} ({self.target_range(candidate)})"

    def target_range(self, candidate: CandidatePoint) -> str:
        return cost_range(self.target, candidate.facts.low, candidate.facts.high)

    @property
    def key(self) -> list[tuple[str, str]]:
        """Entries of the legend: what occurs."""
        words = {"passes": "Passes the votes", "outside": "Passes, outside the domain", "fails": "Fails"}
        kinds = {candidate.kind for candidate in self.candidates}
        entries = [(kind, label) for kind, label in words.items() if kind in kinds]
        if any(candidate.is_chosen for candidate in self.candidates):
            entries.append(("chosen", "Chosen, with its interval"))
        return entries + [
            (name, words[:1].upper() + words[1:]) for candidate in self.marked for name, words in candidate.heuristics
        ]

    @property
    def lines(self) -> list[tuple[CandidatePoint, str, str, str]]:
        """Rows of the table: candidate, its target, the interval, and the other metric; named ones first."""
        best = sorted(
            (candidate for candidate in self.candidates if not candidate.is_marked),
            key=lambda candidate: (not candidate.passes, self._cost(candidate)),
        )
        return [
            (
                candidate,
                str(cost_text(self.target, candidate.facts.mean(self.target))),
                self.target_range(candidate),
                str(cost_text(self.y.metric, candidate.facts.mean(self.y.metric))),
            )
            for candidate in [*sorted(self.marked, key=lambda c: not c.is_chosen), *best[:_TABLE_ROWS]]
        ]

    @property
    def left_out(self) -> int:
        """Candidates that the table leaves out."""
        return self.total - len(self.lines)

    def _cost(self, candidate: CandidatePoint) -> float:
        value = candidate.facts.mean(self.target)
        return -value if self.target == TargetMetric.THROUGHPUT else value

    @property
    def svg(self) -> SafeString:
        return self._drawn(WIDE) + self._drawn(NARROW)

    def _drawn(self, frame: PredictionFrame) -> SafeString:
        x = self.x.scale(frame.left + 8, frame.right - 8)
        y = self.y.scale(frame.base, frame.top + 6)
        order = ("fails", "outside", "passes")
        others = sorted((c for c in self.candidates if not c.is_marked), key=lambda c: order.index(c.kind))
        shapes = [*self._grid(frame, x, y)]
        shapes += [self._point(candidate, frame, x, y) for candidate in others]
        shapes += [self._mark(candidate, x, y) for candidate in self.marked]
        shapes += self._labels(frame, x, y)
        return picture(frame.width, frame.height, self.finding, shapes, css=frame.css)

    def _grid(self, frame: PredictionFrame, x: _Scaled, y: _Scaled) -> list[Shape]:
        shapes = [text(frame.left, 12, self.y.name, "t2")]
        shapes.append(grid_line(frame.left, frame.base, frame.right, css="axis"))
        for tick in self.y.ticks(4):
            shapes.append(grid_line(frame.left, y(tick), frame.right, css="grid" if tick else "axis"))
            shapes.append(text(frame.left - 8, y(tick) + 4, self.y.tick_text(tick), anchor="end"))
        for tick in self.x.ticks(6 if frame is WIDE else 3):
            shapes.append(path("M", x(tick), frame.base, "v", 4, css="axis"))
            shapes.append(text(x(tick), frame.base + 17, self.x.tick_text(tick), anchor="middle"))
        shapes.append(text(frame.right, frame.base + 33, self.x.name, "t2", "end"))
        return shapes

    def _point(
        self,
        candidate: CandidatePoint,
        frame: PredictionFrame,
        x: _Scaled,
        y: _Scaled,
    ) -> Shape:
        """A candidate; where there is a pointer, with its interval and its numbers."""
        at = x(candidate.facts.mean(self.target)), y(candidate.facts.mean(self.y.metric))
        drawn = _DRAWINGS[candidate.kind](*at)
        if frame is NARROW:
            return drawn
        interval = path("M", x(candidate.facts.low), at[1], "H", x(candidate.facts.high), css="iv", stroke="c-estimate")
        return group(title(self._words(candidate)), circle(*at, 7, css="hit"), interval, drawn, css="cand")

    def _words(self, candidate: CandidatePoint) -> str:
        other = cost_text(self.y.metric, candidate.facts.mean(self.y.metric))
        label = f"{candidate.label}: " if candidate.is_marked else ""
        return (
            f"{label}{self.target_name} {self.target_text(candidate)}, {self.other_name.lower()} {other}; "
            f"{candidate.votes}; on {candidate.where}"
        )

    def _mark(self, candidate: CandidatePoint, x: _Scaled, y: _Scaled) -> Shape:
        """The chosen candidate with its interval, a heuristic by its shape."""
        at = x(candidate.facts.mean(self.target)), y(candidate.facts.mean(self.y.metric))
        shapes: list[Shape] = [title(self._words(candidate))]
        if candidate.is_chosen:
            low, high = x(candidate.facts.low), x(candidate.facts.high)
            shapes.append(rect(low, at[1] - 5, high - low, 10, rx=2, fill="c-band", css="chosen-iv"))
        shapes.append(_DRAWINGS[candidate.kind](*at))
        shapes += [_DRAWINGS[name](*at) for name, _ in candidate.heuristics]
        if candidate.is_chosen:
            shapes.append(_DRAWINGS["chosen"](*at))
        return group(*shapes, css="cand")

    def _labels(self, frame: PredictionFrame, x: _Scaled, y: _Scaled) -> list[Shape]:
        """Names above the marked candidates, the chosen one first, where there is room; the key has them all."""
        if frame is NARROW:
            return []
        shapes: list[Shape] = []
        taken: list[tuple[float, float, float]] = []  # left, right and base of a label
        for candidate in sorted(self.marked, key=lambda candidate: not candidate.is_chosen):
            half = 3.3 * len(candidate.label) + 4
            at = x(candidate.facts.mean(self.target))
            across = min(max(at, frame.left + half), frame.right - half)
            up = y(candidate.facts.mean(self.y.metric)) - 14
            if all(across + half < left or across - half > right or abs(up - base) > 26 for left, right, base in taken):
                shapes.append(text(across, up, candidate.label, "tb halo", "middle"))
            taken.append((across - half, across + half, up))
        return shapes


_TABLE_ROWS = 12


def _cross(x: float, y: float) -> Shape:
    return path("M", x - 3, y - 3, "l", 6, 6, "M", x + 3, y - 3, "l", -6, 6, stroke="ink-3", stroke_width=1.25)


def _square(x: float, y: float) -> Shape:
    return rect(x - 7, y - 7, 14, 14, rx=1, fill="none", stroke="c-alt", stroke_width=2)


def _triangle(x: float, y: float) -> Shape:
    return path("M", x, y - 10, "l", 9, 16, "h", -18, "z", fill="none", stroke="c-third", stroke_width=2)


_DRAWINGS: dict[str, Callable[[float, float], Shape]] = {
    "passes": lambda x, y: circle(x, y, 3.5, fill="c-estimate", opacity=0.6),
    "outside": lambda x, y: circle(x, y, 3.25, fill="surface", stroke="c-estimate", stroke_width=1.25),
    "fails": _cross,
    "chosen": lambda x, y: circle(x, y, 7, fill="none", stroke="ink", stroke_width=2),
    "strongest": _square,
    "spread": _triangle,
}
