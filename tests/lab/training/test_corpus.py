"""``./sluice lab corpus``: the same bytes for a seed, every fault at once, nothing by halves."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import lab.training.corpus
from lab.__main__ import main
from lab.training import options
from lab.training.corpus import write_corpus


def test_corpus_and_card_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.jsonl.gz"
    assert main(["corpus", "--out", str(path), "--count", "12", "--seed", "7", "--processes", "1"]) == 0
    out, err = capsys.readouterr()
    card = json.loads(out)
    assert card == json.loads((tmp_path / "small.jsonl.gz.card.json").read_text())
    assert (card["kind"], card["seed"], card["count"]) == ("simulated", 7, 12)
    assert "12 of 12 traces" in err
    traces = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    assert card["succeeded"] == sum(trace["label"]["S"] for trace in traces)
    assert card["backpressure"] == sum(trace["label"]["RO"] for trace in traces)
    assert list(traces[0]) == ["query", "hosts", "placement", "seed", "label"]
    assert list(traces[0]["label"]) == ["T", "Lp", "Le", "R", "RO", "S", "crashed"]


@pytest.mark.process
def test_any_number_of_processes_writes_the_same_bytes(tmp_path: Path) -> None:
    alone, shared = tmp_path / "alone.jsonl.gz", tmp_path / "shared.jsonl.gz"
    assert write_corpus(alone, count=60, seed=3) == write_corpus(shared, count=60, seed=3, processes=2)
    assert alone.read_bytes() == shared.read_bytes()


def test_first_traces_do_not_depend_on_the_count(tmp_path: Path) -> None:
    few, more = tmp_path / "few.jsonl.gz", tmp_path / "more.jsonl.gz"
    write_corpus(few, count=3, seed=3)
    write_corpus(more, count=5, seed=3)
    assert gzip.decompress(more.read_bytes()).startswith(gzip.decompress(few.read_bytes()))


def test_every_wrong_argument_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--count", "0", "--seed", "-1", "--processes", "1.5", "--shapes", "linear,star", "--hardware", "cheap"]
    assert main(["corpus", *wrong, "--out", str(tmp_path / "missing" / "a.jsonl.gz")]) == 2
    faults = capsys.readouterr().err.splitlines()
    assert len(faults) == 6
    for words in ("--count is '0'", "--seed is '-1'", "--processes is '1.5'", "'star'", "'cheap'", "does not exist"):
        assert any(words in fault for fault in faults), words
    assert main(["corpus"]) == 2
    assert "--out is missing" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_corpus_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept.jsonl.gz"
    write_corpus(path, count=2, seed=1)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(lab.training.corpus, "trace_document", fail)
    with pytest.raises(OSError, match="disk full"):
        write_corpus(path, count=2, seed=2)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_training_refuses_a_folder_it_cannot_write_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert main(["weights", "--out", str(tmp_path / "file" / "weights"), "--processes", "0"]) == 2
    told = capsys.readouterr().err
    assert f"but {tmp_path / 'file'} is a file" in told and "--processes is '0'" in told
    monkeypatch.setattr(options.os, "access", lambda path, mode: path != tmp_path)  # root may write anywhere
    assert main(["weights", "--out", str(tmp_path / "new" / "weights")]) == 2
    assert f"but {tmp_path} cannot be written" in capsys.readouterr().err
