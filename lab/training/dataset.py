"""Corpora as training and evaluation need them: labelled traces, with what the fluid says of them and their origin.

A corpus is a file of JSON lines, compressed (``.jsonl.gz``) or not. Its card ``FILE.card.json``, where there is one
beside it, says what made it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from engine.arrays import FloatArray, IntArray
from engine.costream.documents import read_trace
from engine.costream.summary import FluidFacts, facts_of
from engine.errors import DocumentError, Fault, join_path, value_words
from engine.kinds import Anything, Number, String
from engine.query_graph.graph import CostTrace
from engine.records import Record, record_fields
from lab.training.batch import EncodedTrace, GraphBatch, collate, encode

__all__ = ["CorpusOrigin", "TraceSet", "read_corpus"]

_MAX_FAULTS = 50  # named; of a file that is no corpus every line is wrong
_MAX_BYTES = 2 * 2**30  # of the lines; a corpus of a million traces has one

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CorpusOrigin:
    """Origin of a corpus, as its card says it.

    Attributes
    ----------
    name, sha256
        Of the file.
    kind
        ``simulated`` or ``real``; a file without a card counts as simulated.
    simulator
        Version of the simulator in words.
    seed
        None where no card says it.
    parameters
        Hash of what the simulator was given; of the file where no card says it.
    """

    name: str
    sha256: str
    kind: str
    simulator: str
    seed: int | None
    parameters: str


@dataclass(frozen=True)
class TraceSet:
    """n labelled traces.

    Attributes
    ----------
    origin
        Where they are from.
    traces
        As read.
    facts
        What is known of them before anything learned.
    """

    origin: CorpusOrigin
    traces: tuple[CostTrace, ...]
    facts: FluidFacts

    def __len__(self) -> int:
        return len(self.traces)

    @cached_property
    def targets(self) -> FloatArray:
        """ln of throughput (tuples/s), processing and end-to-end latency (s), (n, 3); NaN where no tuple arrived."""
        labels = [trace.label for trace in self.traces]
        rows = [
            (label.throughput_eps, label.processing_latency_s, label.end_to_end_latency_s) if label else (None,) * 3
            for label in labels
        ]
        return np.log(np.array(rows, dtype=np.float64))

    @cached_property
    def success(self) -> BoolArray:
        """Whether a tuple arrived, (n,)."""
        return np.array([bool(trace.label and trace.label.success) for trace in self.traces])

    @cached_property
    def backpressure(self) -> BoolArray:
        """Whether sources were held back, (n,)."""
        return np.array([bool(trace.label and trace.label.backpressure) for trace in self.traces])

    @cached_property
    def encoded(self) -> tuple[EncodedTrace, ...]:
        """The traces as the networks take them."""
        return tuple(encode(t.graph, t.hosts, t.placement) for t in self.traces)

    def subset(self, rows: Sequence[int] | IntArray | BoolArray) -> TraceSet:
        """Traces by index, or by a mask of length n."""
        index = np.arange(len(self))[np.asarray(rows)]
        return replace(self, traces=tuple(self.traces[i] for i in index), facts=self.facts.take(index))

    def split(self, share: float, seed: int = 0) -> tuple[TraceSet, TraceSet]:
        """Two random parts, of which the second has `share` of the traces."""
        order = np.random.default_rng(seed).permutation(len(self))
        second = max(1, round(share * len(self)))
        return self.subset(np.sort(order[second:])), self.subset(np.sort(order[:second]))

    def batches(self, size: int, form: str) -> Iterator[GraphBatch]:
        """All traces in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield collate(self.encoded[start : start + size], form)

    @classmethod
    def of_traces(cls, origin: CorpusOrigin, traces: Sequence[CostTrace]) -> TraceSet:
        """Labelled traces with their facts."""
        facts = [facts_of(trace.graph, trace.hosts, np.array([trace.placement])) for trace in traces]
        return cls(origin, tuple(traces), FluidFacts.joined(facts))


