"""One agent, from its start to its end: state folder, spool, sender, talk with the console, and its work."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import psutil

from agent import VERSION
from agent.collect import Collector, make_collector
from agent.config import AgentConfig, config_line
from agent.runtime import Runtime, Spool
from agent.runtime.downstream import Costs
from agent.runtime.reports import spool_report
from agent.settings import AgentSettings, ReadableFolders, lock_folder
from agent.uplink.console import Client, Identity, wait_for_enrolment
from agent.uplink.control import Control, cached_config
from agent.uplink.sender import CONSOLE, LocalFrames, SpoolSender
from engine.errors import DocumentError, Fault
from engine.files import replace_file

__all__ = ["AgentService", "SourceAgent"]

log = logging.getLogger(__name__)


class SourceAgent:
    """Runs the epochs of one agent. `run` belongs to one thread; the others may be called from any.

    `notify` is called, by that thread, when the console has something to hear at once.
    """

    kind = "agent"

    def __init__(
        self, config: AgentConfig, spool: Spool, readable: ReadableFolders, notify: Callable[[], None] = lambda: None
    ) -> None:
        self._readable = readable
        self._collectors = {
            name: (source, make_collector(name, source, readable)) for name, source in config.sources.items()
        }
        self._retired: list[tuple[float, Collector]] = []
        self._lock = threading.Lock()
        self._epoch_s = config.epoch_s
        self._runtime = Runtime(config, self._sources(), spool, notify=notify)

    def apply(self, config: AgentConfig) -> None:
        """Go over to another configuration at the next epoch. Collectors that stay the same go on as they are."""
        with self._lock:
            old, self._collectors = self._collectors, {}
            for name, source in config.sources.items():
                before = old.get(name)
                stays = before is not None and before[0] == source
                self._collectors[name] = (
                    old.pop(name) if stays else (source, make_collector(name, source, self._readable))
                )
            until = time.monotonic() + 2 * max(self._epoch_s, config.epoch_s)  # the epoch under way still asks them
            self._retired += [(until, collector) for _, collector in old.values()]
            self._epoch_s = config.epoch_s
            self._runtime.apply(config, self._sources())

    def run(self, stopping: threading.Event) -> None:
        """Epoch after epoch until it is to stop; the epoch under way is finished."""
        wait_s = 0.0
        while not stopping.wait(wait_s):
            wait_s = self._runtime.tick()
            self._let_go()
        self._runtime.close()
        for _, collector in self._retired:
            collector.close()
        for _, collector in self._collectors.values():
            collector.close()

    def report(self) -> dict[str, Any]:
        """The heartbeat's part of the runtime and the collectors."""
        state = self._runtime.state()
        with self._lock:
            reports = [self._collector_report(collector, state) for _, collector in self._collectors.values()]
        return {
            "queries": state["queries"],
            "collectors": reports,
            "schedule": state["schedule"],
            "faults": state["faults"],
            "epoch_us": state["epoch_us"],
        }

    def unreported(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of unreported epochs by query."""
        return self._runtime.unreported()

    def mark_reported(self, queries: Mapping[str, int]) -> None:
        """Acknowledge the epochs of these queries up to these times."""
        self._runtime.mark_reported(queries)

    def downstream(self, costs: Costs) -> None:
        """Set the costs of retired rows at the relay above; from any thread."""
        self._runtime.scheduler.downstream = costs

    def _collector_report(self, collector: Collector, state: dict[str, Any]) -> dict[str, Any]:
        document = collector.report()
        seen = state["sources"].get(collector.name, {})
        # what the runtime had no room for comes to what the collector itself lost
        document["shed"] = max(document["shed"], seen.get("shed", 0))
        document["faults"] = [
            *document["faults"],
            *(fault for fault in seen.get("faults", ()) if fault not in document["faults"]),
        ]
        return document

    def _sources(self) -> dict[str, Collector]:
        return {name: collector for name, (_, collector) in self._collectors.items()}

    def _let_go(self) -> None:
        if not self._retired:
            return
        now = time.monotonic()
        with self._lock:
            gone = [collector for until, collector in self._retired if until <= now]
            self._retired = [entry for entry in self._retired if entry[0] > now]
        for collector in gone:
            collector.close()


STATUS_FILE = "status.json"
STATUS_S = 2.0
_NO_SPOOL = {"frames": 0, "bytes": 0, "limit_bytes": 0, "state": "ok"}
FLUSH_S = 2.0  # frames that are under way when the agent is asked to stop; the rest is in the spool


class _Role(Protocol):
    kind: str

    def apply(self, config: AgentConfig) -> None: ...
    def run(self, stopping: threading.Event) -> None: ...
    def report(self) -> dict[str, Any]: ...
    def unreported(self) -> dict[str, list[dict[str, Any]]]: ...
    def mark_reported(self, queries: Mapping[str, int]) -> None: ...


class AgentService:
    """Runs until `stopping` is set."""

    def __init__(self, settings: AgentSettings) -> None:
        self.stopping = threading.Event()
        self._settings = settings
        self._began = time.monotonic()
        self._process = psutil.Process()
        self._cpu = (time.monotonic(), time.process_time())
        self._cores = 0.0
        self._config: AgentConfig | None = None
        self._changed = threading.Event()  # the work at hand is over: it is to stop, or to become another
        self._configured = threading.Event()
        self._lock = threading.Lock()
        self._spool: Spool | None = None
        self._role: _Role | None = None
        self._control: Control | None = None
        self._sender: SpoolSender | LocalFrames | None = None
        self._identity: Identity | None = None

    def stop(self) -> None:
        """Stop, from a signal handler: end the epoch, send pending frames, send a last heartbeat."""
        self.stopping.set()
        self._configured.set()
        self._changed.set()

    def run(self) -> None:
        """The whole life.

        Raises
        ------
        InUse
            Another agent runs on the state folder.
        Refused
            The console does not enrol this agent.
        DocumentError
            The configuration of an agent without a console has faults.
        """
        folder = self._settings.state_dir
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = lock_folder(folder)
        try:
            begun = self._begin_local() if self._settings.local else self._begin_connected()
            if begun:
                self._serve()
        finally:
            self._end()
            os.close(lock)

    # Beginning

    def _begin_local(self) -> bool:
        local = self._settings.local
        assert local is not None
        try:
            document = json.loads(local.config.read_text())
        except (OSError, ValueError) as error:
            raise DocumentError([Fault("local.config", f"{local.config}: {error}")], "configuration") from error
        self._config = AgentConfig.parse(document)
        self._open_spool(self._config)
        assert self._spool is not None
        self._sender = LocalFrames(self._spool, local.frames)
        return True

    def _begin_connected(self) -> bool:
        self._identity = wait_for_enrolment(self._settings, self.stopping)
        if self._identity is None:
            return False
        self._config = cached_config(self._settings.state_dir, self._identity.agent)
        self._control = Control(
            self._client_of(CONSOLE),
            self._identity,
            self._settings.state_dir,
            report=self._heartbeat,
            progress=self._on_heartbeat_answer,
            post_marker=self._post_marker,
            adopt=self._adopt,
        )
        if self._config is not None:
            self._open_spool(self._config)
        self._control.start()
        if self._config is None:
            log.info("waiting for the first configuration from %s", self._settings.url)
            self._configured.wait()
        return not self.stopping.is_set()

    def _open_spool(self, config: AgentConfig) -> None:
        self._spool = Spool(self._settings.state_dir / "spool", config.spool_max_bytes)
        for fault in self._spool.faults:
            log.warning("spool: %s", fault)

    # Running

    def _serve(self) -> None:
        """Work as the configuration says; begin anew where the role or the receiver changes."""
        status = threading.Thread(target=self._keep_status, name="status", daemon=True)
        status.start()
        while not self.stopping.is_set():
            with self._lock:
                config = self._config
                assert config is not None
                if self._spool is None:
                    self._open_spool(config)
                self._changed.clear()
                self._start_sender(config)
                self._role = self._role_of(config)
            log.info("configuration %d: %s", config.version, config_line(config))
            if self.stopping.is_set():
                self._changed.set()
            self._role.run(self._changed)
            self._stop_sender()

    def _role_of(self, config: AgentConfig) -> _Role:
        assert self._spool is not None
        if config.relay is not None:
            from agent.relay.relay import Relay

            return Relay(config, self._spool)
        return SourceAgent(config, self._spool, self._settings.readable, notify=self._beat_soon)

    def _start_sender(self, config: AgentConfig) -> None:
        assert self._spool is not None
        if self._settings.local is None:
            assert self._identity is not None
            route = config.parent.url if config.parent is not None else CONSOLE
            folder = self._settings.state_dir
            self._sender = SpoolSender(self._spool, self._client_of, folder, route=route, costs=self._on_costs)
        assert self._sender is not None
        self._sender.start()

    def _on_costs(self, costs: Costs) -> None:
        """Take in the costs of this agent's rows at the relay above; called by the sender's thread."""
        if isinstance(self._role, SourceAgent):
            self._role.downstream(costs)

    def _client_of(self, route: str) -> Client:
        """A way to the console, or to the relay at that address."""
        assert self._identity is not None
        url = self._settings.url if route == CONSOLE else route
        return Client(url, secret=self._identity.secret, ca_file=self._settings.ca_file)

    def _stop_sender(self) -> None:
        if self._sender is not None:
            self._sender.stop(FLUSH_S if self.stopping.is_set() else 0.0)

    def _end(self) -> None:
        if self._control is not None:
            self._control.stop()
        if self._spool is not None:
            self._write_status()
            self._spool.close()

    def _beat_soon(self) -> None:
        """Send a heartbeat before the next one is due; from any thread."""
        if self._control is not None:
            self._control.wake()

    # Called by the control thread

    def _adopt(self, config: AgentConfig) -> None:
        with self._lock:
            before, self._config = self._config, config
            if self._spool is not None:
                self._spool.limit_bytes = config.spool_max_bytes
            if before is not None and self._role is not None:
                if (before.relay is None, before.parent) != (config.relay is None, config.parent):
                    self._changed.set()  # restart in the new role
                else:
                    self._role.apply(config)
                    if before.version != config.version:
                        log.info("configuration %d: %s", config.version, config_line(config))
        self._configured.set()

    def _post_marker(self) -> int | None:
        return self._sender.post_marker() if isinstance(self._sender, SpoolSender) else None

    def _on_heartbeat_answer(self, document: Mapping[str, Any], content: Mapping[str, Any], since: int | None) -> None:
        """Take in the answer to a heartbeat: its epochs are acknowledged, and the frames' position is known."""
        if self._role is not None:
            self._role.mark_reported(
                {query["query"]: query["epochs"][-1]["e"] for query in document["queries"] if query["epochs"]}
            )
        spool = self._spool
        if not isinstance(self._sender, SpoolSender) or spool is None or document["life"] != spool.life:
            return
        committed = content.get("committed_seq")
        self._sender.reconcile(content.get("accepted_seq"), committed if isinstance(committed, int) else 0, since)

    # Reporting

    def _heartbeat(self) -> dict[str, Any]:
        """Heartbeat of the agent, with the epochs not acknowledged yet."""
        document, work = self._report(), self._role
        epochs = work.unreported() if work is not None else {}
        return document | {
            "queries": [query | {"epochs": epochs.get(query["query"], [])} for query in document["queries"]]
        }

    def _report(self) -> dict[str, Any]:
        """State of the agent."""
        spool, sender, control = self._spool, self._sender, self._control
        config, work = self._config, self._role
        document: dict[str, Any] = (
            work.report() if work is not None else {"queries": [], "collectors": [], "faults": []}
        )
        faults = [*document["faults"]]
        if sender is not None and sender.fault:
            faults.append(f"frames: {sender.fault}")
        if isinstance(sender, SpoolSender) and sender.ignored:
            faults.append(f"{sender.ignored} costs that the relay told could not be used")
        if control is not None:
            faults += control.config_faults
        return {
            **document,
            "life": spool.life if spool is not None else "none",
            "version": VERSION,
            "kind": work.kind if work is not None else "agent",
            "state": "stopping" if self.stopping.is_set() else "running",
            "time": time.time(),
            "uptime_s": round(time.monotonic() - self._began, 3),
            "rss_bytes": self._process.memory_info().rss,
            "cpu_cores": self._used_cores(),
            "budget_cores": config.budget_cores if config is not None else 0.0,
            "spool": spool_report(spool) if spool is not None else _NO_SPOOL,
            "sent_seq": sender.sent_seq if sender is not None else 0,
            "acked_seq": spool.acked_seq if spool is not None else 0,
            "committed_seq": spool.committed_seq if spool is not None else 0,
            "config_version": config.version if config is not None else 0,
            "sender": {"state": sender.state, "fault": sender.fault} if sender is not None else {},
            "faults": faults,
        }

    def _used_cores(self) -> float:
        """Processor time of the whole process, over a second at least: heartbeat and status file both ask."""
        (before_s, before_cpu_s), (now_s, cpu_s) = self._cpu, (time.monotonic(), time.process_time())
        if now_s - before_s >= 1.0:
            self._cpu = (now_s, cpu_s)
            self._cores = round((cpu_s - before_cpu_s) / (now_s - before_s), 4)
        return self._cores

    def _keep_status(self) -> None:
        while not self.stopping.wait(STATUS_S):
            self._write_status()

    def _write_status(self) -> None:
        document = self._report() | {"name": self._settings.name, "pid": os.getpid(), "url": self._settings.url}
        if self._control is not None:
            control = self._control
            document["console"] = {"state": control.state, "fault": control.fault, "push": control.push_state}
        try:
            replace_file(self._settings.state_dir / STATUS_FILE, json.dumps(document).encode())
        except OSError as error:
            log.warning("%s cannot be written: %s", STATUS_FILE, error.strerror)
