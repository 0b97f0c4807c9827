"""The shape of each state: told apart without colour."""

from __future__ import annotations

import math

from reportlab.graphics.shapes import Circle, Drawing, Group, Line, Polygon, PolyLine

from apps.reports.drawings.ink import ink

__all__ = ["state_drawing", "state_shape"]

_SIZE = 9.0


def state_shape(state: str, x: float, y: float, size: float = _SIZE) -> Group:
    """The state's shape in the square whose lower left corner is (x, y)."""
    shape = {"holds": _holds, "at_risk": _at_risk, "breached": _breached}.get(state, _unknown)()
    shape.transform = (size / _SIZE, 0, 0, size / _SIZE, x, y)
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
