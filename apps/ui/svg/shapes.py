"""Shapes of pictures: a tree that pages write as SVG text and reports also draw into their PDF.

Numbers are written with at most two decimals, texts are escaped, and a colour is the name of a design token (`c-band`),
which SVG writes as `var(--c-band)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

__all__ = [
    "Attribute",
    "Drawing",
    "Shape",
    "circle",
    "group",
    "path",
    "path_data",
    "picture",
    "place",
    "rect",
    "shape",
    "svg_text",
    "swatch",
    "text",
    "title",
]

Attribute: TypeAlias = str | float | None
_COLOURS = {"fill", "stroke"}
_LITERAL = ("none", "currentColor", "#", "var(")
#: Strokes of a picture that is stretched keep their width.
_FIXED_STROKE = "non-scaling-stroke"


@dataclass(frozen=True)
class Shape:
    """An element: `attributes` by their SVG names, `words` as its text, and the shapes within it."""

    tag: str
    attributes: dict[str, Attribute]
    children: tuple[Shape, ...] = ()
    words: str = ""

    def __html__(self) -> SafeString:
        return svg_text(self)


Content: TypeAlias = Shape | Iterable["Content"] | None


def number(value: float) -> str:
    """A coordinate with at most two decimals.

    Examples
    --------
    >>> number(3.0), number(0.126), number(-0.001)
    ('3', '0.13', '0')
    """
    written = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if written == "-0" else written


def svg_text(*content: Content) -> SafeString:
    """Shapes as SVG text."""
    return mark_safe("".join(_written(shape) for shape in _flat(content)))


def shape(tag: str, *children: Content, words: object = "", css: str = "", **attributes: Attribute) -> Shape:
    """Any element. `css` becomes its class, `_` in a name of an attribute `-`; empty attributes are left out."""
    named: dict[str, Attribute] = {"class": css} if css else {}
    for name, value in attributes.items():
        if value is not None and value != "":
            named[name.rstrip("_").replace("_", "-")] = value
    return Shape(tag, named, tuple(_flat(children)), str(words))


def rect(
    x: float, y: float, width: float, height: float, *children: Content, css: str = "", **attributes: Attribute
) -> Shape:
    """A rectangle by its upper left corner; less than nothing is nothing."""
    size = {"width": max(width, 0.0), "height": max(height, 0.0)}
    return shape("rect", *children, css=css, x=x, y=y, **size, **attributes)


def circle(x: float, y: float, radius: float, *children: Content, css: str = "", **attributes: Attribute) -> Shape:
    return shape("circle", *children, css=css, cx=x, cy=y, r=radius, **attributes)


def path_data(*parts: str | float) -> str:
    """Commands and coordinates of a path as text.

    Examples
    --------
    >>> path_data("M", 0, 10.5, "H", 300)
    'M0 10.5H300'
    """
    written, was_number = [], False
    for part in parts:
        if isinstance(part, str):
            written.append(part)
            was_number = False
        else:
            written.append(f" {number(part)}" if was_number else number(part))
            was_number = True
    return "".join(written)


def path(*data: str | float, css: str = "", fixed: bool = False, **attributes: Attribute) -> Shape:
    """A path from commands and coordinates, or from data made before; `fixed` keeps its stroke when stretched."""
    effect = {"vector_effect": _FIXED_STROKE} if fixed else {}
    return shape("path", css=css, d=path_data(*data), **attributes, **effect)


def text(x: float, y: float, words: object, css: str = "", anchor: str = "", **attributes: Attribute) -> Shape:
    """A line of text; `anchor` is start, middle or end."""
    return shape("text", words=words, css=css, x=x, y=y, text_anchor=anchor, **attributes)


def title(words: object) -> Shape:
    """Words that a browser shows where the pointer rests."""
    return shape("title", words=words)


def group(*children: Content, css: str = "", **attributes: Attribute) -> Shape:
    return shape("g", *children, css=css, **attributes)


def place(x: float, y: float, *children: Content, scale: float = 1.0) -> Shape:
    """Shapes moved to (x, y), and scaled about it."""
    factor = "" if scale == 1.0 else f" scale({scale:g})"
    return group(*children, transform=f"translate({number(x)} {number(y)}){factor}")


def picture(
    width: float,
    height: float,
    label: str,
    *children: Content,
    css: str = "fig",
    role: str = "img",
    stretched: bool = False,
    sized: bool = False,
    **attributes: Attribute,
) -> SafeString:
    """A whole picture as SVG text; `label` is what screen readers say of it.

    It fills the width it is given; `stretched` lets it change its shape, `sized` gives it its own size in pixels.
    """
    size = {"width": width, "height": height} if sized else {}
    root = shape(
        "svg",
        *children,
        css=css,
        viewBox=f"0 0 {number(width)} {number(height)}",
        preserveAspectRatio="none" if stretched else None,
        role=role,
        aria_label=label,
        **size,
        **attributes,
    )
    return svg_text(root)


@dataclass(frozen=True)
class Drawing:
    """Shapes on a sheet, in points; PDFs and pages draw the same ones."""

    width: float
    height: float
    shapes: Sequence[Shape]

    @property
    def svg(self) -> SafeString:
        """Its size is given, so that mail programs show it as large as print."""
        view = f"0 0 {self.width:g} {self.height:g}"
        return svg_text(shape("svg", self.shapes, width=self.width, height=self.height, viewBox=view))


def swatch(colour: str) -> SafeString:
    """A square of a colour, for the key below a picture."""
    square = rect(0, 0, 12, 10, rx=2, fill=colour)
    return svg_text(shape("svg", square, css="sq", viewBox="0 0 12 10", aria_hidden="true"))


def _flat(content: Iterable[Content]) -> Iterator[Shape]:
    for entry in content:
        if isinstance(entry, Shape):
            yield entry
        elif entry is not None:
            yield from _flat(entry)


def _written(shape: Shape) -> str:
    attributes = "".join(f' {name}="{_value(name, value)}"' for name, value in shape.attributes.items())
    inner = escape(shape.words) + "".join(map(_written, shape.children))
    return f"<{shape.tag}{attributes}>{inner}</{shape.tag}>" if inner else f"<{shape.tag}{attributes}/>"


def _value(name: str, value: Attribute) -> str:
    if isinstance(value, int | float):
        return number(value)
    if name in _COLOURS and not str(value).startswith(_LITERAL):
        return f"var(--{value})"
    return escape(str(value))
