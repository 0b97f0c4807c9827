"""Training of an ensemble: ``./sluice lab weights --corpus FILE``; needs PyTorch.

Writes ``costream.npz`` with its model card ``costream.json`` and the learning curves ``costream.curves.csv``. Progress
goes to standard error, the card's errors on the validation traces as JSON to standard output.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.costream.batch import FORMS
from engine.costream.features import TrainingDomain
from engine.costream.network import CostNetwork
from engine.costream.prediction import COSTS, Ensemble, ensemble_bounds, interval_scale
from engine.costream.weights import ModelCard, save_weights
from engine.errors import DocumentError, EngineError, Fault
from engine.files import replace_file
from lab.training.dataset import TraceSet, read_corpus
from lab.training.evaluation import cost_errors, evaluate_networks
from lab.training.options import folder_option, print_faults, whole_option

if TYPE_CHECKING:
    from lab.training.fit import EpochRecord, FitSettings, FittedMember

__all__ = ["TORCH_MISSING", "TrainedEnsemble", "calibrated_scale", "fit_members", "main", "train_ensemble"]

TORCH_MISSING = (
    "PyTorch is not installed, and training needs it; this installs it: "
    ".venv/bin/python -m pip install -r lab/requirements.txt"
)

NAME = "costream"  # of the files written

# The corpus of the shipped weights, made by `./sluice lab corpus`: the last traces are for validation and test.
CORPUS_SEED = 1
CORPUS_COUNTS = {"training": 36_000, "validation": 2_000, "test": 2_000}

_FOLDER = Path("var") / NAME  # of what is made, unless it is said otherwise
_VALIDATION_SHARE = 0.1
_MIN_TRACES = 20  # with output, for training and for validation; fewer say nothing
_MAX_SEEDS, _MAX_SEED, _MAX_EPOCHS = 9, 2**31 - 1, 1000


@dataclass(frozen=True)
class TrainedEnsemble:
    """Fitted members in the order of their seeds, and the card without the archive's hash."""

    members: tuple[FittedMember, ...]
    card: ModelCard

    @property
    def ensemble(self) -> Ensemble:
        """Ready to predict."""
        return Ensemble([member.parameters for member in self.members], self.card)


def main(arguments: Sequence[str]) -> int:
    """Train and write weights; returns 0, 1 without PyTorch, 2 with every fault of arguments and corpora."""
    options, faults = _options(arguments)
    if faults:
        print("\n".join(f"sluice lab weights: {fault}" for fault in faults), file=sys.stderr)
        return 2
    if find_spec("torch") is None:
        print(f"sluice lab weights: {TORCH_MISSING}", file=sys.stderr)
        return 1
    from lab.training.fit import FitSettings

    settings = FitSettings(form=options.form)
    settings = replace(settings, epochs=options.epochs or settings.epochs)
    try:
        training, validation, test = _trace_sets(options)
    except EngineError as error:
        print_faults("costream", error)
        return 2
    _say(f"{len(training):,} traces to train on, {len(validation):,} for validation; seeds {options.seeds}")
    trained = train_ensemble(
        training,
        validation,
        settings,
        options.seeds,
        version=options.version,
        processes=options.processes,
        is_loud=True,
    )
    card = trained.card
    if test is not None:
        outputs = evaluate_networks(trained.ensemble.networks, test, card.form)
        card = replace(card, errors={**card.errors, "test": cost_errors(outputs, test, card.interval_scale)})
    path: Path = options.out / f"{NAME}.npz"
    options.out.mkdir(parents=True, exist_ok=True)
    replace_file(path.with_suffix(".curves.csv"), _curves(trained.members).encode(), mode=0o644)
    card = save_weights(path, [member.parameters for member in trained.members], card)
    _say(f"{path} and {path.with_suffix('.json').name} written: {card.line}")
    _say(f"next: ./sluice lab evaluate --corpus FILE --weights {path}")
    print(json.dumps({"weights": str(path), "card": card.line, "errors": card.errors}, indent=1))
    return 0


def train_ensemble(
    training: TraceSet,
    validation: TraceSet,
    settings: FitSettings,
    seeds: Sequence[int],
    *,
    version: str,
    processes: int = 1,
    is_loud: bool = False,
) -> TrainedEnsemble:
    """Fit a network per seed, scale the intervals on the validation traces, and write the card.

    Each network is the same with any number of processes.
    """
    start = time.monotonic()
    jobs = [(settings, seed) for seed in seeds]
    members = fit_members(training, validation, jobs, processes=processes, is_loud=is_loud)
    if is_loud:
        _say(f"{len(seeds)} networks in {time.monotonic() - start:.0f} s")
    networks = [CostNetwork(member.parameters, settings.form) for member in members]
    outputs = evaluate_networks(networks, validation, settings.form)
    scale = calibrated_scale(outputs, validation)
    origin = training.origin
    is_real = origin.kind == "real"
    card = ModelCard(
        version=version,
        form=settings.form,
        hidden=settings.hidden,
        members=len(members),
        simulated=0 if is_real else len(training),
        real=len(training) if is_real else 0,
        simulator=origin.simulator,
        seed=origin.seed,
        parameters=origin.parameters,
        interval_scale=scale,
        ranges=TrainingDomain.of_traces(training.traces).ranges,
        errors={"validation": cost_errors(outputs, validation, scale)},
    )
    return TrainedEnsemble(members, card)


