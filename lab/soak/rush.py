"""Rushes on a healthy console: many applies on room for some of them, and many sockets while REST waits."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx
from websockets.asyncio.client import connect
from websockets.typing import Origin

from lab.soak.actors import BOUND_S, CAPACITY_CPS, RATE_EPS, query_body
from lab.soak.client_ledger import RestCaller, Write
from lab.soak.comparison import unserial

__all__ = ["ApplyRush", "SocketRush", "make_cluster", "rush_applies", "rush_pages", "rush_sockets"]

_HORIZON_S = 60
_LINKS = re.compile(r'href="(/[^"&]*)"')
_UNWANTED = re.compile(r"/(static|help|logout|api/docs)")
_ROUNDS = 30  # of asking again what the cluster moved under


def make_cluster(caller: RestCaller, slug: str, nodes: Sequence[str]) -> None:
    """Nodes of one core each, and the source `clicks`."""
    source = {"cluster": slug, "source_id": "clicks", "counts": [RATE_EPS / 4] * (4 * _HORIZON_S), "step_s": 0.25}
    pool = {"cluster": slug, "name": "pool", "capacity_cps": CAPACITY_CPS, "cores": 1}
    parts: list[tuple[str, dict[str, Any]]] = [
        ("clusters", {"slug": slug, "name": slug.title(), "subinterval_s": 1, "horizon_s": _HORIZON_S}),
        ("node-pools", pool),
        *(("nodes", {"cluster": slug, "pool": "pool", "name": name}) for name in nodes),
        ("arrivals", source),
    ]
    for path, body in parts:
        made = caller.post(f"/api/v1/{path}", body, Write("set-up", path))
        if not made.is_acknowledged:
            raise RuntimeError(f"POST {path}: {made.status} {made.answer}")


@dataclass(frozen=True)
class ApplyRush:
    """Outcome of many applies at once; `faults` say why no serial order would have admitted these."""

    clients: int
    admitted: int
    took_s: float
    faults: list[str]


def rush_applies(callers: Sequence[RestCaller], seed: int, clients: int, slug: str = "rush") -> ApplyRush:
    """So many queries of drawn sizes ask for one core, all at once, until each has its verdict on what runs.

    Where the cluster moved while a verdict was computed, its asker asks again, as a person would.
    """
    rng = Random(f"{seed}/rush")
    make_cluster(callers[0], slug, ["only"])
    bodies = [query_body(slug, f"r-{i}", rng.uniform(0.04, 0.2)) for i in range(clients)]
    barrier, began = threading.Barrier(clients), time.monotonic()

    def ask(i: int) -> tuple[str, str]:
        caller, body = callers[i % len(callers)], bodies[i]
        barrier.wait()
        for attempt in range(_ROUNDS):
            question = {"cluster": slug, "query": body["name"], "mode": "apply", "reason": f"rush-{i}-{attempt}"}
            asked = caller.post("/api/v1/admissions", question, Write("rush", question["reason"]), wait_s=30)
            while asked.answer.get("result_api_url"):  # it has not ended in that time
                if found := caller.read(asked.answer["result_api_url"], wait_s=30):
                    asked.answer = found
            state, verdict = str(asked.answer.get("state")), str(asked.answer.get("verdict"))
            if state == "applied" or (state == "preview" and verdict in ("reject", "review", "admit_with_changes")):
                return state, verdict
            time.sleep(0.05)
        return "undecided", str(asked.answer)[:200]

    for body in bodies:
        callers[0].post("/api/v1/queries", body, Write("query", body["name"]))
    with ThreadPoolExecutor(clients) as pool:
        outcomes = list(pool.map(ask, range(clients)))
    document: dict[str, Any] = callers[0].read(f"/api/v1/clusters/{slug}/document") or {}
    refused = {
        body["name"]: [*_operators(body, document), {"query": body["name"], "statistic": "worst", "bound_s": BOUND_S}]
        for body, (state, _) in zip(bodies, outcomes, strict=True)
        if state == "preview"
    }
    faults = [f"{body['name']}: {why}" for body, (s, why) in zip(bodies, outcomes, strict=True) if s == "undecided"]
    admitted = sum(state == "applied" for state, _ in outcomes)
    running = len({operator["query"] for operator in document["operators"]})
    if admitted != running:
        faults.append(f"{admitted} were told that they run, and {running} do")
    return ApplyRush(clients, admitted, time.monotonic() - began, [*faults, *unserial(document, refused)])


def _operators(body: dict[str, Any], document: dict[str, Any]) -> list[dict[str, Any]]:
    """Operators of a query as the exported document would have them, on its one node."""
    source = document["sources"][0]["id"]
    name, node = body["name"], document["nodes"][0]["id"]
    return [
        {
            "id": f"{name}/{operator['id']}",
            "query": name,
            "node": node,
            "inputs": [{**read, "from": source} for read in operator["inputs"]],
        }
        for operator in body["operators"]
    ]


def rush_pages(session: httpx.Client, begin: str, most: int) -> list[str]:
    """Follow the links of a healthy console, widely before deeply; addresses with the status of those that failed."""
    waiting, seen, failed = [begin], {begin}, []
    while waiting and len(seen) - len(waiting) < most:
        path = waiting.pop(0)
        page = session.get(path)
        if page.status_code >= 500:
            failed.append(f"{path} was answered with {page.status_code}")
        elif "text/html" in page.headers.get("content-type", ""):
            links = [link.partition("#")[0] for link in _LINKS.findall(page.text)]
            fresh = [link for link in dict.fromkeys(links) if link not in seen and not _UNWANTED.match(link)]
            seen.update(fresh)
            waiting += fresh
    return failed


@dataclass(frozen=True)
class SocketRush:
    """Times that WebSockets took to open while REST clients waited."""

    sockets: int
    waiting: int
    failed: int
    slowest_s: float


def rush_sockets(url: str, session: httpx.Client, callers: Sequence[RestCaller], slug: str, sockets: int) -> SocketRush:
    """Open so many WebSockets at once while each caller waits for a search of placements."""
    ledger, began = callers[0].ledger, threading.Event()

    def wait_for_search(i: int) -> None:
        began.set()
        body = {"cluster": slug, "budget_s": 3, "seed": 1000 + i}
        callers[i].post("/api/v1/placements", body, Write("placement", f"rush-{i}"), wait_s=20)

    async def open_one() -> float:
        opened = time.monotonic()
        headers = {"Cookie": f"sessionid={session.cookies.get('sessionid')}"}
        async with connect(
            url.replace("http", "ws", 1) + "/ws/",
            origin=Origin(url),
            additional_headers=headers,
            open_timeout=60,
        ):
            took_s = time.monotonic() - opened
            await asyncio.sleep(1.0)  # all at once, not one after another
        return took_s

    async def open_all() -> list[float | BaseException]:
        return await asyncio.gather(*(open_one() for _ in range(sockets)), return_exceptions=True)

    with ThreadPoolExecutor(len(callers)) as pool:
        waits = [pool.submit(wait_for_search, i) for i in range(len(callers))]
        began.wait()
        time.sleep(1.0)  # they are waiting by now
        took = asyncio.run(open_all())
        for wait in waits:
            wait.result()
    seconds = [value for value in took if isinstance(value, float)]
    for error in {repr(value) for value in took if isinstance(value, BaseException)}:
        ledger.note_fault(f"a socket did not open: {error}")
    return SocketRush(sockets, len(callers), sockets - len(seconds), max(seconds, default=0.0))
