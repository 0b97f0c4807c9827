"""Colours, type, shapes of states and keys of the drawings. Told apart without colour, too."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache

import font_source_sans_pro as source_sans
from reportlab.graphics import renderSVG
from reportlab.graphics.shapes import Circle, Drawing, Group, Line, Polygon, PolyLine, Rect, String
from reportlab.lib.colors import Color, HexColor
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

__all__ = [
    "BOLD",
    "ITALIC",
    "PALETTE",
    "REGULAR",
    "ink",
    "key_drawing",
    "label",
    "load_fonts",
    "state_drawing",
    "state_shape",
    "svg_of",
    "text_width",
]


REGULAR, BOLD, ITALIC = "SourceSans", "SourceSans-Semibold", "SourceSans-It"

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
_RGB = re.compile(r"rgb\((\d+)%,(\d+)%,(\d+)%\)")
_FONT = re.compile(r"font-family:\s*([^;\"']+);?")


def _percent(colour: str) -> tuple[str, ...]:
    """The colour as reportlab writes it into SVG: whole percents, cut off."""
    return tuple(str(int(100 * int(colour[k : k + 2], 16) / 255)) for k in (1, 3, 5))


_NAME_OF = {_percent(colour): name for name, colour in reversed(PALETTE.items())}


@cache
def load_fonts() -> None:
    """Register the fonts with reportlab, once per process."""
    for name, path in ((REGULAR, source_sans.SourceSansPro), (BOLD, source_sans.SourceSansProSemibold)):
        pdfmetrics.registerFont(TTFont(name, path.replace(".otf", ".ttf")))
    pdfmetrics.registerFont(TTFont(ITALIC, source_sans.SourceSansProIt.replace(".otf", ".ttf")))
    pdfmetrics.registerFontFamily(REGULAR, normal=REGULAR, bold=BOLD, italic=ITALIC, boldItalic=BOLD)


@cache
def ink(name: str) -> Color:
    """A colour of the palette."""
    return HexColor(PALETTE[name])


def text_width(text: str, size: float, font: str = REGULAR) -> float:
    load_fonts()
    return float(pdfmetrics.stringWidth(text, font, size))


def label(
    x: float, y: float, text: str, *, size: float = 8, colour: str = "ink-3", bold: bool = False, anchor: str = "start"
) -> String:
    """A line of text; `anchor` is start, middle or end."""
    font = BOLD if bold else REGULAR
    return String(x, y, text, fontName=font, fontSize=size, fillColor=ink(colour), textAnchor=anchor)


def svg_of(drawing: Drawing) -> str:
    """The drawing as an `<svg>` whose colours follow the page's theme and whose type is the page's."""
    load_fonts()
    text = renderSVG.drawToString(drawing)
    text = text[text.index("<svg") :]
    text = _RGB.sub(_variable, text)
    return _FONT.sub(lambda found: "font-weight: 600;" if BOLD in found[1] else "", text)


def _variable(found: re.Match[str]) -> str:
    name = _NAME_OF.get(found.groups())
    return f"var(--{name})" if name else found[0]


_SHAPE_SIZE = 9.0


def state_shape(state: str, x: float, y: float, size: float = _SHAPE_SIZE) -> Group:
    """The state's shape in the square whose lower left corner is (x, y)."""
    shape = {"holds": _holds, "at_risk": _at_risk, "breached": _breached}.get(state, _unknown)()
    shape.transform = (size / _SHAPE_SIZE, 0, 0, size / _SHAPE_SIZE, x, y)
    return shape


def state_drawing(state: str, size: float = 7.5) -> Drawing:
    """The same as a flowable of its own."""
    drawing = Drawing(size, size)
    drawing.add(state_shape(state, 0, 0, size))
    return drawing


def _holds() -> Group:
    ring = Circle(4.5, 4.5, 3.9, fillColor=None, strokeColor=ink("ok"), strokeWidth=1)
    tick = PolyLine([2.7, 4.5, 4.0, 3.1, 6.4, 5.9], strokeColor=ink("ok"), strokeWidth=1.1)
    return Group(ring, tick)


