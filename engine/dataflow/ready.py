"""The documents behind the templates: chains of operators with a few numbers left open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["access_log", "common_log", "host_metrics", "log_analytics", "s2s_probe", "t2t_probe"]

Document = dict[str, Any]

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


def _chain(columns: Mapping[str, str], **operators: dict[str, Any]) -> Document:
    """A document of operators by their ids; every source has its time in `ts`."""
    listed = [{"id": name.replace("_", "-"), "expression": expression} for name, expression in operators.items()]
    return {"source": {"id": "", "time": "ts", "columns": dict(columns)}, "operators": listed}


def _window(window_s: float) -> dict[str, Any]:
    return {"op": "window", "size_s": window_s}


def s2s_probe(window_s: float) -> Document:
    """Listing 1 of the Jarvis paper, with the median that its scenario 1 raises alerts on."""
    return _chain(
        _PROBE,
        window=_window(window_s),
        answered={"op": "filter", "where": "err_code = 0"},
        pairs={"op": "aggregate", "by": ["src_ip", "dst_ip"], "compute": dict(_ROUND_TRIPS)},
    )


def t2t_probe(window_s: float) -> Document:
    """Listing 2: two joins with the table of switches, then what the aggregate reads."""
    document = _chain(
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
    return {"tables": {"tor_of": {"columns": {"ip": "string", "tor": "string"}, "rows": []}}} | document


def log_analytics(window_s: float, bucket_percent: float) -> Document:
    """Listing 3: lines of jobs' statistics; histograms of run time, CPU and memory by tenant.

    One histogram is one aggregate, so the three figures of a line are told apart by a bucket each.
    """
    bucket = {"op": "buckets", "from": 0, "to": 100, "width": bucket_percent}
    return _chain(
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


def host_metrics(window_s: float) -> Document:
    """CPU, memory and network by host: averages, and the CPU that one reading in twenty exceeds."""
    return _chain(
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


def access_log(window_s: float, slow_ms: float) -> Document:
    """The console's own access log: requests by route and class of status, with their latency."""
    return _chain(
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


def common_log(window_s: float, group_depth: float) -> Document:
    """The common log format of web servers: requests by group of paths and class of status, a histogram of sizes."""
    return _chain(
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
