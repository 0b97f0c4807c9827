"""Training of the shipped weights: ``./sluice lab weights``; needs scikit-learn.

Writes ``costream.npz`` with its model card ``costream.json``. Members are fitted to a part of the corpus. Every group
of shapes is then left out in turn: what members that never saw it err by on it, and on the validation traces, says
from which distance on a residual is worth less than none, and how wide intervals are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np

from engine.arrays import FloatArray, IntArray
from engine.costream.features import TrainingDomain
from engine.costream.intervals import KINDS, SHORTAGES, calibrated_bounds, end_scale
from engine.costream.prediction import Ensemble
from engine.costream.residual import COSTS, Arrays, TrainingPoints
from engine.costream.summary import SUMMARY_COLUMNS
from engine.costream.weights import ModelCard, save_weights
from engine.errors import DocumentError, EngineError, Fault
from engine.query_graph.graph import OPERATOR_KINDS
from lab.training.boosted_trees import SKLEARN_MISSING, BoostingSettings, fit_members
from lab.training.dataset import TraceSet, read_corpus
from lab.training.evaluation import cost_errors, ensemble_answers
from lab.training.options import folder_option, print_faults, whole_option

__all__ = ["main", "train_ensemble"]

NAME = "costream"  # of the files written

# The corpus of the shipped weights, made by `./sluice lab corpus`: the last traces are for validation and test.
CORPUS_SEED = 1
CORPUS_COUNTS = {"training": 16_000, "validation": 3_000, "test": 1_000}

_FOLDER = Path("var") / NAME  # of what is made, unless it is said otherwise
_VALIDATION_SHARE = 0.2
_MIN_TRACES = 20  # with output, for training and for validation; fewer say nothing
_MIN_FAR = 50  # of a shape that is left out, far from the others
_POINTS = 512  # training points that are kept
_MAX_SEED = 2**31 - 1
_QUANTILE = 0.9  # of distances of validation traces: the unit
_BEGINS, _LENGTHS = (0.8, 1.0, 1.25, 1.5, 2.0, 3.0), (0.25, 0.5, 1.0, 2.0)  # of the shrinkage, in that unit


def main(arguments: Sequence[str]) -> int:
    """Train and write weights; returns 0, 1 without scikit-learn, 2 with every fault of arguments and corpora."""
    options, faults = _options(arguments)
    if faults:
        print("\n".join(f"sluice lab weights: {fault}" for fault in faults), file=sys.stderr)
        return 2
    if find_spec("sklearn") is None:
        print(f"sluice lab weights: {SKLEARN_MISSING}", file=sys.stderr)
        return 1
    try:
        training, validation, test = _trace_sets(options)
    except EngineError as error:
        print_faults("weights", error)
        return 2
    _say(f"{len(training):,} traces to train on, {len(validation):,} for validation")
    start = time.monotonic()
    ensemble = train_ensemble(training, validation, BoostingSettings(seed=options.seed), version=options.version)
    card = ensemble.card
    if test is not None:
        card = replace(card, errors={**card.errors, "test": cost_errors(ensemble_answers(ensemble, test), test)})
    path: Path = options.out / f"{NAME}.npz"
    options.out.mkdir(parents=True, exist_ok=True)
    card = save_weights(path, ensemble.arrays, card)
    _say(f"{path} and {path.with_suffix('.json').name} written after {time.monotonic() - start:.0f} s: {card.line}")
    _say(f"next: ./sluice lab evaluate --corpus FILE --weights {path}")
    print(json.dumps({"weights": str(path), "card": card.line, "errors": card.errors}, indent=1))
    return 0


def train_ensemble(
    training: TraceSet, validation: TraceSet, settings: BoostingSettings | None = None, *, version: str
) -> Ensemble:
    """Fit members, and calibrate shrinkage and intervals on what they did not see. The same input gives the same."""
    settings = settings or BoostingSettings()
    whole = _uncalibrated(training, validation, fit_members(training, settings), settings, version)
    held = [(whole, validation), *_left_out(whole, training, validation, settings)]
    shrinkage = np.array(_shrinkage(held[1:] or held), dtype=np.float32)
    folds = []
    for ensemble, traces in held:
        scores = Ensemble(ensemble.arrays | {"shrinkage": shrinkage}, whole.card).score(traces.facts)
        ok = traces.success
        folds.append((scores.kinds[ok], scores.errors(traces.targets)[ok], scores.spread[ok]))
    bounds = np.array(
        [_bounds([(kinds, e[:, i], spread[:, i]) for kinds, e, spread in folds]) for i in range(len(COSTS))]
    )
    arrays = whole.arrays | {"shrinkage": shrinkage, "bounds": bounds.astype(np.float32)}
    ensemble = Ensemble(arrays, replace(whole.card, calibrated=sum(len(kinds) for kinds, _, _ in folds)))
    errors_held = {"validation": cost_errors(ensemble_answers(ensemble, validation), validation)}
    return Ensemble(arrays, replace(ensemble.card, errors=errors_held))


def _bounds(folds: Sequence[tuple[IntArray, FloatArray, FloatArray]]) -> FloatArray:
    """Ends of errors of a cost by kind of run, of folds of kinds, errors and spreads.

    A shape that nobody trained on is as unlike the others as the least like of those that were left out: where the
    residual does not count, ends are as wide as that one needs.
    """
    bounds = calibrated_bounds(*(np.concatenate(parts) for parts in zip(*folds, strict=True)))
    scales = [1.0]
    for kinds, errors, spread in folds:
        far = kinds >= KINDS // 2
        if far.sum() >= _MIN_FAR:
            scales.append(end_scale(bounds[kinds[far]], errors[far], spread[far]))
    bounds[KINDS // 2 :] *= max(scales)
    return bounds


def _uncalibrated(
    training: TraceSet, validation: TraceSet, members: Arrays, settings: BoostingSettings, version: str
) -> Ensemble:
    """Members with training points, whose residual counts everywhere."""
    rng = np.random.default_rng(settings.seed)
    points = training.facts.summary[np.sort(rng.permutation(len(training))[:_POINTS])].astype(np.float32)
    unit = np.quantile(TrainingPoints(points.astype(np.float64)).distance(validation.facts.summary), _QUANTILE)
    own = {
        "points": points,
        "unit": np.array([max(float(unit), 1e-6)], dtype=np.float32),
        "shrinkage": np.array([1e9, 2e9], dtype=np.float32),
        "factors": np.ones(len(OPERATOR_KINDS), dtype=np.float32),
        "offsets": np.zeros((SHORTAGES, len(COSTS)), dtype=np.float32),
        "bounds": np.zeros((len(COSTS), KINDS, 2), dtype=np.float32),
    }
    origin = training.origin
    is_real = origin.kind == "real"
    card = ModelCard(
        version=version,
        members=settings.members,
        cost_trees=settings.cost_trees,
        vote_trees=settings.vote_trees,
        depth=settings.depth,
        points=len(points),
        simulated=0 if is_real else len(training),
        real=len(training) if is_real else 0,
        calibrated=0,
        simulator=origin.simulator,
        seed=origin.seed,
        parameters=origin.parameters,
        ranges=TrainingDomain.of_traces(training.traces).ranges,
    )
    return Ensemble({**members, **own}, card)


def _left_out(
    whole: Ensemble, training: TraceSet, validation: TraceSet, settings: BoostingSettings
) -> Iterator[tuple[Ensemble, TraceSet]]:
    """For each group of shapes members that never saw it, and its traces. Votes are those of the whole."""
    groups, others = _groups(training), _groups(validation)
    for group in np.unique(groups):
        seen, known, own = training.subset(groups != group), validation.subset(others != group), groups == group
        if min(seen.success.sum(), known.success.sum(), training.success[own].sum()) < _MIN_TRACES:
            continue
        members = whole.arrays | fit_members(seen, settings, votes=False)
        yield _uncalibrated(seen, known, members, settings, whole.card.version), training.subset(own)


def _groups(traces: TraceSet) -> IntArray:
    """Group of shapes of each trace: by joins, and by whether anything is aggregated."""
    joins, aggregations = (traces.facts.summary[:, SUMMARY_COLUMNS.index(name)] for name in ("joins", "aggregations"))
    return np.minimum(joins, 2).astype(np.int64) * 2 + (aggregations > 0)


def _shrinkage(held: Sequence[tuple[Ensemble, TraceSet]]) -> tuple[float, float]:
    """Distances between which the residual shrinks, by which errors on shapes that were left out are least."""
    parts = []
    for ensemble, traces in held:
        scores, ok = ensemble.score(traces.facts), traces.success
        residual = scores.centre - traces.facts.costs
        parts.append((scores.distance[ok], residual[ok], (traces.targets - traces.facts.costs)[ok]))
    distance, residual, true = (np.concatenate(values) for values in zip(*parts, strict=True))

    def loss(begin: float, length: float) -> float:
        weight = np.clip((begin + length - distance) / length, 0.0, 1.0)[:, None]
        return float(np.abs(true - weight * residual).mean())

    begin, length = min(product(_BEGINS, _LENGTHS), key=lambda pair: loss(*pair))
    return begin, begin + length


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _trace_sets(options: argparse.Namespace) -> tuple[TraceSet, TraceSet, TraceSet | None]:
    """Traces for training, validation and test."""
    test = read_corpus(options.test) if options.test else None
    if options.corpus is None:
        every = read_corpus(_own_corpus(options.processes))
        first, second = CORPUS_COUNTS["training"], CORPUS_COUNTS["training"] + CORPUS_COUNTS["validation"]
        parts = (range(first), range(first, second), range(second, len(every)))
        training, validation, rest = (every.subset(part) for part in parts)
        return training, validation, test or rest
    training = read_corpus(options.corpus)
    if options.validation:
        validation = read_corpus(options.validation)
    else:
        training, validation = training.split(_VALIDATION_SHARE)
    few = [part for part in (training, validation) if part.success.sum() < _MIN_TRACES]
    if few:
        name, count = few[0].origin.name, int(few[0].success.sum())
        message = f"{name} leaves {count} traces with output for a part; allowed: {_MIN_TRACES} or more"
        raise DocumentError([Fault("", message)], f"corpus {name}")
    return training, validation, test


def _own_corpus(processes: int) -> Path:
    """The corpus of the shipped weights, made unless it lies there already."""
    from engine.simulation.cohort import SIMULATOR_VERSION, TraceSettings
    from lab.training.corpus import write_corpus

    path, count = _FOLDER / "corpus.jsonl.gz", sum(CORPUS_COUNTS.values())
    _FOLDER.mkdir(parents=True, exist_ok=True)
    card = path.with_name(f"{path.name}.card.json")
    with contextlib.suppress(OSError, ValueError):
        made = json.loads(card.read_text())
        wanted = {
            "simulator_version": SIMULATOR_VERSION,
            "seed": CORPUS_SEED,
            "count": count,
            "parameters_sha256": TraceSettings().digest(),
        }
        if path.exists() and wanted.items() <= made.items():
            _say(f"{path} is there already")
            return path
    _say(f"making {path}: {count:,} traces of seed {CORPUS_SEED}")
    write_corpus(path, count=count, seed=CORPUS_SEED, processes=processes, is_loud=True)
    return path


def _options(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Options as values, and every fault."""
    parser = argparse.ArgumentParser(
        prog="sluice lab weights", description="Weights of the model that predicts queries that never ran."
    )
    parser.add_argument(
        "--corpus", help="labelled traces, .jsonl.gz (default: the corpus of the shipped weights is made)"
    )
    parser.add_argument("--validation", help="traces to calibrate on (default: a fifth of the corpus)")
    parser.add_argument("--test", help="traces for the errors on the card; neither trained on nor calibrated by")
    parser.add_argument("--seed", default="1", help="of the members' parts of the corpus (default 1)")
    parser.add_argument("--processes", default=str(os.cpu_count() or 1), help="processes (default: one per core)")
    parser.add_argument("--version", default="trained", help="name on the card (default trained)")
    parser.add_argument("--out", default=str(_FOLDER), help="folder to write to (default var/costream)")
    options = parser.parse_args(list(arguments))
    faults: list[str] = []
    options.seed = whole_option(options.seed, "--seed", 0, _MAX_SEED, faults)
    options.processes = whole_option(options.processes, "--processes", 1, 1024, faults)
    if not options.version:
        faults.append("--version is empty; allowed: a name")
    for name in ("corpus", "validation", "test"):
        text = getattr(options, name)
        if text is not None:
            setattr(options, name, Path(text))
            if not Path(text).is_file():
                faults.append(f"--{name} is {text!r}; there is no such file")
    if options.validation and not options.corpus:
        faults.append("--validation is given without --corpus; the own corpus has its own validation traces")
    options.out = folder_option(options.out, "out", faults)
    return options, faults
