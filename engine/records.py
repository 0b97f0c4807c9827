"""Records: a document, question, answer, setting or finding, described once as a frozen dataclass.

Types, bounds, units, labels, help and defaults stand on the fields. From them come reading with all faults at once,
JSON Schema, and through `record_fields` the forms, options and tables that show them. pydantic reads and writes;
constructing a record in the engine costs what a dataclass costs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from functools import partial
from math import inf, isfinite
from types import UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    Strict,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import ComputedFieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticOmit, core_schema

from engine.errors import DocumentError, Fault, join_path, key_name, suggestion, value_words
from engine.words import counted
from engine.words.sentences import sentence

__all__ = [
    "BAD",
    "Fact",
    "Flag",
    "ItemCount",
    "Moment",
    "Omitted",
    "Record",
    "RecordField",
    "RecordOf",
    "Sentence",
    "Unbounded",
    "Unwritten",
    "Words",
    "WrittenAs",
    "kind_schema",
    "record_fields",
]

_KEY: Final = "\0"  # stands for the field's name until its path is known
_SPLIT = re.compile(r"[^.\[\]]+")
#: Stands in the place of a value that is not allowed.
BAD: Final[Any] = object()
_IN_PARTS: Final = "in parts"  # context of a reading that keeps what could be read, `BAD` in place of the rest

#: true or false; nothing else counts as either.
Flag = Annotated[bool, Strict()]
#: A number that may be infinite; in JSON null stands for that.
Unbounded = Annotated[
    float,
    BeforeValidator(lambda value: inf if value is None else value),
    PlainSerializer(lambda value: value if isfinite(value) else None),
]


class _Unwritten:
    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema()

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        raise PydanticOmit


T = TypeVar("T")
#: A field with a default that an answer has in this process alone: neither written nor described.
Unwritten = Annotated[T, _Unwritten(), Field(exclude=True)]
#: A field that is left out of what is written where it is None.
Omitted = Annotated[T | None, Field(exclude_if=lambda value: value is None)]


@dataclass(frozen=True)
class WrittenAs:
    """A field that holds what was computed, and what was written of it once it is read back.

    It is written as a `kind`, which `words` makes of either.
    """

    kind: type
    words: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler.generate_schema(self.kind)
        write = core_schema.wrap_serializer_function_ser_schema(
            lambda value, write: write(self.words(value)), schema=schema
        )
        return core_schema.no_info_after_validator_function(lambda value: value, schema, serialization=write)


class Fact:
    """Result with a kind, names and numbers: as text it is the sentence or clause of that kind, to which it is equal.

    `kind` is that of `engine.words.sentences`: a subject and the kind within it.
    """

    __slots__ = ("kind", "names", "values")

    def __init__(self, kind: str, /, *names: object, **values: object) -> None:
        self.kind, self.names, self.values = kind, names, values

    def __str__(self) -> str:
        return sentence(self.kind, *self.names, **self.values)

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Fact | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


def _written(value: object) -> str:
    """A fact within what is passed on without a type."""
    if isinstance(value, Fact):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written")


#: A fact, or its words once they are read back.
Sentence = Annotated[Fact | str, WrittenAs(str, str)]
#: A moment, in JSON with its offset.
Moment = Annotated[datetime, PlainSerializer(datetime.isoformat)]


@dataclass(frozen=True)
class Words:
    """Label, help and unit of a field, for people.

    Attributes
    ----------
    help
        One line, for schemas, tables of documents and forms.
    label
        Name of the field in forms and tables.
    unit
        Unit in which people read it.
    scale
        By what the value is multiplied to be read in `unit`.
    choices
        Of a field with a few values: the label of each.
    """

    help: str = ""
    label: str = ""
    unit: str = ""
    scale: float = 1.0
    choices: Mapping[str, str] | None = None

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        made = handler(schema)
        return {**made, "description": self.help} if self.help else made


@dataclass(frozen=True)
class ItemCount:
    """Bounds of the length of a list in a record."""

    least: int = 0
    most: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        least = {"minItems": self.least} if self.least else {}
        return {**handler(schema), **least, **({} if self.most is None else {"maxItems": self.most})}

    def _check(self, value: Any, handler: Callable[[Any], Any], info: core_schema.ValidationInfo) -> Any:
        if info.context is _IN_PARTS:
            return _part(lambda: self._counted(value, handler))
        return self._counted(value, handler)

    def _counted(self, value: Any, handler: Callable[[Any], Any]) -> Any:
        if isinstance(value, (list, tuple)) and not self.least <= len(value) <= (
            inf if self.most is None else self.most
        ):
            allowed = f"at least {self.least:,}"
            if self.most is not None:
                allowed = f"{self.least:,} to {self.most:,}" if self.least else f"at most {self.most:,}"
            if self.least == self.most:
                allowed = f"exactly {self.least:,}"
            _refuse([Fault("", f"{_KEY} has {counted(len(value), 'item')}; allowed: {allowed}")], value)
        return handler(value)


def kind_schema(read: Callable[[Any, str, str | int, list[Fault]], Any]) -> CoreSchema:
    """Core schema of a kind of value with a reader of its own: ``read(value, parent, key, faults)``."""

    def check(value: Any, info: core_schema.ValidationInfo) -> Any:
        faults: list[Fault] = []
        kept = read(value, "", _KEY, faults)
        if faults and info.context is not _IN_PARTS:
            _refuse(faults, value)
        return kept

    return core_schema.with_info_plain_validator_function(check)


@dataclass(frozen=True)
class RecordOf:
    """Note on a field whose record is judged by itself, faults across its fields included, whatever stands beside it.

    Of several records it is the one that the field `tag` of the document names; a record may have that field or not.
    `title` stands for all of them in faults.
    """

    records: type[Record] | Mapping[str, type[Record]]
    tag: str = ""
    title: str = ""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        """The record as far as it can be read; its faults are added."""
        if isinstance(self.records, type):
            return self.records.read_parts(value, parent, key, faults)
        path = join_path(parent, key)
        if not isinstance(value, Mapping):
            allowed = "an object" if self.title else f"an object with {self.tag}"
            faults.append(Fault(path, f"{self.title or key_name(key)} is {value_words(value)}; allowed: {allowed}"))
            return BAD
        name, names = value.get(self.tag), list(self.records)
        if not isinstance(name, str) or name not in self.records:
            state = value_words(name) if self.title or self.tag in value else "missing"
            near = suggestion(name, names) if isinstance(name, str) else ""
            message = f"{self.tag} is {state}; allowed: {', '.join(names)}{near}"
            faults.append(Fault(join_path(path, self.tag), message))
            return BAD
        record = self.records[name]
        if self.tag not in record_fields(record):
            value = {name: item for name, item in value.items() if name != self.tag}
        return record.read_parts(value, parent, key, faults)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return kind_schema(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        if isinstance(self.records, type):
            return self.records.json_schema()
        forms = []
        for name, record in self.records.items():
            form = record.json_schema()
            form["properties"] = {self.tag: {"const": name}} | form["properties"]
            forms.append(form | {"required": [self.tag, *form.get("required", [])]})
        return {"oneOf": forms}


def _part(read: Callable[[], Any]) -> Any:
    """A part of a document as `read` makes it, `BAD` where that is refused."""
    try:
        return read()
    except ValidationError:
        return BAD


def _refuse(faults: Iterable[Fault], value: Any) -> None:
    """Refuse a value with faults whose paths begin at it.

    Raises
    ------
    ValidationError
        Always.
    """
    raise ValidationError.from_exception_data(
        "record",
        [
            InitErrorDetails(
                type=PydanticCustomError("fault", "{text}", {"text": fault.message}),
                loc=tuple(int(step) if step.isdecimal() else step for step in _SPLIT.findall(fault.path.lstrip(_KEY))),
                input=value,
            )
            for fault in faults
        ],
    )


@dataclass(frozen=True, eq=False)  # a record of arrays is equal to itself alone
class Record:
    """Base of every record: a frozen dataclass that is read from JSON and written to it.

    `TITLE` names it in faults. `find_faults` gives the faults across its fields, with paths that begin at the record.
    Where `JUDGES_PARTS` it is asked about a record with faults, too: fields and items that could not be read are `BAD`.
    A property with pydantic's `computed_field` is written, and not read back: words that follow from the fields.
    """

    TITLE: ClassVar[str] = "a record"
    JUDGES_PARTS: ClassVar[bool] = False
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    @classmethod
    def parse(cls, document: Any) -> Self:
        """Read a record; fields that are not given keep their defaults.

        Raises
        ------
        DocumentError
            With every fault: unknown and missing fields, values that are not allowed.
        """
        faults: list[Fault] = []
        record = cls.read(document, "", "", faults)
        if record is None:
            raise DocumentError(faults, cls.TITLE.removeprefix("a ").removeprefix("an "))
        return record

    @classmethod
    def read(cls, document: Any, parent: str, key: str | int, faults: list[Fault]) -> Self | None:
        """Read a record within another document: add its faults; None if there are any."""
        path = f"{parent}[{key}]" if isinstance(key, int) else f"{parent}.{key}".strip(".")
        try:
            record: Self = _adapter(cls).validate_python(document)
        except ValidationError as error:
            faults += [_fault(problem, path, key) for problem in error.errors(include_url=False)]
            if cls.JUDGES_PARTS:
                faults += _across(_adapter(cls).validate_python(document, context=_IN_PARTS), path)
            return None
        across = list(_across(record, path))
        faults += across
        return None if across else record

    @classmethod
    def read_parts(cls, document: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        """Read a record within another document, as far as it can be read: `BAD` stands for the parts with faults."""
        record = cls.read(document, parent, key, faults)
        if record is not None:
            return record
        return _adapter(cls).validate_python(document, context=_IN_PARTS) if cls.JUDGES_PARTS else BAD

    def to_dict(self) -> dict[str, Any]:
        """Document that `parse` reads."""
        adapter = _adapter(type(self))
        return adapter.dump_python(self, mode="json", by_alias=True, fallback=_written)  # type: ignore[no-any-return]

    @classmethod
    def json_schema(cls, ref_template: str = "#/$defs/{model}", *, of_answer: bool = False) -> JsonSchemaValue:
        """JSON Schema (draft 2020-12) of what `parse` reads, or of what `to_dict` writes."""
        mode: Literal["serialization", "validation"] = "serialization" if of_answer else "validation"
        return _adapter(cls).json_schema(ref_template=ref_template, mode=mode)

    def find_faults(self) -> Iterator[Fault]:
        """Faults across fields that are each right by themselves, or `BAD` where `JUDGES_PARTS`."""
        yield from ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner: Any = handler.resolve_ref_schema(handler(source))
        ref = inner.get("ref")  # of the whole: a second field of this record refers to the check as well
        own = {name: item for name, item in inner.items() if name != "ref"}
        return core_schema.with_info_wrap_validator_function(cls._check, own, ref=ref)

    @classmethod
    def _check(cls, value: Any, handler: Callable[[Any], Any], info: core_schema.ValidationInfo) -> Any:
        if isinstance(value, cls):
            return value
        if info.context is _IN_PARTS:
            return cls._read_parts(value)
        if not isinstance(value, Mapping):
            _refuse([Fault("", f"{cls.TITLE} is {value_words(value)}; allowed: an object")], value)
        try:
            computed = _computed(cls)
            return handler({name: item for name, item in value.items() if name not in computed} if computed else value)
        except ValidationError as error:
            raise ValidationError.from_exception_data("record", list(cls._named(error, value))) from None

    @classmethod
    def _read_parts(cls, document: Any) -> Any:
        """The record with `BAD` in place of what is missing or not allowed; `BAD` if it does not judge parts."""
        if not cls.JUDGES_PARTS:
            return _part(lambda: _adapter(cls).validate_python(document))
        if not isinstance(document, Mapping):
            return BAD
        kept = {}
        for name, field in record_fields(cls).items():
            if field.key in document:
                read = _field_adapters(cls)[name].validate_python
                kept[name] = _part(partial(read, document[field.key], context=_IN_PARTS))
            elif field.is_required:
                kept[name] = BAD
        return cls(**kept)

    @classmethod
    def _named(cls, error: ValidationError, document: Mapping[Any, Any]) -> Iterator[InitErrorDetails]:
        """The problems of a reading, in the order of the document; of this record's own fields in its words."""
        names = [field.key for field in record_fields(cls).values()]
        places = {name: place for place, name in enumerate(document)}
        problems = error.errors(include_url=False)
        for problem in sorted(problems, key=lambda problem: places.get(problem["loc"][0], len(places))):
            name, kind = str(problem["loc"][-1]), problem["type"]
            text = None
            if len(problem["loc"]) == 1 and kind == "missing":
                text = f"{name} is missing; {cls.TITLE} needs it"
            elif len(problem["loc"]) == 1 and kind == "unexpected_keyword_argument":
                near = suggestion(name, names) or f"; allowed: {', '.join(names)}"
                text = f"{name} is not a field of {cls.TITLE}{near}"
            elif kind == "fault":
                text = problem["ctx"]["text"]
            else:
                text = f"{_KEY} is {value_words(problem['input'])}; allowed: {_allowed(problem)}"
            yield InitErrorDetails(
                type=PydanticCustomError("fault", "{text}", {"text": text}), loc=problem["loc"], input=problem["input"]
            )


