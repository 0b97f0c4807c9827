"""Records: read with all faults, written, described, and listed for forms and guides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Discriminator, Field, computed_field

from engine.document.elements import Node
from engine.errors import DocumentError, Fault
from engine.jarvis.settings import AdaptationSettings
from engine.kinds import Enumeration, Number, NumberSeries, String
from engine.klink.settings import ScheduleSettings
from engine.records import BAD, Flag, ItemCount, Record, RecordOf, Unbounded, Unwritten, Words, record_fields


@dataclass(frozen=True)
class Leg(Record):
    TITLE: ClassVar[str] = "a leg"

    to: Annotated[str, String()]
    length_m: Annotated[float, Number(above=0), Words("how far", label="Length", unit="km", scale=1e-3)]
    kind: Literal["road", "rail"] = "road"


@dataclass(frozen=True)
class Journey(Record):
    TITLE: ClassVar[str] = "a journey"

    legs: Annotated[tuple[Leg, ...], ItemCount(1, 3)]
    loads: Annotated[Any, NumberSeries()] = None
    seats: Annotated[int, Number(least=1, whole=True)] | None = None
    returns: Flag = False
    names: dict[str, Annotated[str, String()]] | None = None
    pace: Annotated[str, Enumeration(("slow", "fast"))] = "slow"

    def find_faults(self) -> Iterator[Fault]:
        if self.returns and len(self.legs) < 2:
            yield Fault("legs", "legs has 1 item; allowed: 2 where it returns")


ONE_LEG = {"to": "x", "length_m": 1}


def faults_of(document: Any) -> dict[str, str]:
    with pytest.raises(DocumentError) as refused:
        Journey.parse(document)
    return {fault.path: fault.message for fault in refused.value.faults}


def test_all_faults_come_at_once_with_their_paths_and_words() -> None:
    found = faults_of(
        {
            "legs": [{"to": "", "length_m": 0, "kind": "raod"}, {"too": "x"}, 7],
            "seats": 1.5,
            "returns": "yes",
            "names": {"a": 3},
            "pace": "fats",
            "loads": [1, -1],
            "speed": 3,
        }
    )
    assert found == {
        "legs[0].to": "to is ''; allowed: a non-empty text",
        "legs[0].length_m": "length_m is 0; allowed: a finite number above 0",
        "legs[0].kind": "kind is 'raod'; allowed: road, rail; did you mean 'road'?",
        "legs[1].to": "to is missing; a leg needs it",
        "legs[1].length_m": "length_m is missing; a leg needs it",
        "legs[1].too": "too is not a field of a leg; did you mean 'to'?",
        "legs[2]": "a leg is 7; allowed: an object",
        "seats": "seats is 1.5; allowed: a whole number of at least 1",
        "returns": "returns is 'yes'; allowed: true or false",
        "names.a": "a is 3; allowed: a non-empty text",
        "pace": "pace is 'fats'; allowed: slow, fast; did you mean 'fast'?",
        "loads[1]": "item 1 is -1; allowed: a finite number of at least 0",
        "speed": "speed is not a field of a journey; allowed: legs, loads, seats, returns, names, pace",
    }


@pytest.mark.parametrize(
    ("document", "path", "words"),
    [
        ([], "", "a journey is a list of 0; allowed: an object"),
        ({"legs": []}, "legs", "legs has 0 items; allowed: 1 to 3"),
        ({"legs": "x"}, "legs", "legs is 'x'; allowed: a list"),
        (
            {"legs": [{"to": "x", "length_m": 1}], "returns": True},
            "legs",
            "legs has 1 item; allowed: 2 where it returns",
        ),
        ({"legs": [ONE_LEG], "names": []}, "names", "names is a list of 0; allowed: an object"),
        (
            {"legs": [{"to": "x", "length_m": float("nan")}]},
            "legs[0].length_m",
            "length_m is nan; allowed: a finite number above 0",
        ),
    ],
)
def test_fault_names_field_value_and_what_is_allowed(document: Any, path: str, words: str) -> None:
    assert faults_of(document) == {path: words}


def test_faults_come_in_the_order_of_the_document() -> None:
    assert list(faults_of({"speed": 3, "pace": 1, "seats": 0})) == ["speed", "pace", "seats", "legs"]


@dataclass(frozen=True)
class Tour(Record):
    TITLE: ClassVar[str] = "a tour"
    JUDGES_PARTS: ClassVar[bool] = True

    days: Annotated[int, Number(least=1, whole=True)]
    guide: Annotated[str, String()]
    stops_m: Annotated[tuple[Annotated[float, Number(least=0)], ...], ItemCount(1)]
    journeys: Mapping[str, Journey] | None = None
    tours: tuple[Tour, ...] = ()

    def find_faults(self) -> Iterator[Fault]:
        stops_m = [] if self.stops_m is BAD else [stop_m for stop_m in self.stops_m if stop_m is not BAD]
        if stops_m != sorted(stops_m):
            yield Fault("stops_m", "stops_m goes back")
        if self.days is not BAD and self.guide is not BAD and len(self.guide) > self.days:
            yield Fault("guide", "guide is too long")


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ({"days": 0, "guide": "Ada", "stops_m": [3, 1]}, ["days", "stops_m"]),
        ({"days": 1, "guide": "Ada", "stops_m": [3, "x", 1]}, ["stops_m[1]", "stops_m", "guide"]),
        ({"days": 1, "guide": "Ada", "stops_m": []}, ["stops_m", "guide"]),
        ({"guide": "Ada", "stops_m": [3, 1], "x": 1}, ["x", "days", "stops_m"]),
        (
            {"days": 1, "guide": "A", "stops_m": "x", "tours": [5, {"days": 1, "guide": "Ada", "stops_m": [-1]}]},
            ["stops_m", "tours[0]", "tours[1].stops_m[0]", "tours[1].guide"],
        ),
        ([], [""]),
    ],
)
def test_faults_across_fields_come_with_those_of_others_where_parts_are_judged(document: Any, paths: list[str]) -> None:
    with pytest.raises(DocumentError) as refused:
        Tour.parse(document)
    assert [fault.path for fault in refused.value.faults] == paths


def test_part_that_wants_to_be_whole_is_judged_only_if_it_is() -> None:
    journeys = {"good": {"legs": [ONE_LEG], "returns": True}, "bad": {"legs": [{"to": "x"}], "returns": True}}
    with pytest.raises(DocumentError) as refused:
        Tour.parse({"days": 3, "guide": "Ada", "stops_m": [1], "journeys": journeys})
    assert [fault.path for fault in refused.value.faults] == ["journeys.bad.legs[0].length_m", "journeys.good.legs"]


def test_faults_within_another_document_have_its_path() -> None:
    faults: list[Fault] = []
    assert Leg.read({"to": "x", "length_m": -1}, "trip", 2, faults) is None
    assert [fault.path for fault in faults] == ["trip[2].length_m"]
    assert Leg.read(5, "", "leg", faults) is None
    assert (faults[1].path, faults[1].message) == ("leg", "a leg is 5; allowed: an object")


def test_schema_describes_what_is_read() -> None:
    schema = Journey.json_schema()
    good = {"legs": [{"to": "x", "length_m": 1.0}], "seats": None, "pace": "fast"}
    jsonschema.validate(good, schema)
    for wrong in ({}, {"legs": []}, {**good, "x": 1}, {**good, "pace": "?"}, {"legs": [{"to": "x", "length_m": 0}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
    assert schema["$defs"]["Leg"]["properties"]["length_m"]["description"] == "how far"


def test_fields_are_listed_with_their_words() -> None:
    fields = record_fields(Journey)
    assert (fields["legs"].record, fields["legs"].is_list, fields["legs"].is_required) == (Leg, True, True)
    assert (fields["seats"].kind, fields["seats"].default) == (Number(least=1, whole=True), None)
    length = record_fields(Leg)["length_m"]
    assert (length.words.label, length.words.unit, length.kind) == ("Length", "km", Number(above=0))


@dataclass(frozen=True)
class Wait(Record):
    longest_s: Unbounded
    seen: Unwritten[object] = None


def test_infinite_number_is_null_in_json_and_infinite_again_once_read() -> None:
    assert Wait(math.inf).to_dict() == {"longest_s": None}
    assert Wait.parse({"longest_s": None}) == Wait(math.inf)
    assert Wait.parse({"longest_s": 2.0}).to_dict() == {"longest_s": 2.0}


def test_what_one_process_keeps_is_neither_written_nor_described() -> None:
    assert Wait(1.0, seen=object()).to_dict() == {"longest_s": 1.0}
    assert Wait.json_schema()["properties"].keys() == {"longest_s"}


_SCHEDULES = st.builds(
    ScheduleSettings,
    policy=st.sampled_from(["klink", "fcfs"]),
    cycle_ms=st.floats(20, 500),
    history=st.integers(30, 1000),
    release_s=st.floats(0.001, 60),
)
_ADAPTATIONS = st.builds(AdaptationSettings, method=st.just("fixed"), load_factors=st.lists(st.floats(0, 1)).map(tuple))


@given(st.one_of(_SCHEDULES, _ADAPTATIONS))
def test_what_is_written_is_read_back(record: Record) -> None:
    assert type(record).parse(record.to_dict()) == record


@dataclass(frozen=True)
class Walk(Record):
    TITLE: ClassVar[str] = "a walk"

    kind: Literal["walk"]
    metres: Annotated[float, Number(above=0)]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        return f"on foot for {self.metres:g} m"


@dataclass(frozen=True)
class Ride(Record):
    TITLE: ClassVar[str] = "a ride"

    kind: Literal["ride"]
    line: Annotated[str, String()]


@dataclass(frozen=True)
class Way(Record):
    TITLE: ClassVar[str] = "a way"

    parts: Annotated[tuple[Annotated[Walk | Ride, Discriminator("kind")], ...], Field(alias="steps")]


def test_computed_words_are_written_and_not_read_back() -> None:
    walk = Walk("walk", 300.0)
    assert walk.to_dict() == {"kind": "walk", "metres": 300.0, "words": "on foot for 300 m"}
    assert Walk.parse({"kind": "walk", "metres": 300.0, "words": "by car"}) == walk
    assert "words" in Walk.json_schema(of_answer=True)["properties"]
    assert "words" not in Walk.json_schema()["properties"]


def test_record_of_a_union_is_read_by_its_tag_under_the_name_it_is_written_by() -> None:
    way = Way((Walk("walk", 1.0), Ride("ride", "7")))
    assert [part["kind"] for part in way.to_dict()["steps"]] == ["walk", "ride"]
    assert Way.parse(way.to_dict()) == way


@dataclass(frozen=True)
class Trip(Record):
    TITLE: ClassVar[str] = "a trip"
    JUDGES_PARTS: ClassVar[bool] = True

    start: Annotated[str, String(), Field(alias="from")]
    parts: tuple[Annotated[Walk | Ride, RecordOf({"walk": Walk, "ride": Ride}, "kind")], ...]


def test_parts_that_can_be_read_are_kept_beside_all_faults() -> None:
    faults: list[Fault] = []
    parts = [{"kind": "walk", "metres": 1.0}, {"kind": "ride"}, {"kind": "fly"}, 5, {}]
    journey = Trip.read_parts({"from": "", "parts": parts, "fare": 1}, "trips", 0, faults)
    assert journey.start is BAD and journey.parts == (Walk("walk", 1.0), BAD, BAD, BAD, BAD)
    assert [str(fault) for fault in faults] == [
        "trips[0].from: from is ''; allowed: a non-empty text",
        "trips[0].parts[1].line: line is missing; a ride needs it",
        "trips[0].parts[2].kind: kind is 'fly'; allowed: walk, ride",
        "trips[0].parts[3]: item 3 is 5; allowed: an object with kind",
        "trips[0].parts[4].kind: kind is missing; allowed: walk, ride",
        "trips[0].fare: fare is not a field of a trip; allowed: from, parts",
    ]


def test_document_that_is_no_object_has_no_parts() -> None:
    faults: list[Fault] = []
    assert Trip.read_parts([], "", "", faults) is BAD
    assert [str(fault) for fault in faults] == ["a trip is a list of 0; allowed: an object"]


def test_record_without_equality_of_its_own_equals_itself_alone() -> None:
    """An empty base would make all records of one class equal."""
    one, other = Node("a", 1.0), Node("a", 2.0)
    assert one == one
    assert one != other
    assert one != Node("a", 1.0)


@dataclass(frozen=True)
class _Titled(Record):
    name: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        return f"It is {self.name}"


@dataclass(frozen=True)
class _Pair(Record):
    first: _Titled
    second: _Titled


def test_words_of_a_record_that_stands_in_two_fields_are_not_read_back() -> None:
    pair = _Pair(_Titled("a"), _Titled("b"))
    assert pair.to_dict()["second"] == {"name": "b", "words": "It is b"}
    assert _Pair.parse(pair.to_dict()) == pair
