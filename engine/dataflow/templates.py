"""Ready pipelines with what a new live query needs beside them: a collector, load factors, assumed statistics.

The first three are listings 1 to 3 of the Jarvis paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.errors import Fault, OptionError
from engine.kinds import BAD, Number
from engine.wording import suggest

__all__ = [
    "S2SPROBE",
    "TEMPLATES",
    "Assumed",
    "Made",
    "Parameter",
    "Template",
]


@dataclass(frozen=True)
class Assumed:
    """What is taken for an operator's statistics until they are measured.

    `selectivity` is records out per record in, `cycles_per_record` what a record costs, `bytes_per_record` the size of
    a record that it puts out.
    """

    selectivity: float
    cycles_per_record: float
    bytes_per_record: float


@dataclass(frozen=True)
class Parameter:
    """A number that a template asks for."""

    name: str
    label: str
    default: float
    number: Number


@dataclass(frozen=True)
class Made:
    """A template with its parameters filled in.

    `load_factors` has one number for each operator that may run at a source.
    """

    document: dict[str, Any]
    load_factors: tuple[float, ...]
    assumed: tuple[Assumed, ...]


@dataclass(frozen=True)
class Template:
    """A pipeline to begin with; calling it with values for parameters makes the document.

    `collector` is the kind of collector whose records it reads.
    """

    name: str
    title: str
    summary: str
    collector: str
    parameters: tuple[Parameter, ...]
    build: Callable[..., dict[str, Any]]
    assumed: tuple[Assumed, ...]

    def __call__(self, source: str | None = None, **given: float) -> Made:
        """The template over the source named (its collector's kind without one).

        Raises
        ------
        OptionError
            A parameter does not exist or has a value that it does not take.
        """
        values = self._values(given)
        document = self.build(**values)
        document["source"]["id"] = source or self.collector
        return Made(document, (1.0,) * len(document["operators"]), self.assumed)

    def _values(self, given: Mapping[str, float]) -> dict[str, float]:
        faults: list[Fault] = []
        known = [one.name for one in self.parameters]
        for name in given:
            if name not in known:
                text = f"{name} is not a parameter of {self.name}; allowed: {', '.join(known)}{suggest(name, known)}"
                faults.append(Fault(name, text))
        values = {
            one.name: one.number.read(given.get(one.name, one.default), "", one.name, faults) for one in self.parameters
        }
        if faults or BAD in values.values():
            raise OptionError(f"The template {self.name} cannot be filled in; first: {faults[0]}", faults)
        return values


_WINDOW_S = Parameter("window_s", "Window, seconds", 10, Number(least=1, most=3600))
_PROBE: Final = {
    "ts": "timestamp",
    "src_ip": "string",
    "src_cluster": "string",
    "dst_ip": "string",
    "dst_cluster": "string",
    "rtt_us": "int64",
    "err_code": "int64",
}


def _chain(columns: Mapping[str, str], **operators: dict[str, Any]) -> dict[str, Any]:
    """A document of operators by their ids; every source has its time in `ts`."""
    listed = [{"id": name.replace("_", "-"), "expression": expression} for name, expression in operators.items()]
    return {"source": {"id": "", "time": "ts", "columns": dict(columns)}, "operators": listed}


def _s2s(window_s: float) -> dict[str, Any]:
    return _chain(
        _PROBE,
        window={"op": "window", "size_s": window_s},
        answered={"op": "filter", "where": "err_code = 0"},
        pairs={
            "op": "aggregate",
            "by": ["src_ip", "dst_ip"],
            "compute": {
                "probes": "count(*)",
                "rtt_avg_us": "avg(rtt_us)",
                "rtt_max_us": "max(rtt_us)",
                "rtt_min_us": "min(rtt_us)",
                "rtt_median_us": "quantile(rtt_us, 0.5)",
            },
        },
    )


S2SPROBE: Final = Template(
    name="s2s-probe",
    title="Latency between servers (S2SProbe)",
    summary="Round trips of probes by source and destination: average, least, largest and median in every window.",
    collector="tcp_probe",
    parameters=(_WINDOW_S,),
    build=_s2s,
    assumed=(Assumed(1.0, 150, 94), Assumed(0.86, 300, 94), Assumed(0.1, 1500, 80)),
)

TEMPLATES: Final[Mapping[str, Template]] = {one.name: one for one in (S2SPROBE,)}
