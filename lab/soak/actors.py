"""Actors of a soak: token clients, browsers, an impatient API server of Kubernetes, a receiver of webhooks."""

from __future__ import annotations

import http.server
import json
import threading
import traceback
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from html.parser import HTMLParser
from random import Random
from typing import Any

import httpx
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect
from websockets.typing import Origin

from lab.soak.client_ledger import ClientLedger, RestCaller, Write
from launcher.places import LOOPBACK

__all__ = ["CLUSTER", "Actor", "Browser", "KubernetesClient", "TokenClient", "WebhookReceiver", "query_body", "sign_in"]

CLUSTER = "soak"
CAPACITY_CPS, RATE_EPS, BOUND_S = 1000.0, 100.0, 2.0


def query_body(cluster: str, name: str, load: float) -> dict[str, Any]:
    """A query of one operator that takes the share `load` of a core."""
    reads = {"from": "clicks", "selectivity": 1.0, "cycles_per_event": load * CAPACITY_CPS / RATE_EPS}
    operators = [{"id": "work", "inputs": [reads]}]
    return {
        "cluster": cluster,
        "name": name,
        "operators": operators,
        "objective": {"statistic": "worst", "bound_s": BOUND_S},
    }


class Actor(threading.Thread):
    """Does one of its deeds after another, drawn by its seed, until it is told to end."""

    pause_s = (0.05, 0.5)

    def __init__(self, name: str, seed: int, ledger: ClientLedger, ending: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.rng, self.ledger, self.ending = Random(f"{seed}/{name}"), ledger, ending
        self.deeds: Sequence[tuple[Callable[[], None], float]] = ()

    def run(self) -> None:
        deeds, weights = zip(*self.deeds, strict=True)
        while not self.ending.wait(self.rng.uniform(*self.pause_s)):
            try:
                self.rng.choices(deeds, weights)[0]()
            except Exception:
                self.ledger.note_fault(f"{self.name} met an answer that it cannot read:\n{traceback.format_exc()}")
        self.close()

    def close(self) -> None:
        """Let go of what it holds."""


class TokenClient(Actor):
    """A program with a token. Its queries and their descriptions are its own; the cluster is everybody's."""

    def __init__(
        self, name: str, seed: int, ledger: ClientLedger, ending: threading.Event, caller: RestCaller, report: int
    ) -> None:
        super().__init__(name, seed, ledger, ending)
        self._report = report
        self._caller, self._drafts, self._running = caller, list[Write](), list[Write]()
        self._made: list[tuple[str, dict[str, Any], Write]] = []
        self._counter = 0
        self.deeds = (
            (self.submit, 3.0),
            (self.admit, 4.0),
            (self.preview_and_apply, 3.0),
            (self.edit, 3.0),
            (self.stop_query, 2.0),
            (self.read, 3.0),
            (self.repeat, 1.0),
            (self.set_policy, 0.2),
            (self.place, 0.3),
            (self.withdraw, 0.5),
            (self.write_report, 0.5),
        )

    def close(self) -> None:
        self._caller.close()

    def _new(self, word: str) -> str:
        self._counter += 1
        return f"{word}-{self.name}-{self._counter}"

    def _post(self, path: str, body: dict[str, Any], write: Write, *, wait_s: int = 0) -> Write:
        self._caller.post(path, body, write, wait_s=wait_s)
        if write.is_acknowledged and not wait_s:
            self._made = [*self._made[-20:], (path, body, write)]
        return write

    def submit(self) -> None:
        name = self._new("q")
        body = query_body(CLUSTER, name, self.rng.uniform(0.05, 0.4))
        if (write := self._post("/api/v1/queries", body, Write("query", name))).is_acknowledged:
            self._drafts.append(write)

    def _any(self, queries: list[Write]) -> Write | None:
        return self.rng.choice(queries) if queries else None

    def _admission(self, query: Write, mode: str) -> Write:
        reason = self._new("why")
        body = {"cluster": CLUSTER, "query": query.subject, "mode": mode, "reason": reason}
        return self._post("/api/v1/admissions", body, Write("admission", reason, query.subject))

    def _decided(self, asked: Write) -> dict[str, Any] | None:
        """The request once its verdict is there, or as it is after a while."""
        address = asked.answer.get("result_api_url") or f"/api/v1/admissions/{asked.answer.get('id')}"
        return self._caller.read(address, wait_s=10)

    def admit(self) -> None:
        if query := self._any(self._drafts):
            asked = self._admission(query, "apply")
            if asked.is_acknowledged and (decided := self._decided(asked)) and decided["state"] == "applied":
                self._note_started(query)

    def preview_and_apply(self) -> None:
        if not (query := self._any(self._drafts)):
            return
        asked = self._admission(query, "preview")
        if not asked.is_acknowledged or not (decided := self._decided(asked)):
            return
        if decided["standing"]["can_apply"]:
            path = f"/api/v1/admissions/{decided['id']}/apply"
            if self._post(path, {}, Write("apply", decided["id"], query.subject)).is_acknowledged:
                self._note_started(query)

    def _note_started(self, query: Write) -> None:
        if query in self._drafts:
            self._drafts.remove(query)
            self._running.append(query)

    def withdraw(self) -> None:
        if not (query := self._any(self._drafts)):
            return
        asked = self._admission(query, "preview")
        if asked.is_acknowledged and (decided := self._decided(asked)):
            path = f"/api/v1/admissions/{decided['id']}/withdraw"
            self._post(path, {}, Write("withdraw", decided["id"], query.subject))

    def edit(self) -> None:
        if query := self._any([*self._drafts, *self._running]):
            path = f"/api/v1/queries/{query.answer['id']}"
            if etag := self._caller.etag(path):
                text = uuid.uuid4().hex
                write = Write("description", query.subject, text)
                self._caller.change("PATCH", path, {"description": text}, write, etag=etag)

    def stop_query(self) -> None:
        if query := self._any(self._running):
            path = f"/api/v1/queries/{query.answer['id']}/stop"
            if self._post(path, {}, Write("stop", query.subject)).is_acknowledged:
                self._running.remove(query)

    def repeat(self) -> None:
        if self._made:
            self._caller.post_again(*self.rng.choice(self._made))

    def read(self) -> None:
        lists = ("queries", "admissions", "jobs", "nodes", "changes", "estimates", "incidents")
        self._caller.read(f"/api/v1/{self.rng.choice(lists)}?page_size=20")
        self._caller.read(f"/api/v1/clusters/{CLUSTER}/queue")

    def write_report(self) -> None:
        self._post(f"/api/v1/report-definitions/{self._report}/run", {}, Write("report", self._new("report")))

    def set_policy(self) -> None:
        note = self._new("policy")
        policy = {"thin_below": round(self.rng.uniform(0.01, 0.3), 4)}
        path = f"/api/v1/clusters/{CLUSTER}/policy"
        self._caller.change("PUT", path, {"policy": policy, "note": note}, Write("policy", note))

    def place(self) -> None:
        body = {"cluster": CLUSTER, "budget_s": 1, "seed": self._counter}
        asked = self._post("/api/v1/placements", body, Write("placement", self._new("placement")))
        found = self._caller.read(asked.answer.get("result_api_url") or "", wait_s=0) if asked.is_acknowledged else None
        if found and found.get("standing", {}).get("can_apply"):
            path = f"/api/v1/placements/{found['id']}/apply"
            self._post(path, {"pace": 0, "batch_size": 5}, Write("moves", str(found["id"])))


class _Form(HTMLParser):
    """Fields of the first form of a page that posts `csrfmiddlewaretoken` and has the field that is asked for."""

    def __init__(self, text: str, wanted: str) -> None:
        super().__init__()
        self.forms: list[dict[str, str]] = []
        self._select = self._area = ""
        self.feed(text)
        self.fields = next((form for form in self.forms if wanted in form), {})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append({})
        if not self.forms:
            return
        if tag == "input" and values.get("name") and values.get("type") not in ("submit", "checkbox", "radio", "file"):
            self.forms[-1][values["name"]] = values.get("value", "")
        elif tag == "select":
            self._select = values.get("name", "")
        elif tag == "option" and self._select and ("selected" in values or self._select not in self.forms[-1]):
            self.forms[-1][self._select] = values.get("value", "")
        elif tag == "textarea":
            self._area = values.get("name", "")
            self.forms[-1][self._area] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._area = ""
        elif tag == "select":
            self._select = ""

    def handle_data(self, data: str) -> None:
        if self._area and self.forms:
            self.forms[-1][self._area] += data


def sign_in(url: str, username: str, password: str) -> httpx.Client:
    """A browser's session, with its cookie."""
    session = httpx.Client(base_url=url, timeout=40.0, trust_env=False, headers={"Origin": url, "Referer": f"{url}/"})
    fields = _Form(session.get("/login/").text, "password").fields
    answer = session.post("/login/", data={**fields, "username": username, "password": password})
    if answer.status_code != 302 or "sessionid" not in session.cookies:
        raise RuntimeError(f"nobody could sign in: {answer.status_code}")
    return session


class Browser(Actor):
    """A person at the pages: opens them, edits a query by its form, and has a WebSocket open all the while."""

    pages = ("", "queries/", "fleet/", "admission/", "changes/", "incidents/", "settings/policy/", "fleet/pools/")

    def __init__(
        self, name: str, seed: int, ledger: ClientLedger, ending: threading.Event, url: str, session: httpx.Client
    ) -> None:
        super().__init__(name, seed, ledger, ending)
        self._url, self._session = url, session
        self._socket = threading.Thread(target=self._listen, name=f"socket of {name}", daemon=True)
        self.deeds = ((self.look, 4.0), (self.edit, 2.0))

    def run(self) -> None:
        self._socket.start()
        super().run()

    def _ask(self, method: str, path: str, **more: Any) -> httpx.Response | None:
        response = None
        with suppress(httpx.HTTPError):
            response = self._session.request(method, path, **more)
        self.ledger.note_answer(f"{method} {path}", response, response.elapsed.total_seconds() if response else 0.0)
        return response

    def look(self) -> None:
        self._ask("GET", f"/c/{CLUSTER}/{self.rng.choice(self.pages)}")

    def edit(self) -> None:
        """Write another description of this browser's own query into its form."""
        name, text = f"q-{self.name}", uuid.uuid4().hex
        page = self._ask("GET", f"/c/{CLUSTER}/queries/{name}/edit/")
        if page is None or page.status_code != 200:
            return
        fields = _Form(page.text, "description").fields
        write = self.ledger.begin(Write("form", name, text))
        write.request_ids.append(uuid.uuid4().hex)
        answer = self._ask(
            "POST",
            f"/c/{CLUSTER}/queries/{name}/edit/",
            data={**fields, "description": text},
            headers={"X-Request-ID": write.request_ids[0]},
        )
        if answer is not None and answer.status_code in (302, 303):
            write.status = 200
        elif answer is not None and answer.status_code < 500:
            write.status = 409

    def _listen(self) -> None:
        cookie = f"sessionid={self._session.cookies.get('sessionid')}"
        address = self._url.replace("http", "ws", 1) + "/ws/"
        while not self.ending.is_set():
            try:
                with connect(address, origin=Origin(self._url), additional_headers={"Cookie": cookie}) as socket:
                    while not self.ending.is_set():
                        try:
                            socket.recv(timeout=1.0)
                        except TimeoutError:
                            continue
                        self.ledger.note_socket_message()
            except (OSError, WebSocketException):
                self.ending.wait(1.0)


class KubernetesClient(Actor):
    """An API server whose patience is at times shorter than a verdict takes, and which asks again with the same uid."""

    pause_s = (1.0, 3.0)

    def __init__(
        self, name: str, seed: int, ledger: ClientLedger, ending: threading.Event, url: str, token: str
    ) -> None:
        super().__init__(name, seed, ledger, ending)
        self._http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False)
        self._count = 0
        self.deeds = ((self.review, 1.0),)

    def review(self) -> None:
        self._count += 1
        name = f"k8s-{self._count}"
        question = query_body(CLUSTER, name, self.rng.uniform(0.05, 0.2))
        document = {"query": name, "operators": question["operators"], "objective": question["objective"]}
        metadata = {"name": name, "namespace": "streams", "annotations": {"sluice.io/document": json.dumps(document)}}
        kind = {"group": "flink.apache.org", "version": "v1beta1", "kind": "FlinkDeployment"}
        spec = {"job": {"jarURI": "local:///job.jar", "parallelism": 1}, "flinkVersion": "v1_18"}
        manifest = {"apiVersion": "flink.apache.org/v1beta1", "kind": kind["kind"], "metadata": metadata, "spec": spec}
        request: dict[str, Any] = {
            "uid": str(uuid.UUID(int=self.rng.getrandbits(128))),
            "kind": kind,
            "resource": {**{k: kind[k] for k in ("group", "version")}, "resource": "flinkdeployments"},
            "name": name,
            "namespace": "streams",
            "operation": "CREATE",
            "userInfo": {"username": "soak"},
            "object": manifest,
            "oldObject": None,
            "dryRun": False,
            "options": None,
        }
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        for patience_s in (self.rng.choice((0.3, 1.0, 3.0)), 5.0):
            write = self.ledger.begin(Write("review", request["uid"], name))
            response = None
            with suppress(httpx.HTTPError):
                path = f"/webhooks/kubernetes/admission/{CLUSTER}?timeout={max(1, round(patience_s))}s"
                response = self._http.post(path, json=body, timeout=patience_s)
            self.ledger.note_answer("POST /webhooks/kubernetes/admission", response, 0.0)
            if response is not None and response.status_code == 200:
                write.status, write.answer = 200, response.json()["response"]

    def close(self) -> None:
        self._http.close()


class WebhookReceiver:
    """Takes signed messages, and refuses some: they have to come again under the same number."""

    def __init__(self, seed: int, ledger: ClientLedger) -> None:
        rng, lock = Random(f"{seed}/receiver"), threading.Lock()

        class ReceiverHandler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with lock:
                    is_taken = rng.random() < 0.8
                if is_taken:
                    ledger.note_received(self.headers.get("Sluice-Delivery", ""))
                self.send_response(204 if is_taken else 503)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        self._server = http.server.ThreadingHTTPServer((LOOPBACK, 0), ReceiverHandler)
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, name="receiver", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
