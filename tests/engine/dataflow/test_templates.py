"""The templates: ready to run, and right about what they read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import whole
from engine.dataflow.templates import ACCESSLOG, COMMONLOG, LOGANALYTICS, S2SPROBE, T2TPROBE, TEMPLATES
from engine.errors import OptionError

AT_US = 1_700_000_001_000_000


def given(chain: Pipeline, **columns: list[object]) -> pa.Table:
    """Records with the columns given, all at one time."""
    length = len(next(iter(columns.values())))
    times = pa.array([AT_US] * length, pa.int64()).cast(pa.timestamp("us", "UTC"))
    arrays = [
        times if f.name == "ts" else pa.array(columns.get(f.name, [None] * length), f.type) for f in chain.source.schema
    ]
    return pa.Table.from_arrays(arrays, schema=chain.source.schema)


@pytest.mark.parametrize("name", TEMPLATES)
def test_template_makes_a_live_pipeline_that_may_run_at_the_source(name: str) -> None:
    made = TEMPLATES[name](source="mine", window_s=5)
    chain = Pipeline.parse(made.document)
    assert chain.not_live == () and chain.source.id == "mine"
    assert chain.window is not None and chain.window.size_us == 5_000_000
    assert len(made.load_factors) == len(made.assumed) == len(chain.operators) == chain.source_operators


def test_template_parameters_out_of_range_are_refused() -> None:
    with pytest.raises(OptionError) as caught:
        LOGANALYTICS(window_s=0, bucket=3)
    says = [fault.message for fault in caught.value.faults]
    assert says[0].startswith("bucket is not a parameter of log-analytics; allowed: window_s, bucket_percent")
    assert says[1] == "window_s is 0; allowed: a finite number from 1 to 3600"


def test_s2s_probe_is_listing_1() -> None:
    chain = Pipeline.parse(S2SPROBE().document)
    probes = given(chain, src_ip=["a"] * 4, dst_ip=["b"] * 4, rtt_us=[100, 300, 900, None], err_code=[0, 0, 1, 110])
    (row,) = whole(chain, probes).to_pylist()
    assert (row["rtt_avg_us"], row["rtt_max_us"], row["rtt_min_us"], row["probes"]) == (200.0, 300, 100, 2)


def test_t2t_probe_is_listing_2() -> None:
    document = T2TPROBE().document
    document["tables"]["tor_of"]["rows"] = [["a", "t1"], ["b", "t2"]]
    chain = Pipeline.parse(document)
    probes = given(chain, src_ip=["a", "b", "c"], dst_ip=["b", "b", "a"], rtt_us=[1, 2, 3], err_code=[0, 0, 0])
    assert [(row["src_tor"], row["dst_tor"], row["rtt_max_us"]) for row in whole(chain, probes).to_pylist()] == [
        ("t1", "t2", 1),
        ("t2", "t2", 2),
    ]


def test_log_analytics_is_listing_3() -> None:
    chain = Pipeline.parse(LOGANALYTICS(bucket_percent=25).document)
    lines = [
        "12:00 tenant name= Contoso, job running time=1234.5 ms, cpu util=45.2, memory util=99.9",
        "12:01 tenant name=contoso; job running time=1300 ms, cpu util=49, memory util=75",
        "12:02 started",
    ]
    (row,) = whole(chain, given(chain, line=lines)).to_pylist()
    assert (row["tenant"], row["jobs"], row["cpu_bucket"], row["memory_bucket"]) == ("contoso", 2, 2, 4)


def test_access_log_template_reads_the_consoles_log() -> None:
    chain = Pipeline.parse(ACCESSLOG(slow_ms=100).document)
    line = "time=2026-11-21T15:04:05.123456+00:00 method=GET route={} path=/c/eu-1/ status={} ms={} bytes={}"
    lines = [
        line.format("pages:overview", 200, "12.50", 5123),
        line.format("pages:overview", 204, "112.50", "-"),
        line.format("api:nodes", 404, "2.00", 7),
        line.format("static/app.css", 200, "2.00", 7),
        "cut off",
    ]
    result = whole(chain, given(chain, line=lines)).to_pylist()
    assert [(row["route"], row["status_class"], row["requests"], row["slow"], row["bytes"]) for row in result] == [
        ("api:nodes", "4xx", 1, 0, 7),
        ("pages:overview", "2xx", 2, 1, 5123),
    ]


def test_common_log_template_reads_the_common_format() -> None:
    chain = Pipeline.parse(COMMONLOG(group_depth=2).document)
    lines = [
        '1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET /blog/tags/x?q=1 HTTP/1.0" 200 2326 "-" "Mozilla"',
        '1.2.3.4 - bob [10/Oct/2000:13:55:37 -0700] "GET /blog/tags HTTP/1.0" 304 -',
        '127.0.0.1:5000 - "GET / HTTP/1.1" 200 OK',
    ]
    result = whole(chain, given(chain, line=lines)).to_pylist()
    assert [(row["path_group"], row["status_class"], row["size_bucket"], row["bytes"]) for row in result] == [
        ("/blog/tags", 2, 5, 2326),
        ("/blog/tags", 3, None, None),
    ]
