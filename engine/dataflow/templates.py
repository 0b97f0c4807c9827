"""Templates of pipelines, and their documents with a few numbers left open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from engine.dataflow.types import ExpressionDocument, PipelineDocument, PipelineOperatorDocument
from engine.errors import Fault, OptionError, suggestion
from engine.kinds import Number
from engine.records import BAD

__all__ = [
    "ACCESSLOG",
    "COMMONLOG",
    "HOSTMETRICS",
    "LOGANALYTICS",
    "S2SPROBE",
    "T2TPROBE",
    "TEMPLATES",
    "AssumedStatistics",
    "Parameter",
    "PipelineDraft",
    "Template",
    "access_log",
    "common_log",
    "host_metrics",
    "log_analytics",
    "s2s_probe",
    "t2t_probe",
]

_PROBE: Final = {
    "ts": "timestamp",
    "src_ip": "string",
    "src_cluster": "string",
    "dst_ip": "string",
    "dst_cluster": "string",
    "rtt_us": "int64",
    "err_code": "int64",
}
_HOST: Final = {
    "ts": "timestamp",
    "host": "string",
    "cpu_percent": "float64",
    "load_1": "float64",
    "memory_percent": "float64",
    "memory_used_bytes": "int64",
    "disk_percent": "float64",
    "net_in_bytes": "int64",
    "net_out_bytes": "int64",
}
_LINES: Final = {"ts": "timestamp", "line": "string"}
_ROUND_TRIPS: Final = {
    "probes": "count(*)",
    "rtt_avg_us": "avg(rtt_us)",
    "rtt_max_us": "max(rtt_us)",
    "rtt_min_us": "min(rtt_us)",
    "rtt_median_us": "quantile(rtt_us, 0.5)",
}


def _pipeline_document(columns: Mapping[str, str], **operators: ExpressionDocument) -> PipelineDocument:
    """A document of operators by their ids; every source has its time in `ts`."""
    listed: list[PipelineOperatorDocument] = [
        {"id": name.replace("_", "-"), "expression": expression} for name, expression in operators.items()
    ]
    return {"source": {"id": "", "time": "ts", "columns": dict(columns)}, "operators": listed}


def _window(window_s: float) -> ExpressionDocument:
    return {"op": "window", "size_s": window_s}


def s2s_probe(window_s: float) -> PipelineDocument:
    """Listing 1 of the Jarvis paper, with the median that its scenario 1 raises alerts on."""
    return _pipeline_document(
        _PROBE,
        window=_window(window_s),
        answered={"op": "filter", "where": "err_code = 0"},
        pairs={"op": "aggregate", "by": ["src_ip", "dst_ip"], "compute": dict(_ROUND_TRIPS)},
    )


def t2t_probe(window_s: float) -> PipelineDocument:
    """Listing 2: two joins with the table of switches, then what the aggregate reads."""
    document = _pipeline_document(
        _PROBE,
        window=_window(window_s),
        answered={"op": "filter", "where": "err_code = 0"},
        source_switch={"op": "join", "table": "tor_of", "on": {"src_ip": "ip"}, "take": {"src_tor": "tor"}},
        target_switch={"op": "join", "table": "tor_of", "on": {"dst_ip": "ip"}, "take": {"dst_tor": "tor"}},
        between={
            "op": "project",
            "columns": {"src_tor": "src_tor", "dst_tor": "dst_tor", "rtt_us": "rtt_us"},
        },
        pairs={"op": "aggregate", "by": ["src_tor", "dst_tor"], "compute": dict(_ROUND_TRIPS)},
    )
    return {"tables": {"tor_of": {"columns": {"ip": "string", "tor": "string"}, "rows": []}}, **document}


def log_analytics(window_s: float, bucket_percent: float) -> PipelineDocument:
    """Listing 3: lines of jobs' statistics; histograms of run time, CPU and memory by tenant.

    One histogram is one aggregate, so the three figures of a line are told apart by a bucket each.
    """
    bucket: ExpressionDocument = {"op": "buckets", "from": 0, "to": 100, "width": bucket_percent}
    return _pipeline_document(
        _LINES,
        window=_window(window_s),
        jobs={"op": "filter", "where": "line like '%tenant name=%' and line like '%job running time=%'"},
        parse={
            "op": "parse",
            "column": "line",
            "as": "regex",
            "pattern": r"tenant name=(?P<tenant>[^,;]+).*job running time=(?P<time_ms>[0-9.]+)"
            r".*cpu util=(?P<cpu>[0-9.]+).*memory util=(?P<memory>[0-9.]+)",
            "into": {"tenant": "string", "time_ms": "float64", "cpu": "float64", "memory": "float64"},
        },
        tenants={"op": "map", "set": {"tenant": "lower(trim(tenant))"}},
        run_time={"op": "buckets", "column": "time_ms", "into": "time_bucket", "bounds": _decades(1, 5)},
        processor={**bucket, "column": "cpu", "into": "cpu_bucket"},
        memory={**bucket, "column": "memory", "into": "memory_bucket"},
        histogram={
            "op": "aggregate",
            "by": ["tenant", "time_bucket", "cpu_bucket", "memory_bucket"],
            "compute": {"jobs": "count(*)", "time_avg_ms": "avg(time_ms)"},
        },
    )


def _decades(first: int, last: int) -> list[float]:
    """Bounds 1, 2, 5 times each power of ten."""
    return [float(step * 10**power) for power in range(first, last + 1) for step in (1, 2, 5)]


def host_metrics(window_s: float) -> PipelineDocument:
    """CPU, memory and network by host: averages, and the CPU that one reading in twenty exceeds."""
    return _pipeline_document(
        _HOST,
        window=_window(window_s),
        hosts={
            "op": "aggregate",
            "by": ["host"],
            "compute": {
                "readings": "count(*)",
                "cpu_avg_percent": "avg(cpu_percent)",
                "cpu_q95_percent": "quantile(cpu_percent, 0.95)",
                "load_max": "max(load_1)",
                "memory_avg_percent": "avg(memory_percent)",
                "memory_max_percent": "max(memory_percent)",
                "disk_percent": "max(disk_percent)",
                "net_in_bytes": "sum(net_in_bytes)",
                "net_out_bytes": "sum(net_out_bytes)",
            },
        },
    )


def access_log(window_s: float, slow_ms: float) -> PipelineDocument:
    """The console's own access log: requests by route and class of status, with their latency."""
    return _pipeline_document(
        _LINES,
        window=_window(window_s),
        parse={
            "op": "parse",
            "column": "line",
            "as": "kv",
            "into": {"method": "string", "route": "string", "status": "int64", "ms": "float64", "bytes": "int64"},
        },
        pages={"op": "filter", "where": "status is not null and route not like 'static%'"},
        classes={
            "op": "map",
            "set": {
                "status_class": "case when status < 300 then '2xx' when status < 400 then '3xx' "
                "when status < 500 then '4xx' else '5xx' end",
                "slow": f"if(ms > {slow_ms!r}, 1, 0)",
            },
        },
        routes={
            "op": "aggregate",
            "by": ["route", "status_class"],
            "compute": {
                "requests": "count(*)",
                "slow": "sum(slow)",
                "ms_avg": "avg(ms)",
                "ms_median": "quantile(ms, 0.5)",
                "ms_q95": "quantile(ms, 0.95)",
                "bytes": "sum(bytes)",
            },
        },
    )


