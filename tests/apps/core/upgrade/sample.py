"""Databases of releases, as SQL text: a row in every table, a small cluster with each kind of run answered.

`.venv/bin/python -m tests.apps.core.upgrade.sample` dumps what the present code makes, on SQLite and on PostgreSQL,
under the version's name. It is run once a release, with the tag; a dump of a release is never written again.
"""

from __future__ import annotations

import datetime
import decimal
import os
import sqlite3
import subprocess
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from django.db import models
from django.utils import timezone

__all__ = ["build_rows", "list_releases", "load_postgresql", "load_sqlite"]

_FOLDER = Path(__file__).parent / "releases"


def list_releases() -> list[str]:
    """Versions of which there is a dump."""
    return sorted(path.name.removesuffix(".sqlite.sql") for path in _FOLDER.glob("*.sqlite.sql"))


def load_sqlite(release: str, database: Path) -> Path:
    """Make the SQLite database of a release there."""
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript((_FOLDER / f"{release}.sqlite.sql").read_text())
    return database


def load_postgresql(release: str, url: str) -> None:
    """Fill the empty PostgreSQL database at a URL with that of a release."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as server:
        server.execute((_FOLDER / f"{release}.postgresql.sql").read_bytes())


def _dump_sqlite(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        return "\n".join(connection.iterdump()) + "\n"


def _dump_postgresql(tools: Path, url: str) -> str:
    """As `pg_dump` writes it, without comments and without what only `psql` understands."""
    options = ["--inserts", "--no-owner", "--no-privileges", "--no-comments"]
    text = subprocess.run([tools / "pg_dump", *options, url], capture_output=True, text=True, check=True).stdout
    lines = (line for line in text.splitlines() if line and not line.startswith(("--", "\\")))
    return "\n".join(lines) + "\n"


def build_rows() -> None:
    """Fill the empty database that Django is on."""
    from django.apps import apps

    _build_runs()
    for model in apps.get_models():
        _fill(model)


def _build_runs() -> None:
    from apps.accounts.choices import Role
    from apps.admission.previews import ADMISSION
    from apps.admission.questions import AdmissionQuestion
    from apps.estimates.services import ESTIMATE
    from apps.planning.backtests import BACKTEST
    from apps.planning.forecasts import FORECAST
    from apps.planning.load_histories import history_create_from_generator
    from apps.planning.placement_moves import placement_apply
    from apps.planning.placement_search import PLACEMENT
    from apps.planning.plans import PLANS
    from apps.planning.scenarios import scenario_create
    from apps.planning.what_ifs import WHAT_IF
    from tests.apps import small_cluster as small

    user = small.user(Role.ADMITTER)
    cluster = small.small_cluster(nodes=("a", "b", "c"))
    cluster.pools.update(price_per_hour=1)
    first = small.start_query(cluster, "first", 0.7, "a")
    small.start_query(cluster, "second", 0.6, "a")
    small.make_query(cluster, "draft", 0.1)
    spec = {"peak_rate_eps": 100, "weeks": 3}
    history_create_from_generator(cluster=cluster, source_id="clicks", spec=spec, bucket_s=10_800)
    scenario_create(cluster=cluster, user=user, name="More", changes=[{"add_nodes": 1, "like": "a"}])
    placement, _ = PLACEMENT.request(cluster=cluster, user=user, budget_s=0.3)
    ESTIMATE.request(cluster=cluster, user=user)
    PLANS.request(query=first, user=user)
    WHAT_IF.request(cluster=cluster, user=user)
    FORECAST.request(cluster=cluster, user=user, horizon_days=7)
    ADMISSION.request(cluster=cluster, user=user, question=AdmissionQuestion(query="draft"))
    BACKTEST.request(cluster=cluster, user=user)
    small.run_jobs()
    placement.refresh_from_db()
    placement_apply(run=placement, user=user, pace=0)
    small.run_jobs()
    PLACEMENT.request(cluster=cluster, user=user)  # these two still wait for a worker
    WHAT_IF.request(cluster=cluster, user=user, find="survival")


def _fill(model: type[models.Model]) -> None:
    """One row of a table that has none, and one link of every many-to-many table that has none."""
    if not model._meta.managed or model._meta.proxy:
        return
    if not model._base_manager.exists():
        for field in model._meta.fields:
            if field.is_relation and field.related_model is not model:
                _fill(field.related_model)
        values = {field.name: _value(field) for field in model._meta.fields}
        values = {name: value for name, value in values.items() if value is not ...} | _special(model)
        model._base_manager.bulk_create([model(**values)])
    for link in model._meta.many_to_many:
        _fill(link.related_model)
        rows = getattr(model._base_manager.first(), link.name)
        if not rows.through.objects.exists():
            rows.add(link.related_model._base_manager.first())


def _special(model: type[models.Model]) -> dict[str, Any]:
    """Values that a constraint or a reader asks for."""
    match model.__name__:
        case "Link":
            source, target = model._meta.get_field("source").related_model.objects.order_by("name")[:2]
            return {"source": source, "target": target}
        case "LiveQuery":
            return {"pipeline": {"operators": []}}
        case "ReportSchedule":
            return {"rule": {"every": "day", "at": "06:00"}}
    return {}


def _value(field: Any) -> Any:
    """A plain value of a field; an ellipsis: its default."""
    from apps.core.models import PackedJSONField, pack_json
    from apps.queries.arrivals import series

    if isinstance(field, models.AutoField):
        return ...
    if field.is_relation:
        return None if field.related_model is field.model else field.related_model._base_manager.first()
    if field.has_default() and field.default != "":
        return ...
    if isinstance(field, PackedJSONField):
        return None if field.null else {}
    if field.name == "data":
        return series.pack(np.ones(16))
    if isinstance(field, models.BinaryField):
        return None if field.null else pack_json({})
    if field.choices:
        return next(value for value, _ in field.flatchoices if value != "")
    for kind, value in _VALUES:
        if isinstance(field, kind):
            return value(field)
    raise TypeError(f"{field.model.__name__}.{field.name} is of an unknown kind, {type(field).__name__}")


_VALUES: list[tuple[type, Any]] = [
    (models.UUIDField, lambda _: uuid.uuid4()),
    (models.DateTimeField, lambda _: timezone.now()),
    (models.DateField, lambda _: timezone.now().date()),
    (models.TimeField, lambda _: datetime.time(12)),
    (models.DurationField, lambda _: datetime.timedelta(seconds=60)),
    (models.JSONField, lambda field: None if field.null else {}),
    (models.DecimalField, lambda _: decimal.Decimal(1)),
    (models.BooleanField, lambda _: False),
    (models.IntegerField, lambda _: 1),
    (models.FloatField, lambda _: 1.0),
    (models.CharField, lambda field: field.name[: field.max_length]),
    (models.TextField, lambda field: field.name),
]


def _main() -> None:
    from agent import VERSION
    from launcher.servers import PostgresServer, find_postgres
    from tests import environment
    from tests.databases import scratch_database
    from tests.servers import RedisServer

    os.environ["DJANGO_SETTINGS_MODULE"] = "console.settings"
    tools = find_postgres()
    assert tools is not None, "no PostgreSQL: run ./sluice doctor"
    postgres = PostgresServer(tools)
    redis = RedisServer(environment.VAR_DIR / "redis", port=int(os.environ["REDIS_URL"].split(":")[2].split("/")[0]))
    try:
        redis.start()
        postgres.start()
        postgres.wait()
        import django

        django.setup()
        database = environment.VAR_DIR / "release.sqlite3"
        _make(f"sqlite:///{database}")
        (_FOLDER / f"{VERSION}.sqlite.sql").write_text(_dump_sqlite(database))
        with scratch_database(postgres.url) as url:
            _make(url)
            (_FOLDER / f"{VERSION}.postgresql.sql").write_text(_dump_postgresql(tools, url))
    finally:
        postgres.stop()
        redis.stop()


def _make(url: str) -> None:
    """Migrate and fill the empty database at a URL."""
    from django.core.management import call_command

    from tests.databases import django_on

    with django_on(url):
        call_command("migrate", verbosity=0)
        build_rows()


if __name__ == "__main__":
    _main()
