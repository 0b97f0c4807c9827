"""The operator picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from apps.ui.dag import DagEdge, DagNode, dag_picture

SVG = "{http://www.w3.org/2000/svg}"


def drawn(nodes: list[DagNode], edges: list[DagEdge], label: str = "A plan.") -> ET.Element:
    text = str(dag_picture(nodes, edges, label)).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return ET.fromstring(text)


def chain(*names: str) -> tuple[list[DagNode], list[DagEdge]]:
    return [DagNode(name, name) for name in names], [DagEdge(a, b) for a, b in pairwise(names)]


def blocks(picture: ET.Element) -> dict[str, tuple[float, float, float, float]]:
    """Left, top, right and bottom of each block, by its title."""
    boxes = {}
    for group in picture.findall(f"{SVG}g"):
        box = next(rect for rect in group.findall(f"{SVG}rect") if rect.get("fill") == "var(--surface)")
        x, y, width, height = (float(box.get(name) or "nan") for name in ("x", "y", "width", "height"))
        name = group.find(f"{SVG}text[@class='tb name']")
        assert name is not None and name.text
        boxes[name.text] = (x, y, x + width, y + height)
    return boxes


def streams(picture: ET.Element) -> list[ET.Element]:
    return [path for path in picture.findall(f"{SVG}path") if path.get("marker-end")]


def points(path: ET.Element) -> list[tuple[float, float]]:
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path.get("d") or "")]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def along(path: ET.Element) -> list[tuple[float, float]]:
    """Places along a stream's lines and curves, near enough to each other not to jump over a block."""
    places: list[tuple[float, float]] = []
    here = (0.0, 0.0)
    for command, rest in re.findall(r"([MLC])([^MLC]*)", path.get("d") or ""):
        numbers = [float(number) for number in rest.split()]
        ends = list(zip(numbers[::2], numbers[1::2], strict=True))
        if command != "M":
            a, b, c, d = [here, *ends] if command == "C" else [here, here, ends[0], ends[0]]
            for step in range(51):
                t = step / 50
                u = 1 - t
                weights = (u**3, 3 * u * u * t, 3 * u * t * t, t**3)
                places.append(tuple(sum(w * p[i] for w, p in zip(weights, (a, b, c, d), strict=True)) for i in (0, 1)))
        here = ends[-1]
    return places


def test_no_blocks_give_no_picture() -> None:
    assert dag_picture([], [], "Nothing.") == ""


def test_a_stream_leads_from_left_to_right() -> None:
    nodes, edges = chain("read", "filter", "join", "write")
    picture = drawn(nodes, edges)
    lefts = [blocks(picture)[node.title][0] for node in nodes]
    assert lefts == sorted(lefts) and len(set(lefts)) == len(nodes)
    for path in streams(picture):
        assert points(path)[0][0] < points(path)[-1][0]


def test_stream_direction_is_independent_of_listing_order() -> None:
    nodes, edges = chain("read", "filter", "write")
    picture = blocks(drawn(nodes[::-1], edges[::-1]))
    assert picture["read"][2] < picture["filter"][0] < picture["filter"][2] < picture["write"][0]


def test_blocks_do_not_overlap_and_stay_inside_the_picture() -> None:
    nodes = [DagNode(name, name) for name in ("s", "a", "b", "c", "d", "t")]
    edges = [DagEdge("s", name) for name in "abcd"] + [DagEdge(name, "t") for name in "abcd"]
    picture = drawn(nodes, edges)
    boxes = list(blocks(picture).values())
    for index, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[index + 1 :]:
            assert right < other[0] or other[2] < left or bottom < other[1] or other[3] < top
    _, _, width, height = map(float, (picture.get("viewBox") or "").split())
    assert all(left >= 0 and top >= 0 and right <= width and bottom <= height for left, top, right, bottom in boxes)