_ALLOWED = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "mapping_type": "an object",
    "list_type": "a list",
    "tuple_type": "a list",
    "string_type": "a text",
    "float_type": "a finite number",
    "float_parsing": "a finite number",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
}


def _allowed(problem: Any) -> str:
    """Values allowed in the place of one that pydantic itself refused."""
    if problem["type"] in ("literal_error", "enum", "union_tag_invalid"):
        expected = problem["ctx"].get("expected") or problem["ctx"].get("expected_tags", "")
        values = [quoted or plain for quoted, plain in re.findall(r"'([^']*)'|(-?\d+)", expected)]
        near = suggestion(problem["input"], values) if isinstance(problem["input"], str) else ""
        return ", ".join(values) + near
    return _ALLOWED.get(problem["type"]) or problem["msg"]


def _fault(problem: Any, path: str, key: str | int) -> Fault:
    for step in problem["loc"]:
        path = f"{path}[{step}]" if isinstance(step, int) else f"{path}.{step}".strip(".")
    last = problem["loc"][-1] if problem["loc"] else key
    return Fault(path, problem["ctx"]["text"].replace(_KEY, key_name(last)))


def _across(value: Any, path: str) -> Iterator[Fault]:
    """Faults across fields of the records in a value, all of them once each field is right by itself."""
    if isinstance(value, Record):
        for fault in value.find_faults():
            yield Fault(fault.path if not path else join_path(path, fault.path) if fault.path else path, fault.message)
        for name in _checked(type(value)):
            yield from _across(getattr(value, name), join_path(path, name))
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _across(item, join_path(path, i))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _across(item, join_path(path, str(name)))