def read_corpus(path: Path) -> TraceSet:
    """Read a corpus, and the card beside it.

    Raises
    ------
    DocumentError
        With every fault of the lines (the first fifty), named by line and path: JSON that is broken, what `read_trace`
        refuses, labels that are missing or cannot be learned from, a card of another file.
    """
    faults: list[Fault] = []
    data = _content(path, faults)
    traces = [trace for trace in _traces(data, faults) if trace is not None]
    if not traces and not faults:
        faults.append(Fault("", f"{path.name} holds no trace; allowed: one or more"))
    origin = _origin(path, hashlib.sha256(data).hexdigest(), faults)
    if faults:
        raise DocumentError(faults, f"corpus {path.name}")
    return TraceSet.of_traces(origin, traces)


def _content(path: Path, faults: list[Fault]) -> bytes:
    """The file as it is; the hash of a card is that of the compressed file."""
    try:
        return path.read_bytes()
    except OSError as error:
        faults.append(Fault("", f"{path} cannot be read: {error.strerror}"))
        return b""


def _traces(data: bytes, faults: list[Fault]) -> Iterator[CostTrace | None]:
    for number, line in enumerate(_lines(data, faults), start=1):
        if len(faults) >= _MAX_FAULTS:
            faults.append(Fault(f"line {number}", "reading ended here: too many faults"))
            return
        if line.strip():
            yield _trace(line, f"line {number}", faults)


def _lines(data: bytes, faults: list[Fault]) -> list[bytes]:
    if data[:2] == b"\x1f\x8b":
        try:
            data = _unpacked(data)
        except (EOFError, OSError, zlib.error, ValueError) as error:
            faults.append(Fault("", f"the file cannot be unpacked: {error}"))
            return []
    return data.splitlines()


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    text = unpacker.decompress(data, _MAX_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError(f"it has more than {_MAX_BYTES:,} bytes")
    if not unpacker.eof:
        raise EOFError("it ends too early")
    return text if not unpacker.unused_data else gzip.decompress(data)


def _trace(line: bytes, where: str, faults: list[Fault]) -> CostTrace | None:
    try:
        document = json.loads(line, parse_constant=_refuse_constant)
    except ValueError as error:
        faults.append(Fault(where, f"the line is not JSON: {error}"))
        return None
    try:
        trace = read_trace(document, where)
    except DocumentError as error:
        faults.extend(error.faults)
        return None
    path = join_path(where, "label")
    label = trace.label
    if label is None:
        faults.append(Fault(path, "label is missing; training and evaluation need the costs of every trace"))
        return None
    for name, value in (
        ("T", label.throughput_eps),
        ("Lp", label.processing_latency_s),
        ("Le", label.end_to_end_latency_s),
    ):
        if value == 0:
            faults.append(Fault(join_path(path, name), f"{name} is 0; allowed where S is 1: above 0"))
    return trace


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


@dataclass(frozen=True, kw_only=True)
class _Card(Record):
    TITLE: ClassVar[str] = "a corpus card"

    kind: Literal["simulated", "real"]
    simulator_version: Annotated[object, Anything()] = "not stated"
    seed: Annotated[int | None, Number(least=0, whole=True)] = None
    parameters_sha256: Annotated[str | None, String()] = None
    sha256: Annotated[str, String()]


def _origin(path: Path, sha256: str, faults: list[Fault]) -> CorpusOrigin:
    card = path.with_name(f"{path.name}.card.json")
    if not card.exists():
        return CorpusOrigin(path.name, sha256, "simulated", f"of {path.name}", None, sha256)
    try:
        document = json.loads(card.read_text())
    except (OSError, ValueError) as error:
        faults.append(Fault("card", f"{card.name} cannot be read: {error}"))
        document = {}
    known = {name: document[name] for name in record_fields(_Card) if name in document}
    read = _Card.read(known, "", "card", faults) if document else None
    if faults or read is None:
        return CorpusOrigin(path.name, sha256, "simulated", "", None, sha256)
    if read.sha256 != sha256:
        message = f"sha256 is {value_words(read.sha256)}, the file has {sha256}: the card is of another corpus"
        faults.append(Fault("card.sha256", message))
    return CorpusOrigin(
        path.name, sha256, read.kind, str(read.simulator_version), read.seed, read.parameters_sha256 or sha256
    )
