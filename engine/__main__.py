"""The engine's command line: ``python -m engine COMMAND FILE...``; Django is never loaded.

One JSON object per file is printed on one line, in order: ``{"file": ..., "result": ...}`` or ``{"file": ..., "error":
...}``; with ``--format table`` it is text for people. Exit status: 0 if all succeeded, 1 if any document was refused, 2
for wrong usage. With ``admit --gate`` the verdicts tell: 3 if any is to reject, or to admit with changes, else 4 if any
is to queue or to review.

A command is a function ``command(document, options)`` in the module the registry names, loaded when it is
used. `document` is the JSON value as read, to be parsed by the command (which raises `DocumentError`); `options` is the
record that the registry names, left out where it has no fields. The answer is a record, or JSON that may hold some.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.admission.text import decision_text
from engine.command_options import (
    AdmitOptions,
    CandidatesOptions,
    CommandOptions,
    EstimateOptions,
    PlaceOptions,
    PlansOptions,
    PredictOptions,
    SimulateOptions,
    WhatIfCommandOptions,
)
from engine.compilation import show_compilation
from engine.errors import DocumentError, EngineError, Fault, OptionError, join_path, value_words
from engine.listing import result_text
from engine.records import Record, record_fields

__all__ = ["COMMANDS", "EngineCommand", "main"]

# Besides its input and options a case file says what it is and what it expects.
_CASE_FIELDS = {"input", "options", "name", "command", "note", "expect", "tol"}
_PROGRAM = "sluice engine"
_STATUS_BY_VERDICT = {"admit": 0, "admit_with_changes": 3, "reject": 3, "queue": 4, "review": 4}
_STATUSES_BY_WEIGHT = (1, 3, 4, 0)  # of several files the heaviest counts


@dataclass(frozen=True)
class EngineCommand:
    """An entry of the registry: where the function is, and the options it takes."""

    module: str
    help: str
    options: type[CommandOptions] = CommandOptions

    def answer(self, document: Any, options: CommandOptions) -> Any:
        """Import the command's function and call it; the answer as JSON."""
        module, _, name = self.module.partition(":")
        function: Callable[..., Any] = getattr(importlib.import_module(module), name or "command")
        return _written(function(document, options) if record_fields(self.options) else function(document))


def _written(answer: Any) -> Any:
    """An answer with the records in it as JSON."""
    if isinstance(answer, Record):
        return answer.to_dict()
    if isinstance(answer, dict):
        return {name: _written(item) for name, item in answer.items()}
    return [_written(item) for item in answer] if isinstance(answer, list) else answer