_CHECKED: dict[type, tuple[str, ...]] = {}


def _checked(cls: type[Record]) -> tuple[str, ...]:
    """Names of the fields of a record that may hold records with faults across theirs."""
    if cls not in _CHECKED:
        _CHECKED[cls] = ()  # while those within are looked at
        hints = get_type_hints(cls, include_extras=True)
        _CHECKED[cls] = tuple(
            item.name for item in fields(cls) if any(map(_is_checked, _types(hints[item.name], alone=False)))
        )
    return _CHECKED[cls]


def _is_checked(kind: Any) -> bool:
    if not isinstance(kind, type) or not issubclass(kind, Record):
        return False
    is_own = kind.find_faults is not Record.find_faults
    return is_own or bool(_checked(kind)) or any(map(_is_checked, kind.__subclasses__()))


_COMPUTED: dict[type, frozenset[str]] = {}


def _computed(cls: type) -> frozenset[str]:
    """Names of what a record writes and does not read."""
    if cls in _COMPUTED:
        return _COMPUTED[cls]
    members = {name: item for base in reversed(cls.__mro__) for name, item in vars(base).items()}
    _COMPUTED[cls] = frozenset(
        name for name, item in members.items() if isinstance(getattr(item, "decorator_info", None), ComputedFieldInfo)
    )
    return _COMPUTED[cls]


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(cls: type) -> TypeAdapter[Any]:
    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]


