"""Ink of the drawings: colours, type, shapes of states, and keys. Told apart without colour: a report may be grey."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import font_source_sans_pro as source_sans
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

from apps.ui.svg.axes import line_data
from apps.ui.svg.shapes import Shape, circle, path, place, rect, text

__all__ = [
    "BOLD",
    "DASHES",
    "PALETTE",
    "REGULAR",
    "Drawing",
    "key_drawing",
    "label",
    "load_fonts",
    "marker",
    "state_drawing",
    "state_shape",
    "text_width",
]

REGULAR, BOLD, ITALIC = "SourceSans", "SourceSans-Semibold", "SourceSans-It"
_SHAPE_SIZE = 9.0
_KEY_TEXT_SIZE = 8.0

#: The light values of static/css/tokens.css, by their names there.
PALETTE: dict[str, str] = {
    "ink": "#14201e",
    "ink-2": "#43504d",
    "ink-3": "#5a6764",
    "surface": "#ffffff",
    "sunken": "#eaedec",
    "line": "#dfe3e2",
    "line-strong": "#bcc4c2",
    "ok": "#1c6b3c",
    "watch": "#855000",
    "bad": "#ae241c",
    "c-estimate": "#0a6274",
    "c-band": "#b9dde3",
    "c-objective": "#9c1420",
    "c-alt": "#aa5f00",
    "c-third": "#683c9c",
    "c-grid": "#e6eae9",
    "c-fill": "#7fb3bd",
    "h0": "#e8eceb",
    "h1": "#f3e0bd",
    "h2": "#e9b973",
    "h3": "#d08433",
    "h4": "#a14c13",
    "h5": "#66230b",
}


@dataclass(frozen=True)
class Drawing:
    """Shapes on a sheet, in points; the PDF and the page draw the same ones."""

    width: float
    height: float
    shapes: Sequence[Shape]


@cache
def load_fonts() -> None:
    """Register the fonts with reportlab, once per process."""
    for name, file in ((REGULAR, source_sans.SourceSansPro), (BOLD, source_sans.SourceSansProSemibold)):
        pdfmetrics.registerFont(TTFont(name, file.replace(".otf", ".ttf")))
    pdfmetrics.registerFont(TTFont(ITALIC, source_sans.SourceSansProIt.replace(".otf", ".ttf")))
    pdfmetrics.registerFontFamily(REGULAR, normal=REGULAR, bold=BOLD, italic=ITALIC, boldItalic=BOLD)


def text_width(words: str, size: float, font: str = REGULAR) -> float:
    load_fonts()
    return float(pdfmetrics.stringWidth(words, font, size))


def label(
    x: float, y: float, words: str, *, size: float = 8, colour: str = "ink-3", bold: bool = False, anchor: str = ""
) -> Shape:
    """A line of text; `anchor` is start, middle or end."""
    weight = 600 if bold else None
    return text(x, y, words, anchor=anchor, font_size=size, font_weight=weight, fill=colour)


def state_shape(state: str, x: float, y: float, size: float = _SHAPE_SIZE) -> Shape:
    """The state's shape in the square whose upper left corner is (x, y)."""
    shapes = {"holds": _holds, "at_risk": _at_risk, "breached": _breached}.get(state, _unknown)()
    return place(x, y, shapes, scale=size / _SHAPE_SIZE)


def state_drawing(state: str, size: float = 7.5) -> Drawing:
    """The same as a drawing of its own."""
    return Drawing(size, size, [state_shape(state, 0, 0, size)])


def _ring(colour: str, dashes: str = "") -> Shape:
    return circle(4.5, 4.5, 3.9, fill="none", stroke=colour, stroke_width=1, stroke_dasharray=dashes)


def _holds() -> list[Shape]:
    tick = path("M", 2.7, 4.5, "L", 4, 5.9, "L", 6.4, 3.1, fill="none", stroke="ok", stroke_width=1.1)
    return [_ring("ok"), tick]


def _at_risk() -> list[Shape]:
    outline = line_data([(4.5, 0.4), (0.3, 8.2), (8.7, 8.2)]) + "Z"
    return [
        path(outline, fill="none", stroke="watch", stroke_width=1, stroke_linejoin="round"),
        path("M", 4.5, 3.1, "V", 5.4, stroke="watch", stroke_width=1.1),
        circle(4.5, 6.7, 0.65, fill="watch"),
    ]


def _breached() -> list[Shape]:
    angles = [math.pi / 8 + k * math.pi / 4 for k in range(8)]
    octagon = line_data([(4.5 + 4.4 * math.cos(angle), 4.5 - 4.4 * math.sin(angle)) for angle in angles]) + "Z"
    cross = path("M", 2.9, 2.9, "L", 6.1, 6.1, "M", 6.1, 2.9, "L", 2.9, 6.1, stroke="surface", stroke_width=1.2)
    return [path(octagon, fill="bad"), cross]


def _unknown() -> list[Shape]:
    return [_ring("ink-3", "1.6 1.4")]


def key_drawing(entries: Sequence[tuple[str, str]]) -> Drawing:
    """One line of samples with their names."""
    x, shapes = 0.0, []
    for kind, words in entries:
        width = 12.0 if kind.startswith("h") else 20.0
        sample = _SAMPLES[kind]() if kind in _SAMPLES else [_swatch(kind, width)]
        shapes += [place(x, 2, sample), label(x + width + 4, 8.8, words, size=_KEY_TEXT_SIZE)]
        x += width + 4 + text_width(words, _KEY_TEXT_SIZE) + 14
    return Drawing(max(x, 1), 11, shapes)


def _swatch(kind: str, width: float) -> Shape:
    return rect(0, 1, width, 7, fill=kind, stroke="line-strong", stroke_width=0.4)


def _line(colour: str, dashes: str = "") -> Shape:
    return path("M", 0, 4.5, "H", 20, stroke=colour, stroke_width=1.5, stroke_dasharray=dashes)


def _bar() -> list[Shape]:
    return [rect(0, 2, 17, 5, fill="c-fill"), path("M", 17, 0, "V", 9, stroke="c-estimate", stroke_width=1.6)]


def marker(role: str, x: float, y: float) -> Shape:
    """The mark of a curve's points: circle, square or triangle."""
    if role == "c-alt":
        return rect(x - 2, y - 2, 4, 4, fill=role)
    if role == "c-third":
        return path(line_data([(x, y - 2.6), (x - 2.4, y + 1.7), (x + 2.4, y + 1.7)]) + "Z", fill=role)
    return circle(x, y, 2.1, fill=role)


#: Dashes of a curve by its role.
DASHES = {"c-alt": "5 2.5", "c-third": "1.5 2"}


def _curve_sample(role: str) -> list[Shape]:
    return [_line(role, DASHES.get(role, "")), marker(role, 10, 4.5)]


_SAMPLES: dict[str, Callable[[], list[Shape]]] = {
    "bar": _bar,
    "band": lambda: [rect(0, 0.5, 20, 8, fill="c-band")],
    "estimate": lambda: [_line("c-estimate")],
    "points": lambda: _curve_sample("c-estimate"),
    "alt": lambda: _curve_sample("c-alt"),
    "third": lambda: _curve_sample("c-third"),
    "objective-line": lambda: [_line("c-objective")],
}
