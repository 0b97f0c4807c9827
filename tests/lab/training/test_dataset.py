"""Corpora: what is read of them, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import DocumentError
from lab.training.dataset import read_corpus
from lab.training.network import CostNetwork, initial_parameters
from tests.engine.costream.ensembles import trace_document
from tests.lab.training.corpora import write_lines


def changed(**changes: Any) -> str:
    return json.dumps(trace_document() | changes)


def faults_of(path: Path) -> list[str]:
    with pytest.raises(DocumentError) as refusal:
        read_corpus(path)
    return [str(fault) for fault in refusal.value.faults]


FAILED = {"T": 0, "Lp": 0, "Le": 0, "R": 250, "RO": 1, "S": 0}


def test_corpus_is_read_with_costs_in_seconds_and_without_those_of_failed_runs(tmp_path: Path) -> None:
    traces = read_corpus(write_lines(tmp_path / "two.jsonl.gz", [changed(), changed(label=FAILED)]))
    assert np.exp(traces.targets[0]).tolist() == pytest.approx([8.0, 4.1, 4.2])
    assert np.isnan(traces.targets[1]).all()
    assert traces.success.tolist() == [True, False]
    assert traces.backpressure.tolist() == [False, True]
    assert traces.facts.joins.tolist() == [1, 1]


def test_lines_that_are_not_compressed_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "plain.jsonl"
    path.write_text(f"{changed()}\n\n{changed()}\n")
    assert len(read_corpus(path)) == 2


def test_every_fault_is_named_with_its_line(tmp_path: Path) -> None:
    lines = [
        changed(),
        "{",
        changed(placement=[0, 1, 0, 2, 3, 9]),
        json.dumps({key: value for key, value in trace_document().items() if key != "label"}),
        changed(label=trace_document()["label"] | {"T": 0}),
        changed().replace('"T": 8.0', '"T": NaN'),
    ]
    faults = faults_of(write_lines(tmp_path / "bad.jsonl.gz", lines))
    assert [fault.split(":")[0] for fault in faults] == [
        "line 2", "line 3.placement[5]", "line 4.label", "line 5.label.T", "line 6",
    ]  # fmt: skip


def test_file_of_faults_is_not_read_to_its_end(tmp_path: Path) -> None:
    faults = faults_of(write_lines(tmp_path / "bad.jsonl.gz", ["[]"] * 5000))
    assert len(faults) < 100
    assert "reading ended here" in faults[-1]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no trace"),
        (gzip.compress(changed().encode())[:-20], "cannot be unpacked"),
        (b"\x1f\x8b\x00\x00garbage", "cannot be unpacked"),
    ],
    ids=["empty", "cut off", "garbage"],
)
def test_file_without_traces_or_cut_off_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(data)
    assert words in faults_of(path)[0]


def test_missing_file_is_a_fault(tmp_path: Path) -> None:
    assert "cannot be read" in faults_of(tmp_path / "none.jsonl.gz")[0]


def test_origin_comes_from_the_card_and_a_card_of_another_file_is_refused(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "own.jsonl.gz", [changed()])
    assert read_corpus(path).origin.seed is None
    card = {
        "kind": "simulated",
        "simulator_version": 3,
        "seed": 5,
        "parameters_sha256": "abc",
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    (tmp_path / "own.jsonl.gz.card.json").write_text(json.dumps(card))
    origin = read_corpus(path).origin
    assert (origin.simulator, origin.seed, origin.parameters) == ("3", 5, "abc")
    write_lines(path, [changed(), changed()])
    assert "the card is of another corpus" in faults_of(path)[0]


def test_split_keeps_every_trace_once_and_batches_keep_their_order(tmp_path: Path) -> None:
    lines = [changed(placement=[0, 0, 0, 0, 0, host % 4]) for host in range(20)]
    traces = read_corpus(write_lines(tmp_path / "many.jsonl.gz", lines))
    first, second = traces.split(0.25)
    assert (len(first), len(second)) == (15, 5)
    assert {id(trace) for part in (first, second) for trace in part.traces} == {id(trace) for trace in traces.traces}
    network = CostNetwork(initial_parameters("recommended", 8))
    parts = [network.evaluate(batch) for batch in traces.batches(7, "recommended")]
    (whole,) = (network.evaluate(batch) for batch in traces.batches(20, "recommended"))
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=1e-5)
