"""Shapes in PDF: the same drawings that pages write as SVG text, with the type and the light colours of print."""

from __future__ import annotations

import re
from functools import cache, partial

import font_source_sans_pro as source_sans
from reportlab.graphics import shapes as pdf
from reportlab.lib.colors import Color, HexColor
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

from apps.ui.svg.shapes import Attribute, Drawing, Shape

__all__ = ["BOLD", "PALETTE", "REGULAR", "colour", "load_fonts", "pdf_drawing", "text_width"]

REGULAR, BOLD, ITALIC = "SourceSans", "SourceSans-Semibold", "SourceSans-It"
_COMMAND = re.compile(r"([A-Za-z])([^A-Za-z]*)")
_NUMBER = re.compile(r"-?\d*\.?\d+")
_MOVE = re.compile(r"translate\((\S+) (\S+)\)(?: scale\((\S+)\))?")
_ROUND_JOIN = 1

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


@cache
def colour(name: str) -> Color:
    """A colour of the palette."""
    return HexColor(PALETTE[name])


def pdf_drawing(drawing: Drawing) -> pdf.Drawing:
    """The drawing, with y upwards as PDF has it."""
    sheet = pdf.Drawing(drawing.width, drawing.height)
    flipped = pdf.Group(transform=(1, 0, 0, -1, 0, drawing.height))
    for shape in drawing.shapes:
        flipped.add(_pdf_shape(shape))
    sheet.add(flipped)
    return sheet


def _pdf_shape(shape: Shape) -> pdf.Shape:
    at = partial(_number, shape)
    match shape.tag:
        case "rect":
            return pdf.Rect(at("x"), at("y"), at("width"), at("height"), **_paint(shape))
        case "circle":
            return pdf.Circle(at("cx"), at("cy"), at("r"), **_paint(shape))
        case "path":
            return _pdf_path(shape)
        case "text":
            return _pdf_text(shape)
        case "g":
            return _pdf_group(shape)
    raise ValueError(f"<{shape.tag}> cannot be drawn into a PDF; allowed: rect, circle, path, text, g")


def _number(shape: Shape, name: str, default: float = 0.0) -> float:
    return float(shape.attributes.get(name) or default)


def _ink(value: Attribute) -> Color | None:
    return None if value in (None, "none") else colour(str(value))


def _paint(shape: Shape) -> dict[str, object]:
    """SVG fills with black where nothing is said; every shape of a report says its fill or is a line."""
    attributes = shape.attributes
    dashes = str(attributes.get("stroke-dasharray") or "")
    return {
        "fillColor": _ink(attributes.get("fill")),
        "strokeColor": _ink(attributes.get("stroke")),
        "strokeWidth": _number(shape, "stroke-width", 1.0),
        "strokeDashArray": [float(part) for part in dashes.split()] or None,
        "strokeLineJoin": _ROUND_JOIN if attributes.get("stroke-linejoin") == "round" else 0,
    }


def _pdf_path(shape: Shape) -> pdf.Path:
    """Absolute commands of straight lines are all that drawings have."""
    drawn = pdf.Path(**_paint(shape))
    x = y = 0.0
    for command, numbers in _COMMAND.findall(str(shape.attributes["d"])):
        values = [float(part) for part in _NUMBER.findall(numbers)]
        match command:
            case "M" | "L":
                x, y = values
            case "H":
                (x,) = values
            case "V":
                (y,) = values
            case "Z":
                drawn.closePath()
                continue
            case _:
                raise ValueError(f"path command {command!r} cannot be drawn into a PDF; allowed: M, L, H, V, Z")
        drawn.moveTo(x, y) if command == "M" else drawn.lineTo(x, y)
    return drawn


def _pdf_text(shape: Shape) -> pdf.Group:
    """Upright again in a sheet that is upside down."""
    words = pdf.String(
        0,
        0,
        shape.words,
        fontName=BOLD if shape.attributes.get("font-weight") else REGULAR,
        fontSize=_number(shape, "font-size"),
        fillColor=_ink(shape.attributes.get("fill")),
        textAnchor=shape.attributes.get("text-anchor") or "start",
    )
    return pdf.Group(words, transform=(1, 0, 0, -1, _number(shape, "x"), _number(shape, "y")))


def _pdf_group(shape: Shape) -> pdf.Group:
    group = pdf.Group(*map(_pdf_shape, shape.children))
    moved = _MOVE.fullmatch(str(shape.attributes.get("transform") or ""))
    if moved is not None:
        x, y, scale = moved.groups(default="1")
        group.transform = (float(scale), 0, 0, float(scale), float(x), float(y))
    return group
