"""Corpus of labelled traces by the cohort simulation: ``./sluice lab corpus --out FILE``.

JSON lines, compressed; the same seed gives the same bytes with any number of processes. A card beside the file
(``FILE.card.json``) says what made it. Progress goes to standard error, the card to standard output.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import itertools
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from engine.simulation.cohort import SIMULATOR_VERSION, SimulatedTrace, TraceSettings, simulate_trace, trace_seed
from engine.simulation.cohort_queries import PAPER_RANGES, QUERY_SHAPES, TRAINING_SHAPES
from engine.words import counted
from lab.simulation.cohort_shapes import UNSEEN_RANGES
from lab.training.options import whole_option
from lab.training.traces import trace_document

__all__ = ["corpus_traces", "main", "output_path", "write_corpus"]

_CHUNK = 50  # traces a process makes at a time
_MAX_COUNT, _MAX_SEED, _MAX_PROCESSES = 10_000_000, 2**53 - 1, 1024
_RANGES = {"paper": PAPER_RANGES, "unseen": UNSEEN_RANGES}


def main(arguments: Sequence[str]) -> int:
    """Write a corpus; returns 0, 1 where the disk refuses, or 2 with every fault of the arguments."""
    parser = argparse.ArgumentParser(
        prog="sluice lab corpus", description="Labelled traces of simulated runs, for training and evaluation."
    )
    parser.add_argument("--out", help="file to write, ending in .jsonl.gz; its card is written beside it")
    parser.add_argument("--count", default="20000", help="number of traces (default 20000)")
    parser.add_argument("--seed", default="1", help="seed of the corpus (default 1)")
    parser.add_argument("--processes", default=str(os.cpu_count() or 1), help="processes (default: one per core)")
    parser.add_argument(
        "--shapes", default="", help=f"shapes of queries, drawn evenly (default the paper's shares of {_names()})"
    )
    parser.add_argument(
        "--hardware", default="paper", help="paper: the values of training; unseen: values between them (default paper)"
    )
    options = parser.parse_args(list(arguments))
    faults: list[str] = []
    count = whole_option(options.count, "--count", 1, _MAX_COUNT, faults)
    seed = whole_option(options.seed, "--seed", 0, _MAX_SEED, faults)
    processes = whole_option(options.processes, "--processes", 1, _MAX_PROCESSES, faults)
    path = output_path(options.out, faults)
    shapes = _shapes(options.shapes, faults)
    if options.hardware not in _RANGES:
        faults.append(f"--hardware is {options.hardware!r}; allowed: {', '.join(_RANGES)}")
    if faults:
        print("\n".join(f"sluice lab corpus: {fault}" for fault in faults), file=sys.stderr)
        return 2
    settings = TraceSettings(shapes=shapes, ranges=_RANGES[options.hardware])
    try:
        card = write_corpus(path, count=count, seed=seed, settings=settings, processes=processes, is_loud=True)
    except OSError as error:
        print(f"\nsluice lab corpus: {path} could not be written: {error}", file=sys.stderr)
        return 1
    print(json.dumps(card))
    return 0


def write_corpus(
    path: Path,
    *,
    count: int,
    seed: int,
    settings: TraceSettings | None = None,
    processes: int = 1,
    is_loud: bool = False,
) -> dict[str, Any]:
    """Write `count` traces to `path` and their card beside it; returns the card.

    Both appear complete or not at all: they are written under other names first, the card last.
    """
    settings = settings or TraceSettings()
    card_path = path.with_name(f"{path.name}.card.json")
    fresh, fresh_card = (file.with_name(f".{file.name}.new") for file in (path, card_path))
    tally: Counter[str] = Counter()
    begin, done = time.monotonic(), 0
    try:
        with fresh.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            for lines, labels in _chunks(count, seed, settings, processes):
                packed.write(lines)
                tally.update(labels)
                done = min(done + _CHUNK, count)
                if is_loud:
                    _show_progress(done, count, time.monotonic() - begin)
        card = {
            "kind": "simulated",
            "simulator_version": SIMULATOR_VERSION,
            "seed": seed,
            "parameters_sha256": settings.digest(),
            "count": count,
            "succeeded": tally["succeeded"],
            "backpressure": tally["backpressure"],
            "crashed": tally["crashed"],
            "operators": tally["operators"],
            "sha256": _file_digest(fresh),
        }
        fresh_card.write_text(json.dumps(card, indent=2) + "\n")
        fresh.replace(path)
        fresh_card.replace(card_path)
    finally:
        for rest in (fresh, fresh_card):
            with contextlib.suppress(OSError):
                rest.unlink()
    return card


def corpus_traces(
    count: int, seed: int, settings: TraceSettings | None = None, *, first: int = 0
) -> Iterator[SimulatedTrace]:
    """Labelled traces of a corpus from its trace `first` on, made in this process."""
    settings = settings or TraceSettings()
    for index in range(first, first + count):
        yield simulate_trace(trace_seed(seed, index), settings)


def _chunks(count: int, seed: int, settings: TraceSettings, processes: int) -> Iterator[tuple[bytes, Counter[str]]]:
    starts = range(0, count, _CHUNK)
    sizes = [min(_CHUNK, count - start) for start in starts]
    if processes == 1 or len(starts) == 1:
        yield from map(_chunk, starts, sizes, itertools.repeat(seed), itertools.repeat(settings))
        return
    _chunk(0, 1, seed, settings)  # compiles the kernel once, for all
    with ProcessPoolExecutor(min(processes, len(starts)), multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_chunk, starts, sizes, itertools.repeat(seed), itertools.repeat(settings))


def _chunk(first: int, count: int, seed: int, settings: TraceSettings) -> tuple[bytes, Counter[str]]:
    """Lines of some traces, and how many of them succeeded and had back-pressure."""
    lines, tally = [], Counter[str]()
    for simulated in corpus_traces(count, seed, settings, first=first):
        document = trace_document(simulated)
        lines.append(json.dumps(document, separators=(",", ":")))
        tally["succeeded"] += document["label"]["S"]
        tally["backpressure"] += document["label"]["RO"]
        tally["crashed"] += document["label"]["crashed"]
        tally["operators"] += len(document["placement"])
    return ("\n".join(lines) + "\n").encode(), tally


def _show_progress(done: int, count: int, seconds: float) -> None:
    rate = done / max(seconds, 1e-9)
    end = "\n" if done == count else ""
    print(f"\r{done} of {counted(count, 'trace')}, {rate:.0f}/s", end=end, file=sys.stderr, flush=True)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _names() -> str:
    return ", ".join(TRAINING_SHAPES)


def output_path(text: str | None, faults: list[str]) -> Path:
    """File that a command is to write; what keeps it from that is added to `faults`."""
    path = Path(text or "corpus.jsonl.gz")
    if not text:
        faults.append("--out is missing; allowed: a file that ends in .jsonl.gz")
    elif not text.endswith(".jsonl.gz") or path.name.startswith("."):
        faults.append(f"--out is {text!r}; allowed: a file that ends in .jsonl.gz")
    elif path.is_dir():
        faults.append(f"--out is {text!r}, a folder; allowed: a file")
    elif not path.parent.is_dir():
        faults.append(f"--out is {text!r}; its folder does not exist")
    elif not os.access(path.parent, os.W_OK):
        faults.append(f"--out is {text!r}; its folder cannot be written")
    return path


def _shapes(text: str, faults: list[str]) -> dict[str, float]:
    if not text:
        return dict(TRAINING_SHAPES)
    shapes = {name.strip(): 1.0 for name in text.split(",")}
    allowed = ", ".join(QUERY_SHAPES)
    faults += [
        f"--shapes names {name!r}; allowed, separated by commas: {allowed}"
        for name in shapes
        if name not in QUERY_SHAPES
    ]
    return shapes
