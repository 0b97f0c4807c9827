"""Colours and type of the drawings. Pictures also differ by shape, dash and lightness: a report may be printed grey."""

from __future__ import annotations

import re
from functools import cache

import font_source_sans_pro as source_sans
from reportlab.graphics import renderSVG
from reportlab.graphics.shapes import Drawing, String
from reportlab.lib.colors import Color, HexColor
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

__all__ = ["BOLD", "ITALIC", "PALETTE", "REGULAR", "ink", "label", "load_fonts", "svg_of", "text_width"]

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