_FIELD_ADAPTERS: dict[type, dict[str, TypeAdapter[Any]]] = {}


def _field_adapters(cls: type[Record]) -> dict[str, TypeAdapter[Any]]:
    """Readers of the fields of a record, each by itself."""
    if cls not in _FIELD_ADAPTERS:
        hints = get_type_hints(cls, include_extras=True)
        _FIELD_ADAPTERS[cls] = {field.name: TypeAdapter(_without_alias(hints[field.name])) for field in fields(cls)}
    return _FIELD_ADAPTERS[cls]


def _without_alias(hint: Any) -> Any:
    notes = [note for note in getattr(hint, "__metadata__", ()) if not getattr(note, "alias", None)]
    hint = hint.__origin__ if get_origin(hint) is Annotated else hint
    return Annotated[(hint, *notes)] if notes else hint


@dataclass(frozen=True)
class RecordField:
    """A field of a record as forms, options and tables show it.

    `key` is its name in documents; `kind` what bounds its value, None where nothing; `record` the record it holds, or
    with `is_list` a list of.
    """

    name: str
    key: str
    words: Words
    kind: Any
    default: Any
    record: type[Record] | None
    is_list: bool

    @property
    def is_required(self) -> bool:
        return self.default is MISSING


def record_fields(cls: type[Record]) -> dict[str, RecordField]:
    """Fields of a record by name, in their order."""
    if cls not in _FIELDS:
        _FIELDS[cls] = _listed(cls)
    return _FIELDS[cls]