def common_log(window_s: float, group_depth: float) -> PipelineDocument:
    """The common log format of web servers: requests by group of paths and class of status, a histogram of sizes."""
    return _pipeline_document(
        _LINES,
        window=_window(window_s),
        parse={
            "op": "parse",
            "column": "line",
            "as": "regex",
            "pattern": r'^(?P<client>\S+) \S+ \S+ \[[^\]]+\] "(?P<method>[A-Z]+) (?P<path>[^ "]*)[^"]*" '
            r"(?P<status>\d{3}) (?P<bytes>\S+)",
            "into": {"client": "string", "method": "string", "path": "string", "status": "int64", "bytes": "int64"},
        },
        groups={
            "op": "map",
            "set": {
                "path_group": f"coalesce(regexp_extract(path, '^(?:/[^/?]*){{1,{group_depth:.0f}}}', 0), '')",
                "status_class": "status div 100",
            },
        },
        sizes={"op": "buckets", "column": "bytes", "into": "size_bucket", "bounds": _decades(2, 6)},
        requests={
            "op": "aggregate",
            "by": ["path_group", "status_class", "size_bucket"],
            "compute": {"requests": "count(*)", "bytes": "sum(bytes)"},
        },
    )


@dataclass(frozen=True)
class AssumedStatistics:
    """Assumed statistics of an operator until they are measured.

    `selectivity` is records out per record in, `cycles_per_record` what a record costs, `bytes_per_record` the size of
    a record that it puts out.
    """

    selectivity: float
    cycles_per_record: float
    bytes_per_record: float


