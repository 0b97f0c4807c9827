"""The kit of shapes: text that is safe to put into a page, and the same shapes in a report's PDF."""

from __future__ import annotations

import pytest

from apps.ui.svg.axes import shorten, step_data
from apps.ui.svg.pdf import pdf_drawing
from apps.ui.svg.shapes import Drawing, circle, group, path, picture, place, rect, shape, svg_text, text


def test_words_and_attributes_are_escaped() -> None:
    written = str(picture(10, 5, 'a "b"', text(1, 2, "<script>")))
    assert 'aria-label="a &quot;b&quot;"' in written and "&lt;script&gt;</text>" in written


def test_colours_are_design_tokens_unless_literal() -> None:
    assert str(svg_text(rect(0, 0, 1, 1, fill="c-band"))).endswith('fill="var(--c-band)"/>')
    assert 'fill="none"' in str(svg_text(path("M", 0, 0, "H", 4, fill="none")))


def test_steps_hold_their_value_until_the_next_point() -> None:
    assert step_data([(0, 5), (10, 2.504)]) == "M0 5H10V2.5"


def test_long_name_is_cut_with_an_ellipsis() -> None:
    assert shorten("a-very-long-name", 40) == "a-ver…"


def test_shapes_of_a_drawing_become_vectors() -> None:
    shapes = [place(5, 5, circle(1, 1, 1, fill="ok"), scale=2), path("M", 0, 0, "L", 3, 4, "Z", fill="bad")]
    assert len(pdf_drawing(Drawing(20, 10, [group(shapes), text(1, 1, "n", font_size=8, fill="ink")])).contents) == 1


def test_shape_that_a_pdf_cannot_hold_is_named() -> None:
    with pytest.raises(ValueError, match="<marker> cannot be drawn"):
        pdf_drawing(Drawing(1, 1, [shape("marker")]))