_FIELDS: dict[type, dict[str, RecordField]] = {}


def _listed(cls: type[Record]) -> dict[str, RecordField]:
    assert is_dataclass(cls)
    hints = get_type_hints(cls, include_extras=True)
    made = {}
    for field in fields(cls):
        types, notes = list(_types(hints[field.name])), list(_notes(hints[field.name]))
        made[field.name] = RecordField(
            name=field.name,
            key=next((note.alias for note in notes if getattr(note, "alias", None)), field.name),
            words=next((note for note in notes if isinstance(note, Words)), Words()),
            kind=next((note for note in notes if hasattr(note, "read")), None),
            default=field.default_factory() if field.default_factory is not MISSING else field.default,
            record=next((kind for kind in types if isinstance(kind, type) and issubclass(kind, Record)), None),
            is_list=any(get_origin(kind) in (tuple, list) for kind in types),
        )
    return made


def _types(hint: Any, *, alone: bool = True) -> Iterator[Any]:
    """A type and those within it, without what is noted on them; with or without records that judge themselves."""
    if get_origin(hint) is Annotated:
        if not alone and any(isinstance(note, RecordOf) for note in hint.__metadata__):
            return
        hint = hint.__origin__
    yield hint
    for inner in get_args(hint):
        yield from _types(inner, alone=alone)


def _notes(hint: Any) -> Iterator[Any]:
    """Notes on a type, and on what it is beside None."""
    yield from getattr(hint, "__metadata__", ())
    hint = hint.__origin__ if get_origin(hint) is Annotated else hint
    if get_origin(hint) in (Union, UnionType):
        for inner in get_args(hint):
            yield from _notes(inner)