@dataclass(frozen=True)
class Parameter:
    """Parameter of a template: a number with its range."""

    name: str
    label: str
    default: float
    number: Number


@dataclass(frozen=True)
class PipelineDraft:
    """A template with its parameters filled in.

    `load_factors` has one number for each operator that may run at a source.
    """

    document: PipelineDocument
    load_factors: tuple[float, ...]
    assumed: tuple[AssumedStatistics, ...]


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
    build: Callable[..., PipelineDocument]
    assumed: tuple[AssumedStatistics, ...]

    def __call__(self, source: str | None = None, **given: float) -> PipelineDraft:
        """The template over the source named (its collector's kind without one).

        Raises
        ------
        OptionError
            A parameter does not exist or has a value that it does not take.
        """
        values = self._values(given)
        document = self.build(**values)
        document["source"]["id"] = source or self.collector
        return PipelineDraft(document, (1.0,) * len(document["operators"]), self.assumed)

    def _values(self, given: Mapping[str, float]) -> dict[str, float]:
        faults: list[Fault] = []
        known = [template.name for template in self.parameters]
        for name in given:
            if name not in known:
                text = f"{name} is not a parameter of {self.name}; allowed: {', '.join(known)}{suggestion(name, known)}"
                faults.append(Fault(name, text))
        values = {
            template.name: template.number.read(given.get(template.name, template.default), "", template.name, faults)
            for template in self.parameters
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
    assumed=(AssumedStatistics(1.0, 120, 94), AssumedStatistics(0.86, 140, 94), AssumedStatistics(0.1, 1300, 80)),
)
T2TPROBE: Final = Template(
    name="t2t-probe",
    title="Latency between switches (T2TProbe)",
    summary="Round trips of probes by top-of-rack switch of source and destination, from a table of addresses.",
    collector="tcp_probe",
    parameters=(_WINDOW_S,),
    build=t2t_probe,
    assumed=(
        AssumedStatistics(1.0, 120, 94),
        AssumedStatistics(0.86, 140, 94),
        AssumedStatistics(1.0, 200, 102),
        AssumedStatistics(1.0, 200, 110),
        AssumedStatistics(1.0, 60, 40),
        AssumedStatistics(0.02, 1300, 80),
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
        AssumedStatistics(1.0, 120, 208),
        AssumedStatistics(0.9, 400, 208),
        AssumedStatistics(1.0, 2500, 60),
        AssumedStatistics(1.0, 300, 60),
        AssumedStatistics(1.0, 120, 68),
        AssumedStatistics(1.0, 120, 76),
        AssumedStatistics(1.0, 120, 84),
        AssumedStatistics(0.3, 1000, 64),
    ),
)
HOSTMETRICS: Final = Template(
    name="host-metrics",
    title="CPU, memory, disk and network of hosts",
    summary="Averages by host, and the CPU that one reading in twenty exceeds.",
    collector="host_metrics",
    parameters=(_WINDOW_S,),
    build=host_metrics,
    assumed=(AssumedStatistics(1.0, 4000, 90), AssumedStatistics(0.1, 20_000, 110)),
)
ACCESSLOG: Final = Template(
    name="access-log",
    title="Requests to the console",
    summary="The console's own access log: requests, slow ones and latency by route and class of status.",
    collector="log_file",
    parameters=(_WINDOW_S, Parameter("slow_ms", "Slow from, milliseconds", 500, Number(above=0, most=600_000))),
    build=access_log,
    assumed=(
        AssumedStatistics(1.0, 1000, 170),
        AssumedStatistics(1.0, 6000, 90),
        AssumedStatistics(0.9, 1000, 90),
        AssumedStatistics(1.0, 1500, 105),
        AssumedStatistics(0.3, 10_000, 100),
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
        AssumedStatistics(1.0, 300, 220),
        AssumedStatistics(1.0, 4000, 130),
        AssumedStatistics(1.0, 1000, 150),
        AssumedStatistics(1.0, 200, 158),
        AssumedStatistics(0.3, 1500, 64),
    ),
)

TEMPLATES: Final[Mapping[str, Template]] = {
    template.name: template for template in (S2SPROBE, T2TPROBE, LOGANALYTICS, HOSTMETRICS, ACCESSLOG, COMMONLOG)
}