COMMANDS = {
    "estimate": EngineCommand(
        "engine.estimation.estimate",
        "latency of a deployment: Mace, its bounds, Flow, a report per query",
        EstimateOptions,
    ),
    "simulate": EngineCommand("engine.simulation.run", "event by event: latencies, utilisation", SimulateOptions),
    "place": EngineCommand(
        "engine.placement.proposal",
        "where operators should go: placement, moves in order, before and after, distance from the best",
        PlaceOptions,
    ),
    "admit": EngineCommand(
        "engine.admission.decision",
        "may a candidate run beside what runs: verdict, reasons, effects, alternatives",
        AdmitOptions,
    ),
    "what-if": EngineCommand(
        "engine.provisioning.command",
        "other nodes, loads, objectives and queries: scenarios side by side, or a question about pools",
        WhatIfCommandOptions,
    ),
    "plans": EngineCommand(
        "engine.plans.comparison",
        "alternative plans of a query: entered, rewritten by rules, ranked with intervals",
        PlansOptions,
    ),
    "partition": EngineCommand(
        "engine.jarvis.partition",
        "which share of its input each operator of a chain processes near the data: least bytes sent of a CPU budget",
    ),
    "slack": EngineCommand(
        "engine.klink.command:slack_command",
        "when a query's next watermarks are expected, and how long it can wait until then",
    ),
    "memory": EngineCommand(
        "engine.klink.command:memory_command", "which of several queries frees most waiting events in one cycle"
    ),
    "pick": EngineCommand("engine.klink.command:pick_command", "the query with the least slack"),
    "forwarding": EngineCommand(
        "engine.klink.command:forwarding_command", "what the nodes that share a query tell each other about it"
    ),
    "latency": EngineCommand(
        "engine.planner.command:latency_command",
        "latency of a mini-batch map-reduce stage under given settings: mean, quantile, phases, utilisations",
    ),
    "gg1": EngineCommand("engine.planner.command:gg1_command", "wait in a G/G/1 queue by every approximation"),
    "order": EngineCommand(
        "engine.planner.command:order_command", "mean and deviation of the largest of n standard normal draws"
    ),
    "bridge": EngineCommand("engine.planner.command:bridge_command", "wait behind periodic sources with random phases"),
    "plan": EngineCommand(
        "engine.planner.command:plan_command",
        "fewest nodes that keep a latency constraint at a rate, and the settings of the stage, or of several rounds",
    ),
    "split": EngineCommand(
        "engine.planner.command:split_command", "each round's part of a latency constraint, of a chain or a graph"
    ),
    "spark": EngineCommand(
        "engine.microbatch.command",
        "micro-batches of Spark: coefficients, latency, largest rate, fit to progress, sizes that keep a constraint",
    ),
    "subset": EngineCommand(
        "engine.deadlines.command",
        "the most tasks that one processor can do in time, each with a deadline and a cost; or the weightiest",
    ),
    "predict": EngineCommand(
        "engine.costream.command:predict_command",
        "costs of a query that never ran, per placement: means, intervals, votes, what is outside the training domain",
        PredictOptions,
    ),
    "candidates": EngineCommand(
        "engine.costream.command:candidates_command",
        "placements for a query that never ran, and with a target the one to choose",
        CandidatesOptions,
    ),
    "replay": EngineCommand(
        "engine.klink.replay",
        "what another policy of scheduling would change: latencies, overflow and memory over recorded arrivals",
    ),
}


def main(
    arguments: Sequence[str] | None = None, commands: Mapping[str, EngineCommand] = COMMANDS, *, prog: str = _PROGRAM
) -> int:
    """Run one of the commands on files; returns the exit status."""
    parser = _parser(commands, prog)
    given = vars(parser.parse_args(arguments))
    name, files, form = given.pop("command"), given.pop("files"), given.pop("format")
    is_gate = given.pop("gate", False)
    command = commands[name]
    texts = {option: _value(text) for option, text in given.items() if text is not None}
    faults: list[Fault] = []
    options = command.options.read(texts, "", "", faults)
    if options is None:
        parser.error("; ".join(fault.message for fault in faults))
    given = {option: getattr(options, option) for option in texts}
    statuses = {0}
    for file in files:
        line = {"file": file} | _answer(command, name, file, given)
        statuses.add(_status(line, is_gate))
        if form == "table":
            print(_text(name, line), end="\n\n" if file != files[-1] else "\n", flush=True)
        else:
            print(json.dumps(line, allow_nan=False, separators=(",", ":")), flush=True)
    return next(status for status in _STATUSES_BY_WEIGHT if status in statuses)


def _status(line: Mapping[str, Any], is_gate: bool) -> int:
    if "error" in line:
        return 1
    return _STATUS_BY_VERDICT[line["result"]["verdict"]] if is_gate else 0


def _text(name: str, line: Mapping[str, Any]) -> str:
    """The line for one file as text for people."""
    if "error" in line:
        error = line["error"]
        faults = [f"  {fault['path']}: {fault['message']}" for fault in error["faults"]]
        return "\n".join([f"{line['file']}: {error['message']}", *faults])
    result = decision_text(line["result"]) if name == "admit" else result_text(line["result"])
    return f"{line['file']}\n{result}"


