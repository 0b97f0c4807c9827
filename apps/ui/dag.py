"""The operator picture: a query's DAG from left to right, as SVG text that scrolls inside its figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from django.utils.safestring import SafeString
from grandalf.graphs import Edge, Graph, Vertex
from grandalf.layouts import SugiyamaLayout

from apps.ui.numbers import rate, ratio, seconds
from apps.ui.svg.shapes import Shape, group, path, path_data, picture, rect, shape, text, title

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
    """A block as the layout takes it. It lays out downwards, so width and height change places."""

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
    """Positions of blocks and streams; unconnected parts stand below each other."""
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


def _cut(words: str, letters: int) -> str:
    return words if len(words) <= letters else words[: letters - 1] + "…"


def _cut_front(words: str, letters: int) -> str:
    """The end of a name: of nodes that is what tells them apart."""
    return words if len(words) <= letters else "…" + words[1 - letters :]


def _title(node: DagNode) -> str:
    parts = [node.title + (f" on {node.place}" if node.place else "")]
    if node.load is not None:
        parts.append(f"load {ratio(node.load)}")
    if node.wait_s is not None:
        parts.append(f"adds {seconds(node.wait_s)} to the worst path")
    return ", ".join(parts)


def _block(node: DagNode, centre: tuple[float, float]) -> Shape:
    x, y = centre[0] - _WIDTH / 2, centre[1] - _HEIGHT / 2
    stroke = "watch" if node.bottleneck else "c-estimate" if node.on_path else "line-control"
    place = _cut_front(node.place, 9)
    room = 21 - len(place) - 2 * (len(place) > 6) if place else 22
    border = 1.5 if node.on_path or node.bottleneck else 1
    return group(
        title(_title(node)),
        _bottleneck_flag(x, y) if node.bottleneck else None,
        rect(x, y, _WIDTH, _HEIGHT, rx=6, fill="surface", stroke=stroke, stroke_width=border),
        text(x + 10, y + 19, _cut(node.title, room), "tb name"),
        text(x + _WIDTH - 10, y + 19, place, anchor="end"),
        text(x + 10, y + 35, _cut(node.detail, 26)),
        _load(node, x, y),
        None if node.wait_s is None else text(x + _WIDTH - 10, y + 54, seconds(node.wait_s), "tb", "end"),
        data_flagged="1" if node.bottleneck else None,  # ui.js scrolls it into view
    )


def _bottleneck_flag(x: float, y: float) -> list[Shape]:
    flag = path_data("M", x + 7, y - 25, "h84a5 5 0 0 1 5 5v15h-94v-15a5 5 0 0 1 5-5z")
    frame: dict[str, Any] = {"fill": "watch-soft", "stroke": "watch", "stroke_width": 1.5}
    return [
        rect(x - 5, y - 5, _WIDTH + 10, _HEIGHT + 10, rx=9, **frame),
        path(flag, fill="watch"),
        text(x + 49, y - 11, "▲ Bottleneck", "flag", "middle"),
    ]


def _load(node: DagNode, x: float, y: float) -> list[Shape]:
    if node.load is None:
        return []
    width = 50 * min(max(node.load, 0.0), 1.0)
    return [
        rect(x + 10, y + 47, 50, 6, rx=1.5, fill="sunken"),
        rect(x + 10, y + 47, width, 6, rx=1.5, fill="watch" if node.bottleneck else "c-fill"),
        text(x + 66, y + 54, ratio(node.load), "tb" if node.bottleneck else "t2"),
    ]


def _curve_data(points: Sequence[tuple[float, float]]) -> str:
    """A curve that leaves and reaches every point horizontally."""
    (x, y), data = points[0], path_data("M", *points[0])
    for x1, y1 in points[1:]:
        bend = max(x1 - _GAP_X, x)
        middle = (bend + x1) / 2
        data += path_data("L", bend, y, "C", middle, y, middle, y1, x1, y1)
        x, y = x1, y1
    return data


def _stream(edge: DagEdge, layout: _Layout, max_eps: float, key: str) -> list[Shape]:
    (x0, y0), (x1, y1) = layout.centres[edge.tail], layout.centres[edge.head]
    between = [(x - _WIDTH / 2, y) for x, y in layout.routes.get((edge.tail, edge.head), ())]
    points = [(x0 + _WIDTH / 2, y0), *between, (x1 - _WIDTH / 2 - 7, y1)]
    share = (edge.rate_eps or 0.0) / max_eps if max_eps else 0.0
    stream = path(
        _curve_data(points),
        fill="none",
        stroke="c-estimate" if edge.on_path else "line-control",
        stroke_width=1.2 + 4.3 * share**0.5,
        opacity=0.75 if edge.on_path else 0.6,
        marker_end=f"url(#on-{key})" if edge.on_path else f"url(#off-{key})",
    )
    if edge.rate_eps is None:
        return [stream]
    return [stream, _rate_label(points[0], points[1], str(rate(edge.rate_eps)))]


def _rate_label(begin: tuple[float, float], end: tuple[float, float], words: str) -> Shape:
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
    return text(x, y, words, "t2 halo", anchor)


def _marker(name: str, colour: str) -> Shape:
    return shape(
        "marker",
        path("M0 0 8 4 0 8z", fill=colour),
        id=name,
        viewBox="0 0 8 8",
        refX=4,
        refY=4,
        markerWidth=9,
        markerHeight=9,
        markerUnits="userSpaceOnUse",
        orient="auto",
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
    max_eps = max((edge.rate_eps or 0.0 for edge in streams), default=0.0)
    key = f"{crc32(repr((label, nodes)).encode()):08x}"  # a page may have several pictures
    return picture(
        width,
        height,
        label,
        _marker(f"on-{key}", "c-estimate"),
        _marker(f"off-{key}", "line-control"),
        [_stream(edge, layout, max_eps, key) for edge in sorted(streams, key=lambda edge: edge.on_path)],
        [_block(node, layout.centres[node.id]) for node in nodes],
        css="fig dag",
        style=f"min-width:{width * 0.92:.0f}px;max-width:{width * 1.15:.0f}px",
    )
