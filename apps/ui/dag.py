"""The operator picture: a query's DAG from left to right, as SVG text that scrolls inside its figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from grandalf.graphs import Edge, Graph, Vertex
from grandalf.layouts import SugiyamaLayout

from apps.ui.numbers import rate, ratio, seconds

__all__ = ["DagEdge", "DagNode", "dag_picture"]

_WIDTH, _HEIGHT = 154, 66
_GAP_X, _GAP_Y = 56, 36
_MARGIN_X, _MARGIN_Y = 10, 34


@dataclass(frozen=True)
class DagNode:
    """One block.

    `load` is a share of its server's capacity, `wait_s` its part of the worst slice; None: not estimated.
    """

    id: str
    title: str
    place: str = ""
    detail: str = ""
    load: float | None = None
    wait_s: float | None = None
    on_path: bool = False
    bottleneck: bool = False


@dataclass(frozen=True)
class DagEdge:
    """A stream between two blocks."""

    tail: str
    head: str
    rate_eps: float | None = None
    on_path: bool = False


class _Box:
    """What the layout needs of a block. It lays out downwards, so width and height change places."""

    def __init__(self) -> None:
        self.w, self.h = _HEIGHT, _WIDTH
        self.xy = (0.0, 0.0)


class _Route:
    """Collects the points a long stream takes between the layers, so that it runs past blocks, not through them."""

    def __init__(self) -> None:
        self.between: list[tuple[float, float]] = []

    def setpath(self, points: list[tuple[float, float]]) -> None:
        self.between = [(y, x) for x, y in points[1:-1]]


@dataclass
class _Layout:
    """Centres of the blocks, and the points between the ends of each stream."""

    centres: dict[str, tuple[float, float]]
    routes: dict[tuple[str, str], list[tuple[float, float]]]

    def shifted(self, dx: float, dy: float) -> _Layout:
        return _Layout(
            {name: (x + dx, y + dy) for name, (x, y) in self.centres.items()},
            {pair: [(x + dx, y + dy) for x, y in points] for pair, points in self.routes.items()},
        )


def _layout(nodes: Sequence[DagNode], edges: Sequence[DagEdge]) -> _Layout:
    """Where everything stands; the parts of an unconnected graph stand below each other."""
    vertices = {node.id: Vertex(node.id) for node in nodes}
    for vertex in vertices.values():
        vertex.view = _Box()
    pairs = {(edge.tail, edge.head) for edge in edges}
    graph = Graph(list(vertices.values()), [Edge(vertices[tail], vertices[head]) for tail, head in sorted(pairs)])
    whole = _Layout({}, {})
    floor = float(_MARGIN_Y)
    for component in graph.C:
        part = _component_layout(component)
        left = min(x for x, _ in part.centres.values()) - _WIDTH / 2
        top = min(y for _, y in part.centres.values()) - _HEIGHT / 2
        part = part.shifted(_MARGIN_X - left, floor - top)
        whole.centres |= part.centres
        whole.routes |= part.routes
        floor = max(y for _, y in part.centres.values()) + _HEIGHT / 2 + 2 * _GAP_Y
    return whole


def _component_layout(component: Any) -> _Layout:
    for edge in component.sE:
        edge.view = _Route()
    layout = SugiyamaLayout(component)
    layout.xspace, layout.yspace = _GAP_Y, _GAP_X
    layout.init_all()
    layout.draw(6)
    return _Layout(
        {vertex.data: (vertex.view.xy[1], vertex.view.xy[0]) for vertex in component.sV},
        {(edge.v[0].data, edge.v[1].data): edge.view.between for edge in component.sE},
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(x: float, y: float, text: str, css: str = "", end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    cls = f' class="{css}"' if css else ""
    return f'<text x="{x:g}" y="{y:g}"{cls}{anchor}>{escape(text)}</text>'


def _title(node: DagNode) -> str:
    parts = [node.title + (f" on {node.place}" if node.place else "")]
    if node.load is not None:
        parts.append(f"load {ratio(node.load)}")
    if node.wait_s is not None:
        parts.append(f"adds {seconds(node.wait_s)} to the worst path")
    return ", ".join(parts)


def _block(node: DagNode, centre: tuple[float, float]) -> str:
    x, y = centre[0] - _WIDTH / 2, centre[1] - _HEIGHT / 2
    stroke = "watch" if node.bottleneck else "c-estimate" if node.on_path else "line-control"
    parts = [f"<title>{escape(_title(node))}</title>"]
    if node.bottleneck:
        parts.append(
            f'<rect x="{x - 5:g}" y="{y - 5:g}" width="{_WIDTH + 10}" height="{_HEIGHT + 10}" rx="9"'
            ' fill="var(--watch-soft)" stroke="var(--watch)" stroke-width="1.5"/>'
            f'<path d="M{x + 7:g} {y - 25:g}h84a5 5 0 0 1 5 5v15h-94v-15a5 5 0 0 1 5-5z" fill="var(--watch)"/>'
            f'<text class="flag" x="{x + 49:g}" y="{y - 11:g}" text-anchor="middle">▲ Bottleneck</text>'
        )
    parts.append(
        f'<rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="var(--surface)"'
        f' stroke="var(--{stroke})" stroke-width="{1.5 if node.on_path or node.bottleneck else 1}"/>'
    )
    room = 21 - len(node.place) if node.place else 22
    parts.append(_text(x + 10, y + 19, _short(node.title, max(room, 8)), "tb name"))
    parts.append(_text(x + _WIDTH - 10, y + 19, _short(node.place, 12), end=True))
    parts.append(_text(x + 10, y + 35, _short(node.detail, 26)))
    parts.append(_load(node, x, y))
    if node.wait_s is not None:
        parts.append(_text(x + _WIDTH - 10, y + 54, str(seconds(node.wait_s)), "tb", end=True))
    flag = ' data-flagged=""' if node.bottleneck else ""  # ui.js scrolls it into view
    return f"<g{flag}>{''.join(parts)}</g>"


def _load(node: DagNode, x: float, y: float) -> str:
    if node.load is None:
        return ""
    fill = "watch" if node.bottleneck else "c-fill"
    width = 50 * min(max(node.load, 0.0), 1.0)
    return (
        f'<rect x="{x + 10:g}" y="{y + 47:g}" width="50" height="6" rx="1.5" fill="var(--sunken)"/>'
        f'<rect x="{x + 10:g}" y="{y + 47:g}" width="{width:.1f}" height="6" rx="1.5" fill="var(--{fill})"/>'
        + _text(x + 66, y + 54, ratio(node.load), "tb" if node.bottleneck else "t2")
    )


def _path(points: Sequence[tuple[float, float]]) -> str:
    """A curve that leaves and reaches every point horizontally."""
    (x, y), text = points[0], f"M{points[0][0]:g} {points[0][1]:g}"
    for x1, y1 in points[1:]:
        bend = max(x1 - _GAP_X, x)
        middle = (bend + x1) / 2
        text += f"L{bend:g} {y:g}C{middle:g} {y:g} {middle:g} {y1:g} {x1:g} {y1:g}"
        x, y = x1, y1
    return text


def _stream(edge: DagEdge, layout: _Layout, most_eps: float) -> str:
    (x0, y0), (x1, y1) = layout.centres[edge.tail], layout.centres[edge.head]
    between = [(x - _WIDTH / 2, y) for x, y in layout.routes.get((edge.tail, edge.head), ())]
    points = [(x0 + _WIDTH / 2, y0), *between, (x1 - _WIDTH / 2 - 7, y1)]
    colour, marker = ("c-estimate", "ar") if edge.on_path else ("line-control", "ar2")
    share = (edge.rate_eps or 0.0) / most_eps if most_eps else 0.0
    path = (
        f'<path d="{_path(points)}" fill="none" stroke="var(--{colour})" stroke-width="{1.2 + 4.3 * share**0.5:.1f}"'
        f' opacity="{0.75 if edge.on_path else 0.6}" marker-end="url(#{marker})"/>'
    )
    if edge.rate_eps is None:
        return path
    return path + _rate_label(points[0], points[1], str(rate(edge.rate_eps)))


def _rate_label(begin: tuple[float, float], end: tuple[float, float], text: str) -> str:
    """Above a level stream; in the hollow of a curve, in the gap between the block it leaves and the next one."""
    (x0, y0), (x1, y1) = begin, end
    middle, rise = (x0 + min(x1, x0 + _GAP_X - 7)) / 2, y1 - y0
    x, edge = middle - (5 if abs(rise) < _HEIGHT + _GAP_Y + 8 else 9), y0 + _HEIGHT / 2
    if abs(rise) < 8:
        x, y, anchor = middle, y0 - 9, "middle"
    elif rise > 0:
        y, anchor = min(max(y0 + rise / 2 + 10, edge + 16), edge + _GAP_Y - 8), "end"
    else:
        edge -= _HEIGHT
        y, anchor = max(min(y0 + rise / 2 - 3, edge - 8), edge - _GAP_Y + 17), "end"
    return f'<text class="t2 halo" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _marker(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="9" markerHeight="9"'
        f' markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8z" fill="var(--{colour})"/></marker>'
    )


def dag_picture(nodes: Sequence[DagNode], edges: Iterable[DagEdge], label: str) -> SafeString:
    """The picture of a query's plan.

    Parameters
    ----------
    nodes : blocks, sources included.
    edges : streams between them; line width follows the square root of the rate.
    label : what a person who cannot see the picture should be told: the finding, with its numbers.
    """
    streams = list(edges)
    if not nodes:
        return SafeString("")
    layout = _layout(nodes, streams)
    width = max(x for x, _ in layout.centres.values()) + _WIDTH / 2 + _MARGIN_X
    height = max(y for _, y in layout.centres.values()) + _HEIGHT / 2 + 14
    most_eps = max((edge.rate_eps or 0.0 for edge in streams), default=0.0)
    body = "".join(
        [_marker("ar", "c-estimate"), _marker("ar2", "line-control")]
        + [_stream(edge, layout, most_eps) for edge in sorted(streams, key=lambda edge: edge.on_path)]
        + [_block(node, layout.centres[node.id]) for node in nodes]
    )
    # every text in it went through escape()
    return mark_safe(
        f'<svg class="fig dag" viewBox="0 0 {width:g} {height:g}" style="min-width:{width * 0.92:.0f}px;'
        f'max-width:{width * 1.15:.0f}px" role="img" aria-label="{escape(label)}">{body}</svg>'
    )