def test_long_stream_avoids_blocks_between_its_ends() -> None:
    nodes, edges = chain("a", "b", "c", "d")
    picture = drawn(nodes, [*edges, DagEdge("a", "d")])
    between = [blocks(picture)[name] for name in ("b", "c")]
    long = max(streams(picture), key=lambda path: points(path)[-1][0] - points(path)[0][0])
    for x, y in along(long):
        for left, top, right, bottom in between:
            assert not (left < x < right and top < y < bottom)


def test_unconnected_parts_stand_below_each_other() -> None:
    one, its_edges = chain("a", "b")
    two, their_edges = chain("x", "y")
    picture = blocks(drawn([*one, *two], [*its_edges, *their_edges]))
    assert picture["a"][0] == picture["x"][0]
    assert picture["a"][3] < picture["x"][1] or picture["x"][3] < picture["a"][1]


def test_single_block_is_drawn() -> None:
    assert set(blocks(drawn([DagNode("only", "only")], []))) == {"only"}


def test_only_the_bottleneck_is_labelled_as_such() -> None:
    nodes, edges = chain("a", "b")
    nodes[1] = DagNode("b", "b", load=1.3, wait_s=2.0, on_path=True, bottleneck=True)
    picture = drawn(nodes, edges)
    flagged = [group for group in picture.findall(f"{SVG}g") if group.get("data-flagged") is not None]
    assert len(flagged) == 1
    words = "".join(flagged[0].itertext())
    assert "Bottleneck" in words and "1.30" in words


def test_load_over_one_stays_inside_its_bar() -> None:
    picture = drawn([DagNode("a", "a", load=3.0)], [])
    widths = [float(bar.get("width") or "nan") for bar in picture.iter(f"{SVG}rect") if bar.get("height") == "6"]
    assert len(widths) == 2 and widths[0] == widths[1]


def test_markup_in_names_is_escaped() -> None:
    bad = '<script>alert("x")</script>'
    nodes = [DagNode("a", bad, place=bad, detail=bad), DagNode(bad, "b")]
    picture = drawn(nodes, [DagEdge("a", bad)], label=f'"{bad}')
    assert "script" not in {element.tag.removeprefix(SVG) for element in picture.iter()}
    assert picture.get("aria-label") == f'"{bad}'
    assert bad in "".join(picture.itertext())  # whole in the title, even where the block shortens it


def test_a_long_name_is_shortened_in_the_block_and_whole_in_its_title() -> None:
    name = "a-very-long-operator-name-indeed"
    text = "".join(drawn([DagNode("a", name, place="node-07")], []).itertext())
    assert name in text and "…" in text


def test_stream_with_more_events_has_a_wider_line() -> None:
    nodes, _ = chain("a", "b", "c", "d")
    picture = drawn(nodes, [DagEdge("a", "b", 4000.0), DagEdge("b", "c", 100.0), DagEdge("c", "d", 0.0)])
    widths = [float(path.get("stroke-width") or "nan") for path in streams(picture)]
    assert widths[0] > widths[1] > widths[2] > 0
    assert "4" + "\u00a0" + "k/s" in "".join(picture.itertext())


@pytest.mark.parametrize("fan", [2, 3, 5])
def test_rate_labels_do_not_overlap_blocks(fan: int) -> None:
    names = [f"n{index}" for index in range(fan)]
    nodes = [DagNode(name, name) for name in ["s", *names, "t"]]
    edges = [DagEdge("s", name, 1000.0) for name in names] + [DagEdge(name, "t", 1000.0) for name in names]
    picture = drawn(nodes, edges)
    labels = [text for text in picture.findall(f"{SVG}text") if "halo" in (text.get("class") or "")]
    assert len(labels) == 2 * fan
    for label in labels:
        x, y = float(label.get("x") or "nan"), float(label.get("y") or "nan")
        left, right = (x - 36, x) if label.get("text-anchor") == "end" else (x - 18, x + 18)
        for a, top, b, bottom in blocks(picture).values():
            assert right < a or b < left or y < top or bottom < y - 9
