"""Icons, marks and small pictures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from apps.ui import charts, marks, pictures
from apps.ui import marks as ui_marks


@pytest.mark.parametrize("name", sorted(ui_marks.ICONS))
def test_every_icon_is_well_formed_and_skipped_by_screen_readers(name: str) -> None:
    drawing = ET.fromstring(ui_marks.icon(name, "ok"))
    assert drawing.get("aria-hidden") == "true"
    assert drawing.get("class") == "i ok"
    assert len(drawing)


def test_every_mark_has_an_icon_and_a_word() -> None:
    for kind in (marks.STATES, marks.VERDICTS, marks.EVIDENCE):
        for mark in kind.values():
            assert mark.drawing in ui_marks.ICONS
            assert mark.label


def test_states_differ_by_shape() -> None:
    for group in (["holds", "at_risk", "breached", "none"], list(marks.VERDICTS), list(marks.EVIDENCE)):
        named = {**marks.STATES, **marks.VERDICTS, **marks.EVIDENCE}
        assert len({named[name].drawing for name in group}) == len(group)


def test_objective_mark_is_at_three_quarters_of_every_bar() -> None:
    for bound in (0.5, 3, 4000):
        bar = ET.fromstring(pictures.headroom_bar(bound / 2, bound))
        objective = next(part for part in bar if "c-objective" in part.get("stroke", ""))
        assert objective.get("d", "").startswith("M112.5 ")


def test_headroom_bar_has_a_label_and_paints_the_excess() -> None:
    bar = pictures.headroom_bar(8.2, 10, 7.1, 10.4, 7.9, name="checkout")
    assert 'aria-label="checkout: estimate 8.2\u00a0s of its 10\u00a0s, interval 7.1\u00a0s to 10.4\u00a0s' in bar
    assert "measured 7.9" in bar
    assert "--bad" not in bar
    assert "--bad" in pictures.headroom_bar(3.4, 3)
    assert pictures.headroom_bar(3.4, None) == ""
    assert pictures.headroom_bar(None, 3) == ""


def test_bars_stay_inside_their_frame() -> None:
    for part in ET.fromstring(pictures.headroom_bar(1e6, 1, 1e5, 1e7)):
        if part.tag == "rect":
            assert float(part.get("x", 0)) + float(part.get("width", 0)) <= 150.1


def test_names_are_escaped() -> None:
    for picture in (
        pictures.headroom_bar(1, 2, name='"><script>'),
        pictures.before_after_bar(1, 2, 3, name='"><script>'),
        pictures.heat_strip([0.0], '"><script>'),
        pictures.sparkline([1, 2, 3], '"><script>', first=None, span_s=60),
        marks.state_mark("holds", "<b>"),
    ):
        assert "<script>" not in picture
        assert "<b>" not in picture


def test_before_after_bar_shows_both_values() -> None:
    bar = pictures.before_after_bar(8.2, 13.6, 10)
    assert 'aria-label="before 8.2\u00a0s, after 13.6\u00a0s, objective 10\u00a0s"' in bar
    assert "--bad" in bar
    assert "before" not in pictures.before_after_bar(None, 4, 10)
    banded = pictures.before_after_bar(8.2, 13.6, 10, "q", 12.0, 15.5).replace("\u00a0", " ")
    assert "after 13.6 s, interval 12 s to 15.5 s, objective 10 s" in banded and 'fill="var(--c-band)"' in banded


def test_heat_strip_steps_up_the_ramp_and_caps_from_four_seconds() -> None:
    strip = pictures.heat_strip([0, 0.4, 0.5, 1, 2, 4, 6, 60], "n1")
    boxes = {fill: data.count("M") for data, fill in re.findall(r'd="([^"]+)" fill="var\(--(h\d|bad)\)"', strip)}
    assert boxes == {"h0": 2, "h1": 1, "h2": 1, "h3": 1, "h4": 1, "h5": 2, "bad": 3}


def test_a_sparkline_keeps_its_peak() -> None:
    values = [1.0] * 500
    values[251] = 9.0
    line = pictures.sparkline(values, "x", width=56, first=None, span_s=1800)
    heights = [float(y) for y in re.findall(r"[ML]?[\d.]+ ([\d.]+)", line.split('d="')[1].split('"')[0])]
    assert min(heights) == 3.0
    assert len(heights) == 28
    assert "<small>30\u00a0min</small>" in line
    assert pictures.sparkline([1.0], "x", first=None, span_s=1800) == ""


def test_load_bar_shows_mean_and_peak() -> None:
    assert 'class="over"' in pictures.load_bar(1.2)
    assert 'class="watch"' in pictures.load_bar(0.93)
    assert "none yet" in pictures.load_bar(None)
    assert 'class="peak" style="width:90%"' in pictures.load_bar(0.4, 0.9)


def test_load_bars_of_a_table_share_their_scale_and_mark_the_capacity() -> None:
    bar = pictures.load_bar(0.64, 1.24, 1.24)
    assert re.findall(r"width:(\d+)%", bar) == ["100", "52"]
    assert re.findall(r"left:(\d+)%", bar) == ["78"]
    assert "<b" not in pictures.load_bar(0.64, 0.9), "the bar's end is the capacity"
    assert re.findall(r"left:(\d+)%", pictures.load_bar(0.64, limit=0.85)) == ["82"]


def test_chart_spec_holds_series_axes_and_finding() -> None:
    chart = charts.Chart(
        id="latency",
        finding="At most 8.2 s.",
        unit="s",
        x=charts.elapsed_axis(1.0),
        series=[
            charts.Series("band", "Interval, 90%", low=[1.0] * 100, high=[3.0] * 100),
            charts.Series("estimate", "Estimate", y=[2.0] * 50 + [8.2] + [2.0] * 49),
        ],
        objective_s=10,
    )
    assert chart.spec["objective"] == {"value": 10, "label": "Objective 10\u00a0s"}
    assert [name for _, name in chart.key] == ["Interval, 90%", "Estimate", "Objective"]
    assert len(chart.table) == 24
    assert max(line[1][0] for line in chart.table) == "8.2\u00a0s"
    assert chart.table[0][0] == "0:00:00"
    with pytest.raises(ValueError, match="role 'blue'"):
        charts.Series("blue", "Blue", y=[1.0]).to_dict()


def test_time_axis_handles_the_change_to_winter_time() -> None:
    from datetime import UTC, datetime

    from django.utils import timezone

    with timezone.override("Europe/Berlin"):
        axis = charts.time_axis(datetime(2026, 10, 24, 22, 0, tzinfo=UTC), 60.0, 600)
    assert [offset for _, offset in axis.offsets] == [7200.0, 3600.0]


def test_headroom_bar_of_what_never_catches_up_fills_the_width_and_says_so() -> None:
    bar = pictures.headroom_bar(25, 60, is_endless=True)
    assert "never catches up, objective 60" in bar
    assert "--bad" in bar
