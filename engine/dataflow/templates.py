"""Ready pipelines with what a new live query needs beside them: a collector, load factors, assumed statistics.

The first three are listings 1 to 3 of the Jarvis paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.dataflow.ready import access_log, common_log, host_metrics, log_analytics, s2s_probe, t2t_probe
from engine.errors import Fault, OptionError
from engine.kinds import BAD, Number
from engine.wording import suggest

__all__ = [
    "ACCESSLOG",
    "COMMONLOG",
    "HOSTMETRICS",
    "LOGANALYTICS",
    "S2SPROBE",
    "T2TPROBE",
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

S2SPROBE: Final = Template(
    name="s2s-probe",
    title="Latency between servers (S2SProbe)",
    summary="Round trips of probes by source and destination: average, least, largest and median in every window.",
    collector="tcp_probe",
    parameters=(_WINDOW_S,),
    build=s2s_probe,
    assumed=(Assumed(1.0, 120, 94), Assumed(0.86, 140, 94), Assumed(0.1, 1300, 80)),
)
T2TPROBE: Final = Template(
    name="t2t-probe",
    title="Latency between switches (T2TProbe)",
    summary="Round trips of probes by top-of-rack switch of source and destination, from a table of addresses.",
    collector="tcp_probe",
    parameters=(_WINDOW_S,),
    build=t2t_probe,
    assumed=(
        Assumed(1.0, 120, 94),
        Assumed(0.86, 140, 94),
        Assumed(1.0, 200, 102),
        Assumed(1.0, 200, 110),
        Assumed(1.0, 60, 40),
        Assumed(0.02, 1300, 80),
    ),
)
LOGANALYTICS: Final = Template(
    name="log-analytics",
    title="Histograms of jobs by tenant (LogAnalytics)",
    summary="Lines with tenant, run time, CPU and memory of a job, counted in buckets by tenant.",
    collector="log_file",
    parameters=(
        _WINDOW_S,
        Parameter("bucket_percent", "Width of a bucket, percent", 10, Number(least=1, most=50)),
    ),
    build=log_analytics,
    assumed=(
        Assumed(1.0, 120, 208),
        Assumed(0.9, 400, 208),
        Assumed(1.0, 2500, 60),
        Assumed(1.0, 300, 60),
        Assumed(1.0, 120, 68),
        Assumed(1.0, 120, 76),
        Assumed(1.0, 120, 84),
        Assumed(0.3, 1000, 64),
    ),
)
HOSTMETRICS: Final = Template(
    name="host-metrics",
    title="CPU, memory, disk and network of hosts",
    summary="Averages by host, and the CPU that one reading in twenty exceeds.",
    collector="host_metrics",
    parameters=(_WINDOW_S,),
    build=host_metrics,
    assumed=(Assumed(1.0, 4000, 90), Assumed(0.1, 20_000, 110)),
)
ACCESSLOG: Final = Template(
    name="access-log",
    title="Requests to the console",
    summary="The console's own access log: requests, slow ones and latency by route and class of status.",
    collector="log_file",
    parameters=(_WINDOW_S, Parameter("slow_ms", "Slow from, milliseconds", 500, Number(above=0, most=600_000))),
    build=access_log,
    assumed=(
        Assumed(1.0, 1000, 170),
        Assumed(1.0, 6000, 90),
        Assumed(0.9, 1000, 90),
        Assumed(1.0, 1500, 105),
        Assumed(0.3, 10_000, 100),
    ),
)
COMMONLOG: Final = Template(
    name="common-log",
    title="Requests to a web server",
    summary="Lines in the common log format, as nginx, Apache and others write them: requests by path and status.",
    collector="log_file",
    parameters=(
        _WINDOW_S,
        Parameter("group_depth", "Parts of a path that make a group", 1, Number(least=1, most=5, whole=True)),
    ),
    build=common_log,
    assumed=(
        Assumed(1.0, 300, 220),
        Assumed(1.0, 4000, 130),
        Assumed(1.0, 1000, 150),
        Assumed(1.0, 200, 158),
        Assumed(0.3, 1500, 64),
    ),
)

TEMPLATES: Final[Mapping[str, Template]] = {
    one.name: one for one in (S2SPROBE, T2TPROBE, LOGANALYTICS, HOSTMETRICS, ACCESSLOG, COMMONLOG)
}