def _parser(named: Mapping[str, EngineCommand], prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        allow_abbrev=False,
        description="Sluice's models on JSON documents; one JSON line per file.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in named.items():
        sub = commands.add_parser(name, help=command.help, description=command.help, allow_abbrev=False)
        sub.add_argument(
            "--format", choices=("json", "table"), default="json", help="one JSON line per file, or text for people"
        )
        if name == "admit":
            sub.add_argument(
                "--gate", action="store_true", help="exit with 3 for reject or changes, 4 for queue or review"
            )
        for option, field in record_fields(command.options).items():
            sub.add_argument(*_spellings(option), dest=option, metavar="VALUE", help=field.words.help)
        sub.add_argument("files", nargs="+", metavar="FILE", help="a document or case file; - is standard input")
    return parser


def _spellings(option: str) -> list[str]:
    return list(dict.fromkeys((f"--{option}", f"--{option.replace('_', '-')}")))


def _value(text: str) -> Any:
    """An option's value: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _answer(command: EngineCommand, name: str, file: str, given: Mapping[str, object]) -> dict[str, object]:
    """The line for one file, without its name."""
    try:
        document, own = _split(_load(file))
        result = command.answer(document, replace(_options(command, name, own), **given))
        if where := _unrepresentable(result):
            raise OutOfRangeError(where)
        return {"result": result}
    except (OverflowError, FloatingPointError) as error:
        return {"error": OutOfRangeError(str(error)).to_dict()}
    except EngineError as error:
        return {"error": error.to_dict()}
    except Exception as error:
        # a defect of the engine: its trace is for whoever mends it; the files after this one are answered
        traceback.print_exc(file=sys.stderr)
        return {"error": DefectError(error).to_dict()}


def _unrepresentable(value: Any, path: str = "") -> str | None:
    """Path of the first number that JSON has no form for: infinite, or none at all."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path or "result"
    if isinstance(value, Mapping):
        items: Iterator[tuple[str | int, Any]] = ((str(key), item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        items = iter(enumerate(value))
    else:
        return None
    return next((found for key, item in items if (found := _unrepresentable(item, join_path(path, key)))), None)


def _options(command: EngineCommand, name: str, own: Any) -> CommandOptions:
    faults: list[Fault] = []
    options = command.options.read(own, "", "options", faults)
    if options is None:
        raise OptionError(f"The options of the document do not fit the command {name}", faults)
    return options


def _split(content: Any) -> tuple[Any, Any]:
    """Document and options of a bare document or of one wrapped as case files are."""
    if not isinstance(content, dict) or "input" not in content:
        return content, {}
    unknown = [key for key in content if key not in _CASE_FIELDS]
    if unknown:
        allowed = ", ".join(sorted(_CASE_FIELDS))
        raise DocumentError(Fault(key, f"{key} does not belong beside input; allowed: {allowed}") for key in unknown)
    return content["input"], content.get("options") or {}


def _load(file: str) -> Any:
    """The JSON value in a file; raises `EngineError` for what cannot be read."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UnreadableFileError(f"{file} cannot be read: {error.strerror}") from None
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise DocumentError([Fault("", f"byte {error.start} is not UTF-8; allowed: JSON in UTF-8")]) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise DocumentError([Fault("", f"not JSON: {error.msg} at {where}")]) from None
    except (RecursionError, ValueError) as error:
        raise DocumentError([Fault("", f"not acceptable JSON: {error}")]) from None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object whose keys all differ. Bare NaN and Infinity pass here: records name their field."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise DocumentError(list(_repeated(pairs)))
    return record


def _repeated(pairs: list[tuple[str, object]]) -> Iterator[Fault]:
    seen: dict[str, object] = {}
    for key, value in pairs:
        if key in seen:
            yield Fault(
                join_path("", key),
                f"{key} is given twice: {value_words(seen[key])} and {value_words(value)}; allowed: once",
            )
        seen[key] = value


class UnreadableFileError(EngineError):
    """A file that cannot be read."""

    code = "unreadable"


class OutOfRangeError(EngineError):
    """Numbers of a document that multiply beyond the range of floats on their way to the answer."""

    code = "out-of-range"

    def __init__(self, where: str) -> None:
        super().__init__(f"The numbers of the document leave the range that can be computed with, at {where}")


class DefectError(EngineError):
    """An answer that a defect of the engine kept from being made."""

    code = "defect"

    def __init__(self, error: Exception) -> None:
        kind = type(error).__name__
        super().__init__(f"This document met a defect of the engine ({kind}: {error}); its trace is on standard error")


def _run() -> int:
    """`main` for a pipe that may be closed early, as by ``| head``: no reader, no trace."""
    try:
        with show_compilation(sys.stderr):
            return main()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails again
        return 0


if __name__ == "__main__":
    sys.exit(_run())
