"""Arrivals: uploads, counts and generators."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from apps.core.errors import Conflict, Malformed, Missing, TooLarge
from apps.fleet.services import cluster_update
from apps.queries.arrivals import series
from apps.queries.arrivals.services import (
    arrivals_create_from_counts,
    arrivals_create_from_generator,
    arrivals_create_from_upload,
    arrivals_delete,
    arrivals_dispersion_update,
    arrivals_inspect,
)
from apps.queries.arrivals.uploads import UploadedTrace, upload_keep, upload_open, uploads_purge
from apps.queries.models import ArrivalSeries
from apps.queries.services import query_stop
from apps.queries.snapshots.elements import engine_source
from tests.apps.domain import fault_paths, make_arrivals, make_cluster, make_query, start

pytestmark = pytest.mark.django_db


TRACE = "t,n\n" + "".join(f"2026-03-01 00:00:{i:02d},{i}\n" for i in range(10))


def _upload(text: str | bytes = TRACE, name: str = "trace.csv") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, text.encode() if isinstance(text, str) else text)


def _store(cluster: Any, text: str | bytes = TRACE, **fields: Any) -> ArrivalSeries:
    key, _ = arrivals_inspect(file=_upload(text))
    chosen = {"time_column": "t", "count_column": "n", "source_id": "clicks"} | fields
    return arrivals_create_from_upload(cluster=cluster, **UploadedTrace.split({"key": key, **chosen}))


def test_the_busiest_stretch_of_an_upload_is_stored() -> None:
    cluster = make_cluster()
    stored = _store(cluster)
    assert (stored.events, stored.peak_eps, stored.evidence) == (6 + 7 + 8 + 9, 9.0, "measured")
    assert stored.starts_at == datetime(2026, 3, 1, 0, 0, 6, tzinfo=UTC)
    assert series.unpack(stored.data).tolist() == [1.5] * 4 + [1.75] * 4 + [2.0] * 4 + [2.25] * 4
    assert stored.spec["file"] == "trace.csv" and stored.spec["lines"] == 10


def test_chosen_window_of_a_trace_is_stored_with_its_fill() -> None:
    cluster = make_cluster()
    assert _store(cluster, source_id="a", stretch="first").events == 0 + 1 + 2 + 3
    assert _store(cluster, source_id="b", stretch="2026-03-01T00:00:02Z").events == 2 + 3 + 4 + 5
    with pytest.raises(Malformed, match="repeat it, or zero"):
        _store(cluster, source_id="c", stretch="2026-03-01 00:00:08")
    assert _store(cluster, source_id="c", stretch="2026-03-01 00:00:08", fill="zero").events == 17
    assert _store(cluster, source_id="d", stretch="2026-03-01 00:00:08", fill="repeat").events == 34
    for stretch, fill, path in (("noon", "", "stretch"), ("1999-01-01", "", "stretch"), ("first", "x", "fill")):
        with pytest.raises(Malformed) as error:
            _store(cluster, source_id="e", stretch=stretch, fill=fill)
        assert fault_paths(error) == {path}


def test_malformed_lines_stop_the_storing_unless_left_out() -> None:
    cluster = make_cluster()
    with pytest.raises(Malformed, match="2 lines cannot be read") as error:
        _store(cluster, TRACE + "yesterday,4\n2026-03-01 00:00:11,-4\n")
    assert fault_paths(error) == {"file.line[12].t", "file.line[13].n"}
    assert not ArrivalSeries.objects.exists()
    stored = _store(cluster, TRACE + "yesterday,4\n", leave_out_problems=True)
    assert stored.spec["lines_left_out"] == 1


def test_a_source_is_replaced_only_when_told() -> None:
    cluster = make_cluster()
    first = _store(cluster)
    with pytest.raises(Conflict, match="replace"):
        _store(cluster)
    assert _store(cluster, stretch="first", replace=True).pk == first.pk


def test_large_uploads_are_refused_naming_the_limit(settings: Any) -> None:
    settings.UPLOAD_MAX_BYTES = 1000
    with pytest.raises(TooLarge, match=r"0\.001 MB .*SLUICE_UPLOAD_MAX_MB"):
        arrivals_inspect(file=_upload("x" * 1001))


def test_uploads_expire_and_keys_cannot_be_forged(settings: Any, tmp_path: Any) -> None:
    import os

    settings.VAR_DIR = tmp_path
    key = upload_keep(_upload())
    with upload_open(key) as upload:
        assert upload.name == "trace.csv" and upload.file.read() == TRACE.encode()
    with pytest.raises(Malformed):
        upload_open(key[:-1] + ("a" if key[-1] != "a" else "b"))
    kept = next((tmp_path / "uploads").iterdir())
    os.utime(kept, (0, 0))
    assert uploads_purge() == 1
    with pytest.raises(Missing, match="expired"):
        upload_open(key)


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "poisson", "mean_rate_eps": 40, "seed": 3},
        {"kind": "on_off", "mean_rate_eps": 40.0, "ratio": 10, "high_period_s": 1.0},
        {"kind": "diurnal", "mean_rate_eps": 40, "noise": False, "day_s": 4.0},
    ],
)
def test_generators_are_repeatable(spec: dict[str, Any]) -> None:
    cluster = make_cluster()
    one, two = (arrivals_create_from_generator(cluster=cluster, source_id=name, spec=spec) for name in ("a", "b"))
    assert one.digest == two.digest and one.evidence == "assumed" and one.spec == spec


@pytest.mark.parametrize(
    ("spec", "bad"),
    [
        ({"kind": "magic"}, {"generator.kind"}),
        ({}, {"generator.kind"}),
        ({"kind": ["poisson"]}, {"generator.kind"}),
        ({"kind": "poisson"}, {"generator.mean_rate_eps"}),
        ({"kind": "poisson", "mean_rate_eps": -1, "seed": -1}, {"generator.mean_rate_eps"}),
        ({"kind": "poisson", "mean_rate_eps": "fast", "speed": 1}, {"generator.mean_rate_eps", "generator.speed"}),
        ({"kind": "diurnal", "mean_rate_eps": 1.0, "noise": 1, "seed": 1.5}, {"generator.noise", "generator.seed"}),
    ],
)
def test_generators_refuse_by_name(spec: dict[str, Any], bad: set[str]) -> None:
    with pytest.raises(Malformed) as error:
        arrivals_create_from_generator(cluster=make_cluster(), source_id="a", spec=spec)
    assert bad <= fault_paths(error)
    assert not ArrivalSeries.objects.exists()


def test_counts_are_resampled_or_kept_as_they_are() -> None:
    cluster = make_cluster()
    values = np.linspace(0, 7, 16)
    kept = arrivals_create_from_counts(cluster=cluster, source_id="a", counts=values)
    assert series.unpack(kept.data).tolist() == values.tolist()
    spread = arrivals_create_from_counts(cluster=cluster, source_id="b", counts=[4, 8, 0, 4], step_s=1.0)
    assert series.unpack(spread.data).tolist() == [1.0] * 4 + [2.0] * 4 + [0.0] * 4 + [1.0] * 4
    with pytest.raises(Malformed) as error:
        arrivals_create_from_counts(cluster=cluster, source_id="x/y@z", counts=[1, -1, float("nan")], step_s=0)
    assert fault_paths(error) == {"source_id", "step_s", "counts[1]", "counts[2]"}


def test_arrivals_that_a_query_reads_cannot_be_deleted() -> None:
    cluster = make_cluster()
    query = start(make_query(cluster))
    with pytest.raises(Conflict, match="checkout"):
        arrivals_delete(arrivals=cluster.arrivals.get())
    query_stop(query=query)
    arrivals_delete(arrivals=cluster.arrivals.get())
    assert not ArrivalSeries.objects.exists()


def test_an_inspection_is_plain_data() -> None:
    key, found = arrivals_inspect(file=_upload(gzip_of(TRACE), "t.csv.gz"))
    shown = found.to_dict()
    assert isinstance(key, str) and shown["columns"][0] == {"name": "t", "kind": "time", "time_format": "iso"}


def gzip_of(text: str) -> bytes:
    import gzip

    out = io.BytesIO()
    with gzip.open(out, "wb") as packed:
        packed.write(text.encode())
    return out.getvalue()


def test_arrivals_read_for_another_grid_are_not_stored() -> None:
    cluster = make_cluster()
    seen = type(cluster).objects.get(pk=cluster.pk)
    cluster_update(cluster=cluster, subinterval_s=2.0, horizon_s=8.0)
    with pytest.raises(Conflict, match="subinterval or horizon was changed"):
        make_arrivals(seen)
    assert not ArrivalSeries.objects.exists()


def test_single_events_tell_how_they_scatter_and_rounded_ones_do_not() -> None:
    cluster = make_cluster(horizon_s=50)
    times = np.sort(np.random.default_rng(3).uniform(0.0, 60.0, 3000))
    exact = "\n".join(["at", *(f"{time:.6f}" for time in 1.7e9 + times)])
    row = _store(cluster, exact, source_id="exact", time_column="at", count_column=None)
    assert row.step_s is None and row.dispersion_step_s == cluster.slice_s / 4
    assert row.dispersion == pytest.approx(1.0, abs=0.2)
    clumps = np.sort(np.repeat(times[::10], 10))
    row = _store(
        cluster,
        "\n".join(["at", *(f"{time:.6f}" for time in 1.7e9 + clumps)]),
        source_id="clumps",
        time_column="at",
        count_column=None,
    )
    assert row.dispersion == pytest.approx(10.0, rel=0.25)
    rounded = "\n".join(["at", *(f"{time:.0f}" for time in 1.7e9 + times)])
    row = _store(cluster, rounded, source_id="rounded", time_column="at", count_column=None)
    assert (row.step_s, row.dispersion) == (1.0, None)


def test_dispersion_of_counts_is_stated_with_their_width_or_not_at_all() -> None:
    cluster = make_cluster()
    make_arrivals(cluster)
    row = cluster.arrivals.get()
    assert arrivals_dispersion_update(arrivals=row, dispersion=3.0, dispersion_step_s=0.25).dispersion == 3.0
    source = engine_source(row, series.unpack(row.data), "clicks")
    assert (source.dispersion, source.dispersion_step_s) == (3.0, 0.25)
    for dispersion, step_s, paths in (
        (3.0, None, {"dispersion_step_s"}),
        (None, 0.25, {"dispersion"}),
        (-1.0, 0.25, {"dispersion"}),
        (float("nan"), 0.0, {"dispersion", "dispersion_step_s"}),
        (1e9, 1.1 * cluster.horizon_s, {"dispersion", "dispersion_step_s"}),
    ):
        with pytest.raises(Malformed) as error:
            arrivals_dispersion_update(arrivals=row, dispersion=dispersion, dispersion_step_s=step_s)
        assert fault_paths(error) == paths
        with pytest.raises(Malformed) as error:
            arrivals_create_from_counts(
                cluster=cluster,
                source_id="others",
                counts=[1.0] * cluster.slices,
                dispersion=dispersion,
                dispersion_step_s=step_s,
            )
        assert fault_paths(error) == paths
    assert arrivals_dispersion_update(arrivals=row, dispersion=None, dispersion_step_s=None).dispersion is None