def fit_members(
    training: TraceSet,
    validation: TraceSet,
    jobs: Sequence[tuple[FitSettings, int]],
    *,
    processes: int = 1,
    is_loud: bool = False,
) -> tuple[FittedMember, ...]:
    """A network per job of settings and seed, on the same traces."""
    common = (training, validation, is_loud)
    if processes == 1 or len(jobs) == 1:
        return tuple(_fit(*common, job) for job in jobs)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(jobs)), context, _share, common) as pool:
        return tuple(pool.map(_fit_shared, jobs))


def calibrated_scale(outputs: Any, validation: TraceSet) -> dict[str, float]:
    """Factors of split-conformal scaling by cost, from members' outputs (m, n, 11) on n validation traces."""
    ok, bounds = validation.success, ensemble_bounds(outputs)
    return {
        cost: interval_scale(validation.targets[ok, i], tuple(values[ok] for values in bounds[cost]))  # type: ignore[arg-type]
        for i, cost in enumerate(COSTS)
    }


_shared: tuple[TraceSet, TraceSet, bool] | None = None  # of a process of the pool


def _share(training: TraceSet, validation: TraceSet, is_loud: bool) -> None:
    global _shared
    _shared = training, validation, is_loud


def _fit_shared(job: tuple[FitSettings, int]) -> FittedMember:
    assert _shared is not None
    return _fit(*_shared, job)


def _fit(training: TraceSet, validation: TraceSet, is_loud: bool, job: tuple[FitSettings, int]) -> FittedMember:
    from lab.training.fit import fit_member

    settings, seed = job
    member = fit_member(training, validation, settings, seed, _show_epoch if is_loud else None)
    if is_loud:
        _say(f"seed {seed}: kept epoch {member.best_epoch} of {len(member.curve)}")
    return member


def _show_epoch(record: EpochRecord) -> None:
    costs = ", ".join(
        f"{cost} {q50:.3f}/{q95:.2f}" for cost, q50, q95 in zip(COSTS, record.q50, record.q95, strict=True)
    )
    _say(
        f"seed {record.seed}, epoch {record.epoch}, {record.seconds:.0f} s: loss {record.training_loss:.4f}, "
        f"validation {record.validation_loss:.4f}; q0.5/q0.95 {costs}; "
        f"RO {100 * record.backpressure_accuracy:.1f} %, S {100 * record.success_accuracy:.1f} %"
    )


def _curves(members: Sequence[FittedMember]) -> str:
    """Learning curves as CSV, a line per seed and epoch."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    errors = [f"{quantile}_{cost}" for quantile in ("q50", "q95") for cost in COSTS]
    writer.writerow(["seed", "epoch", "seconds", "training_loss", "validation_loss", *errors, "RO", "S"])
    for member in members:
        for record in member.curve:
            fields = asdict(record)
            q50, q95 = fields.pop("q50"), fields.pop("q95")
            seed, epoch, *losses, backpressure, success = fields.values()
            numbers = [*losses, *q50, *q95, backpressure, success]
            writer.writerow([seed, epoch, *(f"{number:.5g}" for number in numbers)])
    return text.getvalue()


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
    parser.add_argument(
        "--validation", help="traces to stop by and to scale intervals on (default: a tenth of the corpus)"
    )
    parser.add_argument("--test", help="traces for the errors on the card; neither trained on nor chosen by")
    parser.add_argument("--form", default=FORMS[0], help=f"{' or '.join(FORMS)} (default {FORMS[0]})")
    parser.add_argument("--seeds", default="1,2,3", help="one network each (default 1,2,3)")
    parser.add_argument("--epochs", default="", help="rounds over the corpus at the most (default 80)")
    parser.add_argument("--processes", default=str(os.cpu_count() or 1), help="processes (default: one per core)")
    parser.add_argument("--version", default="trained", help="name on the card (default trained)")
    parser.add_argument("--out", default=str(_FOLDER), help="folder to write to (default var/costream)")
    options = parser.parse_args(list(arguments))
    faults: list[str] = []
    if options.form not in FORMS:
        faults.append(f"--form is {options.form!r}; allowed: {', '.join(FORMS)}")
    texts = options.seeds.split(",")
    options.seeds = [whole_option(text.strip(), "--seeds", 0, _MAX_SEED, faults) for text in texts]
    if len(options.seeds) > _MAX_SEEDS or len(set(options.seeds)) < len(options.seeds):
        faults.append(f"--seeds is {','.join(texts)!r}; allowed: up to {_MAX_SEEDS} different ones")
    if options.epochs:
        options.epochs = whole_option(options.epochs, "--epochs", 1, _MAX_EPOCHS, faults)
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
