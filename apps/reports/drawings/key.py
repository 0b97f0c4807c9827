"""The key below a picture, in its order of drawing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reportlab.graphics.shapes import Circle, Drawing, Group, Line, Polygon, Rect

from apps.reports.drawings.ink import ink, label, load_fonts, text_width

__all__ = ["key_drawing"]

_SIZE = 8.0


def key_drawing(entries: Sequence[tuple[str, str]]) -> Drawing:
    """One line of samples with their names."""
    load_fonts()
    x = 0.0
    samples = []
    for kind, text in entries:
        wide = 12.0 if kind.startswith("h") else 20.0
        sample = _SAMPLES[kind]() if kind in _SAMPLES else _swatch(kind, wide)
        sample.transform = (1, 0, 0, 1, x, 0)
        samples += [sample, label(x + wide + 4, 2.2, text, size=_SIZE, colour="ink-3")]
        x += wide + 4 + text_width(text, _SIZE) + 14
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
