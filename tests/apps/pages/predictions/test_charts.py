"""Pictures of predictions: candidates, the interval on the objective's axis, errors over executions."""

from __future__ import annotations

from apps.pages.predictions.candidates import CandidateChart, CandidatePoint
from apps.pages.predictions.charts import ErrorChart, interval_figure
from engine.costream.answer import PlacementPoint


def point(latency_s: float, *, backpressure: bool = False) -> PlacementPoint:
    interval = latency_s / 2, latency_s * 2
    return PlacementPoint(10.0, latency_s, latency_s, *interval, True, backpressure, outside=False, hosts=())


def chart(*latencies_s: float, target: str = "Le") -> CandidateChart:
    chosen = CandidatePoint(point(1.0), ("a", "b"), True, (("strongest", "everything on a"),))
    others = [CandidatePoint(point(value, backpressure=value > 5), ("b",)) for value in latencies_s]
    return CandidateChart([chosen, *others], target, 1 + len(others))


def test_axis_counts_in_decades_only_where_candidates_are_far_apart() -> None:
    assert "in decades" not in chart(2.0, 3.0).x.name
    assert chart(2.0, 300.0).x.name == "End-to-end latency, in decades"


def test_picture_tells_candidates_apart_by_shape_and_says_so() -> None:
    drawn = chart(2.0, 300.0)
    assert [kind for kind, _ in drawn.key] == ["passes", "fails", "chosen", "strongest"]
    assert "3 candidates by predicted end-to-end latency, 2 pass the votes." in drawn.finding
    assert drawn.svg.count("<svg") == 2 and "Chosen and everything on a" in drawn.svg


def test_table_names_the_chosen_one_first_and_then_the_best() -> None:
    lines = chart(3.0, 2.0).lines
    assert [value.replace("\xa0", " ") for _, value, _, _ in lines] == ["1 s", "2 s", "3 s"]
    assert lines[0][0].is_chosen and lines[0][2].replace("\xa0", " ") == "0.5 to 2 s"


def test_throughput_as_target_puts_the_latency_upright() -> None:
    drawn = chart(2.0, target="T")
    assert (drawn.x.metric, drawn.y.metric) == ("T", "Le")


def test_interval_stands_on_the_axis_of_its_objective() -> None:
    drawn = interval_figure("Predicted mean", 1.0, 0.5, 2.0, 3.0).replace("\xa0", " ")
    assert "Predicted mean 1 s, interval 0.5 to 2 s, objective 3 s." in drawn
    assert "Objective" not in interval_figure("Predicted mean", 1.0, 0.5, 2.0, None)


def test_errors_over_executions_mark_another_model() -> None:
    errors = {"T": [None] * 40, "Lp": [None] * 40, "Le": [2.0] * 20 + [1.1] * 20}
    drawn = ErrorChart(errors, ["shipped 1"] * 20 + ["fine-tuned 1"] * 20)
    assert drawn.key == [("estimate", "End-to-end latency")]
    assert "newest running medians: End-to-end latency 1.1" in drawn.finding
    assert drawn.svg.count("fine-tuned 1") == 2  # once for desks, once for phones