def _at_risk() -> Group:
    triangle = Polygon(
        [4.5, 8.6, 0.3, 0.8, 8.7, 0.8], fillColor=None, strokeColor=ink("watch"), strokeWidth=1, strokeLineJoin=1
    )
    stem = Line(4.5, 5.9, 4.5, 3.6, strokeColor=ink("watch"), strokeWidth=1.1)
    dot = Circle(4.5, 2.3, 0.65, fillColor=ink("watch"), strokeColor=None)
    return Group(triangle, stem, dot)


def _breached() -> Group:
    corners = [4.5 + 4.4 * f(math.pi / 8 + k * math.pi / 4) for k in range(8) for f in (math.cos, math.sin)]
    octagon = Polygon(corners, fillColor=ink("bad"), strokeColor=None)
    cross = [Line(a, 2.9, b, 6.1, strokeColor=ink("surface"), strokeWidth=1.2) for a, b in ((2.9, 6.1), (6.1, 2.9))]
    return Group(octagon, *cross)


def _unknown() -> Group:
    return Group(
        Circle(4.5, 4.5, 3.9, fillColor=None, strokeColor=ink("ink-3"), strokeWidth=1, strokeDashArray=[1.6, 1.4])
    )


_KEY_TEXT_SIZE = 8.0


def key_drawing(entries: Sequence[tuple[str, str]]) -> Drawing:
    """One line of samples with their names."""
    load_fonts()
    x = 0.0
    samples = []
    for kind, text in entries:
        wide = 12.0 if kind.startswith("h") else 20.0
        sample = _SAMPLES[kind]() if kind in _SAMPLES else _swatch(kind, wide)
        sample.transform = (1, 0, 0, 1, x, 0)
        samples += [sample, label(x + wide + 4, 2.2, text, size=_KEY_TEXT_SIZE, colour="ink-3")]
        x += wide + 4 + text_width(text, _KEY_TEXT_SIZE) + 14
    drawing = Drawing(max(x, 1), 11)
    for sample in samples:
        drawing.add(sample)
    return drawing


def _swatch(kind: str, wide: float) -> Group:
    return Group(Rect(0, 1, wide, 7, fillColor=ink(kind), strokeColor=ink("line-strong"), strokeWidth=0.4))


def _line(role: str, dashes: list[float] | None = None) -> Group:
    return Group(Line(0, 4.5, 20, 4.5, strokeColor=ink(role), strokeWidth=1.5, strokeDashArray=dashes))


def _bar() -> Group:
    fill = Rect(0, 2, 17, 5, fillColor=ink("c-fill"), strokeColor=None)
    return Group(fill, Line(17, 0, 17, 9, strokeColor=ink("c-estimate"), strokeWidth=1.6))


def _with_circle() -> Group:
    group = _line("c-estimate")
    group.add(Circle(10, 4.5, 2.1, fillColor=ink("c-estimate"), strokeColor=None))
    return group


def _with_square() -> Group:
    group = _line("c-alt", [5, 2.5])
    group.add(Rect(8, 2.5, 4, 4, fillColor=ink("c-alt"), strokeColor=None))
    return group


def _with_triangle() -> Group:
    group = _line("c-third", [1.5, 2])
    group.add(Polygon([10, 7.1, 7.6, 2.8, 12.4, 2.8], fillColor=ink("c-third"), strokeColor=None))
    return group


_SAMPLES: dict[str, Callable[[], Group]] = {
    "bar": _bar,
    "band": lambda: Group(Rect(0, 0.5, 20, 8, fillColor=ink("c-band"), strokeColor=None)),
    "estimate": lambda: _line("c-estimate"),
    "points": _with_circle,
    "alt": _with_square,
    "third": _with_triangle,
    "objective-line": lambda: _line("c-objective"),
}
