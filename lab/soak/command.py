"""``./sluice lab soak``: a console, its databases and its clients, while everything that can fail does.

Exit status 1 where a promise was broken: something acknowledged was lost or done twice, more was admitted than fits,
something has no end, a request was answered with 500, memory grows, or the ledger is not as it was written.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.benchmarks.machine import machine
from lab.soak.actors import CLUSTER, Actor, Browser, KubernetesClient, TokenClient, WebhookReceiver, query_body, sign_in
from lab.soak.client_ledger import ClientLedger, RestCaller, Write
from lab.soak.comparison import doubled, late_queries, lost, unanswered
from lab.soak.faults import FaultActor
from lab.soak.installation import PASSWORD, SoakConsole
from lab.soak.memory import MemorySampler
from lab.soak.rush import ApplyRush, SocketRush, make_cluster, rush_applies, rush_pages, rush_sockets

__all__ = ["main"]

_NODES = ("a", "b", "c")
_PAGES = 120
_SETTLE_S = 240.0  # from the last fault until every job has its end
_SOCKET_BOUND_S = 5.0
_GROWTH_BOUND_MB_PER_MIN = 10.0
_ENOUGH_S = 300.0  # life of a process from which on its growth says something
_SNAPSHOT_EVERY_S = 15.0


@dataclass
class _Report:
    """Promises with what broke them, and figures, as they are shown in the end."""

    broken: dict[str, list[str]] = field(default_factory=dict)
    figures: list[tuple[str, str]] = field(default_factory=list)

    def promise(self, name: str, faults: list[str]) -> None:
        self.broken[name] = faults

    def figure(self, name: str, value: object) -> None:
        self.figures.append((name, str(value)))

    def show(self) -> bool:
        """Print it; whether all was kept."""
        for name, value in self.figures:
            print(f"  {name:<44} {value}")
        print()
        for name, faults in self.broken.items():
            print(f"  {'kept  ' if not faults else 'BROKEN'}  {name}")
            for fault in faults[:20]:
                print(f"            {fault}")
            if len(faults) > 20:
                print(f"            and {len(faults) - 20} more")
        return not any(self.broken.values())


def main(arguments: Sequence[str]) -> int:
    """Run it and print the report; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="sluice lab soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of faults (10)")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1, help="of what actors do and what fails (1)")
    parser.add_argument("--clients", type=int, default=6, help="programs with a token (6)")
    parser.add_argument("--applies", type=int, default=100, help="at once, on room for some of them (100)")
    parser.add_argument("--sockets", type=int, default=200, help="opened at once while 20 clients wait (200)")
    parser.add_argument("--no-faults", action="store_true", help="actors alone, to see memory and times without")
    parser.add_argument("--keep", type=Path, metavar="F", help="folder for the logs of all processes")
    asked = parser.parse_args(arguments)
    if not asked.minutes > 0.0 or min(asked.clients, asked.applies, asked.sockets) < 1:
        parser.error("minutes are above 0; clients, applies and sockets at least 1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what it has started ends with it
    print(f"{machine()}; {asked.database}, seed {asked.seed}, {asked.minutes:g} min of faults", flush=True)
    return 0 if _Soak(asked).run().show() else 1


class _Soak:
    """One run: set-up, rushes, actors and faults, calm, comparison."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._ledger = ClientLedger()
        self._given_up, self._ending, self._faults_end = threading.Event(), threading.Event(), threading.Event()
        self._documents: list[dict[str, Any]] = []

    def run(self) -> _Report:
        asked, report = self._asked, _Report()
        with ExitStack() as stack:
            console = SoakConsole(asked.database)
            stack.callback(console.stop, asked.keep)
            receiver = WebhookReceiver(asked.seed, self._ledger)
            stack.callback(receiver.close)
            began = time.monotonic()
            console.start(max(asked.clients, 20) + 1)
            report.figure("console and its database", f"{time.monotonic() - began:.0f} s until all services ran")
            callers = [RestCaller(console.url, secret, self._ledger, self._given_up) for secret in console.tokens]
            definition = self._set_up(callers[0], receiver.url)
            sampler = MemorySampler(console, self._ending)
            sampler.start()
            applies = rush_applies(callers[:20], asked.seed, asked.applies)
            _say(f"{applies.admitted} of {applies.clients} applies admitted in {applies.took_s:.0f} s")
            session = sign_in(console.url, "admin", PASSWORD)
            report.promise(f"{_PAGES} pages of the console open", rush_pages(session, "/c/rush/", _PAGES))
            sockets = rush_sockets(console.url, session, callers[:20], "rush", asked.sockets)
            _say(f"slowest of {sockets.sockets} sockets {sockets.slowest_s:.2f} s")
            actors = self._actors(console, callers, definition)
            faults = FaultActor(console, asked.seed, self._ledger, self._faults_end)
            self._live(actors, faults, callers[-1])
            settled_s = self._settle(console, callers[-1])
            self._ending.set()
            story = console.server_ledger()
            self._compare(report, story, receiver, applies, sockets)
            self._tell(report, faults, sampler, settled_s)
            try:
                report.figure("ledger verify", console.manage("ledger", "verify").strip())
                report.promise("the chain of the ledger is as it was written", [])
            except RuntimeError as error:
                report.promise("the chain of the ledger is as it was written", [str(error)])
            report.figure("tracebacks in logs", _tracebacks(console))
        return report

    def _set_up(self, caller: RestCaller, hook: str) -> int:
        """The cluster, the browsers' queries, and a report that a webhook is told of; its number."""
        make_cluster(caller, CLUSTER, _NODES)
        for i in range(2):
            body = query_body(CLUSTER, f"q-browser-{i}", 0.05)
            caller.post("/api/v1/queries", body, Write("query", body["name"]))
        webhook: dict[str, Any] = {}
        write = Write("set-up", "webhook")
        caller.change("POST", "/api/v1/webhooks", {"cluster": CLUSTER, "name": "receiver", "url": hook}, write)
        webhook = write.answer
        body = {
            "cluster": CLUSTER,
            "kind": "latency",
            "name": "Soak",
            "parameters": {"query": "q-browser-0"},
            "formats": ["csv"],
            "webhooks": [webhook["id"]],
        }
        made = caller.post("/api/v1/report-definitions", body, Write("set-up", "report"))
        if not made.is_acknowledged:
            raise RuntimeError(f"no report can be defined: {made.status} {made.answer}")
        return int(made.answer["id"])

    def _actors(self, console: SoakConsole, callers: Sequence[RestCaller], definition: int) -> list[Actor]:
        seed, ledger, ending = self._asked.seed, self._ledger, self._ending
        sessions = [sign_in(console.url, "admin", PASSWORD) for _ in range(2)]
        return [
            *(TokenClient(f"t{i}", seed, ledger, ending, callers[i], definition) for i in range(self._asked.clients)),
            *(
                Browser(f"browser-{i}", seed, ledger, ending, console.url, session)
                for i, session in enumerate(sessions)
            ),
            KubernetesClient("kubernetes", seed, ledger, ending, console.url, console.tokens[0]),
        ]

    def _live(self, actors: Sequence[Actor], faults: FaultActor, caller: RestCaller) -> None:
        """Actors and faults for the time that was asked for."""
        looks = threading.Thread(target=self._look, args=[caller], name="looks", daemon=True)
        for thread in (*actors, looks):
            thread.start()
        if self._asked.no_faults:
            self._faults_end.wait()
        else:
            faults.run()
        looks.join()
        self._ending.set()
        for actor in actors:
            actor.join(120.0)
        self._given_up.set()
        for actor in actors:
            actor.join(60.0)
            if actor.is_alive():
                self._ledger.note_fault(f"{actor.name} still waits for an answer")
        _say(f"{sum(faults.done.values())} faults are over")

    def _look(self, caller: RestCaller) -> None:
        """Keep what runs, every now and then, and end the faults when their time is over."""
        until = time.monotonic() + 60.0 * self._asked.minutes
        while (left_s := until - time.monotonic()) > 0.0 and not self._faults_end.wait(min(_SNAPSHOT_EVERY_S, left_s)):
            if document := caller.read(f"/api/v1/clusters/{CLUSTER}/document"):
                self._documents.append(document)
        self._faults_end.set()

    def _settle(self, console: SoakConsole, caller: RestCaller) -> float | None:
        """Seconds until all that was asked before has its end; None where it has none in time."""
        self._calm_since = datetime.now(UTC).isoformat(sep=" ")
        began, since = time.monotonic(), self._calm_since
        while time.monotonic() - began < _SETTLE_S:
            listed = caller.read("/api/v1/jobs?state=queued&state=running&sort=created_at&page_size=200")
            if listed is not None and not [j for j in listed["results"] if j["created_at"].replace("T", " ") < since]:
                return time.monotonic() - began
            time.sleep(1.0)
        return None

    def _compare(
        self,
        report: _Report,
        story: dict[str, Any],
        receiver: WebhookReceiver,
        applies: ApplyRush,
        sockets: SocketRush,
    ) -> None:
        writes, ledger = self._ledger.writes, self._ledger
        report.promise("nothing acknowledged is lost", lost(writes, story))
        report.promise("nothing is done twice", doubled(writes, story))
        self._documents += story["documents"].values()
        late = {fault for document in self._documents for fault in late_queries(document)}
        report.promise(f"what runs holds when it is estimated anew, {len(self._documents)} moments", sorted(late))
        report.promise(
            "everything begun has its end, everything sent has arrived",
            unanswered(writes, story, ledger.received, self._calm_since),
        )
        report.promise("no answer is 500, and every answer can be read", ledger.faults)
        report.promise(
            f"{applies.clients} applies at once admit what a serial order would ({applies.admitted} admitted)",
            applies.faults,
        )
        late_sockets = [] if sockets.slowest_s <= _SOCKET_BOUND_S else [f"the slowest took {sockets.slowest_s:.1f} s"]
        late_sockets += [f"{sockets.failed} did not open"] if sockets.failed else []
        report.promise(
            f"{sockets.sockets} sockets open within {_SOCKET_BOUND_S:g} s while {sockets.waiting} clients wait "
            f"(slowest {sockets.slowest_s:.2f} s)",
            late_sockets,
        )
        failed = (f"{job['kind']} ({(job['error'] or {}).get('message', '')})" for job in story["failed"])
        report.figure("failed jobs", _counted(failed))
        report.figure("messages of webhooks", f"{len(ledger.received)}, {sum(ledger.received.values())} times")
        report.figure("messages of sockets", ledger.socket_messages)

    def _tell(self, report: _Report, faults: FaultActor, sampler: MemorySampler, settled_s: float | None) -> None:
        ledger = self._ledger
        report.figure("answers", ", ".join(f"{n} of {status}" for status, n in sorted(ledger.statuses.items())))
        report.figure("slowest answer", f"{ledger.slowest_s:.1f} s")
        report.figure("writes acknowledged", _counted(write.kind for write in ledger.writes if write.is_acknowledged))
        report.figure("writes without an answer", sum(write.status is None for write in ledger.writes))
        report.figure("faults", ", ".join(f"{name} {n}" for name, n in sorted(faults.done.items())))
        report.figure("left out", "; ".join(faults.left_out))
        report.figure("slowest recovery", f"{faults.slowest_recovery_s:.1f} s, what was held included")
        report.figure("calm", "not reached" if settled_s is None else f"{settled_s:.1f} s after the last fault")
        growing = []
        for growth in sampler.growths(_ENOUGH_S):
            slope = "not known" if growth.mb_per_min is None else f"{growth.mb_per_min:+.1f} MB a minute"
            report.figure(
                f"memory of {growth.service}", f"{growth.resident_mb:.0f} MB, {slope}, {growth.lived_s:.0f} s"
            )
            if growth.mb_per_min is not None and growth.mb_per_min > _GROWTH_BOUND_MB_PER_MIN:
                growing.append(f"{growth.service} grows by {growth.mb_per_min:.1f} MB a minute")
        known = [growth.service for growth in sampler.growths(_ENOUGH_S) if growth.mb_per_min is not None]
        if known:
            report.promise(
                f"memory of {', '.join(known)} grows by no more than {_GROWTH_BOUND_MB_PER_MIN:g} MB a minute", growing
            )
        else:
            report.figure("growth of memory", f"not known: no process lived for {_ENOUGH_S:g} s")


def _counted(words: Any) -> str:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return ", ".join(f"{n} {word}" for word, n in sorted(counts.items())) or "none"


def _tracebacks(console: SoakConsole) -> str:
    """Number of errors in the logs of each service that nobody expected."""
    return _counted(
        name
        for name in ("web", "worker", "background", "beat")
        for _ in range(console.log(name).count("Traceback (most recent call last)"))
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
