"""Shapes of drawings as `reportlab.graphics`, which writes them into the PDF as vectors."""

from __future__ import annotations

import re
from functools import cache, partial

from reportlab.graphics import shapes as pdf
from reportlab.lib.colors import Color, HexColor

from apps.reports.drawings.ink import BOLD, PALETTE, REGULAR, Drawing
from apps.ui.svg.shapes import Attribute, Shape

__all__ = ["colour", "pdf_drawing"]

_COMMAND = re.compile(r"([A-Za-z])([^A-Za-z]*)")
_NUMBER = re.compile(r"-?\d*\.?\d+")
_MOVE = re.compile(r"translate\((\S+) (\S+)\)(?: scale\((\S+)\))?")
_ROUND_JOIN = 1


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
