"""`./sluice connect`: a connection made or found, checked, imported, and what became of it as text and exit status."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from client.console import ConsoleConnection
from client.errors import ClientError
from client.report import estimate_status, estimate_text
from engine.listing import column_lines

__all__ = ["CONNECT_EXIT_TEXT", "connect_engine", "operators_of"]

CONNECT_EXIT_TEXT = """exit status:
  0  checked or imported; every objective of its queries holds
  1  the console was not reached, the engine is away or cannot be asked, or no job runs there
  2  wrong usage
  3  imported, and an objective of its queries is breached
  4  imported, and an objective of its queries is at risk"""
_FAILED = 1
_TOKEN_VARIABLE = "SLUICE_ENGINE_TOKEN"
_MAX_FILE_BYTES = 1024 * 2**20
_SHOWN = 3  # findings of a kind that changes the answer


def connect_engine(
    console: ConsoleConnection,
    *,
    cluster: str,
    new_cluster: bool,
    url: str | None,
    upload: str | None,
    engine: str,
    name: str | None,
    token_file: str | None,
    ca: str | None,
    settings: Mapping[str, Any],
    jobs: Sequence[str],
    objectives: Mapping[str, Any],
    only_check: bool,
    wait: bool,
    is_quiet: bool,
) -> tuple[int, dict[str, Any], str]:
    """Exit status, answer for programs, and text for people.

    A connection of that name that exists already is used again; a token, certificates and `settings` (fields of it)
    that are given replace its own. So is the cluster with `new_cluster`, which makes one where there is none.
    """
    if new_cluster:
        _make_cluster(console, cluster)
    wanted: dict[str, Any] = {"cluster": cluster, "name": name or _name_of(url, engine), "engine": engine}
    changed: dict[str, Any] = dict(settings)
    if url is not None:
        wanted["url"] = url
    if token := _token(token_file):
        changed["token"] = token
    if ca is not None:
        changed["ca_pem"] = _read(ca).decode("utf-8", "replace")
    connection = _made(console, wanted, changed)
    path = f"/api/v1/connections/{connection['id']}"
    if upload is not None:
        console.post_file(f"{path}/upload", Path(upload).name, _read(upload))
    show = None if is_quiet else _Progress()
    address = console.address(f"/c/{cluster}/connections/{connection['id']}/")
    if only_check:
        checked = console.post_job(f"{path}/check", {}, show=show)
        status = 0 if _found_jobs(checked) else _FAILED
        return status, {"url": address, "connection": checked}, _check_text(checked, address)
    asked: dict[str, Any] = {"objectives": dict(objectives)} if objectives else {}
    asked |= {"jobs": list(jobs)} if jobs else {}
    if not wait:
        job = console.post(f"{path}/import", asked)
        return 0, {"url": address, "job": job}, f"The import goes on as {console.address(str(job.get('url') or ''))}"
    imported = console.post_job(f"{path}/import", asked, show=show)
    rows = console.get(
        f"/api/v1/imported-jobs?cluster={quote(cluster)}&connection={quote(wanted['name'])}&page_size=200"
    )
    names = [str(row.get("query")) for row in rows.get("results") or []]
    answer: dict[str, Any] = {"url": address, "connection": imported, "queries": names}
    if not names:
        return 0 if engine == "kafka" else _FAILED, answer, _check_text(imported, address)
    estimate = console.post_job("/api/v1/estimates", {"cluster": cluster}, show=show)
    own = {**estimate, "queries": [row for row in estimate.get("queries") or [] if row.get("query") in names]}
    answer["estimate"] = own
    text = "\n".join([_check_text(imported, address), "", "Running as queries", estimate_text(own)])
    return estimate_status(own), answer, text


def _found_jobs(connection: Mapping[str, Any]) -> bool:
    return all(finding.get("code") != "jobs_missing" for finding in connection.get("findings") or [])


def _make_cluster(console: ConsoleConnection, slug: str) -> None:
    """Make a cluster of that slug, with the console's defaults, unless it is there."""
    try:
        console.get(f"/api/v1/clusters/{quote(slug, safe='')}")
    except ClientError as error:
        if error.code != "missing":
            raise
        console.post("/api/v1/clusters", {"slug": slug, "name": slug})


def _made(console: ConsoleConnection, wanted: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """The connection of that name in the cluster, made unless it is there."""
    where = f"cluster={quote(wanted['cluster'])}&name={quote(wanted['name'])}"
    found = console.get(f"/api/v1/connections?{where}").get("results") or []
    known = next((row for row in found if row.get("name") == wanted["name"]), None)
    if known is None:
        return console.post("/api/v1/connections", {**wanted, **changed})
    is_as_wanted = known.get("url") == wanted.get("url", "") and known.get("engine") == wanted["engine"]
    if is_as_wanted and not changed:
        return known
    return console.patch(f"/api/v1/connections/{known['id']}", {**wanted, **changed})


def _name_of(url: str | None, engine: str) -> str:
    """Name of a connection by its host and port."""
    parts = urlsplit(url or "")
    text = f"{parts.hostname or engine}-{parts.port}" if parts.port else parts.hostname or engine
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64] or engine


def _token(path: str | None) -> str:
    """Token of the engine, from a file or the environment; never an argument, which every process could read."""
    if path is None:
        return os.environ.get(_TOKEN_VARIABLE, "").strip()
    return (sys.stdin.read() if path == "-" else _read(path).decode("utf-8", "replace")).strip()


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ClientError("document", f"{path}: {error.strerror or error}.") from None
    if len(content) > _MAX_FILE_BYTES:
        raise ClientError("document", f"{path} has more than {_MAX_FILE_BYTES / 2**20:g} MiB.")
    return content


def operators_of(path: str) -> list[Any]:
    """Operators of a Prometheus from a file of JSON, which the console checks one by one."""
    try:
        operators = json.loads(_read(path))
    except ValueError as error:
        raise ClientError("document", f"{path} is not JSON: {error}.") from None
    if not isinstance(operators, list):
        raise ClientError("document", f"{path} holds no list; allowed: a list of operators.")
    return operators


class _Progress:
    """Steps of a job on the standard error, each once."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, job: Mapping[str, Any]) -> None:
        step = str(job.get("step") or "")
        if step and step != self._last:
            self._last = step
            print(f"  {100 * float(job.get('progress') or 0.0):3.0f} %  {step}", file=sys.stderr, flush=True)


def _check_text(connection: Mapping[str, Any], address: str) -> str:
    """Findings as a table, and where to look at them."""
    version = f" {connection['engine_version']}" if connection.get("engine_version") else ""
    lines = [f"{connection.get('name')}: {connection.get('engine')}{version}, {connection.get('state')}", ""]
    kinds = connection.get("finding_kinds") or []
    lines += [*_decisive_lines(connection, kinds), *_folded_lines(kinds)] or ["Nothing to tell."]
    return "\n".join([*lines, "", f"Look at it: {address}"])


def _decisive_lines(connection: Mapping[str, Any], kinds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Findings that change the answer, a few of each kind."""
    rows = []
    for kind in kinds:
        if kind.get("decisive"):
            alike = [finding for finding in connection.get("findings") or [] if _is_of_kind(finding, kind)]
            rows += [_row(finding["level"], finding["subject"], finding["message"]) for finding in alike[:_SHOWN]]
            if len(alike) > _SHOWN:
                rows.append(["", "", f"… and {len(alike) - _SHOWN} alike ({kind['code']})."])
    return ["What changes the answer", *column_lines([["", "about", "finding"], *rows], ""), ""] if rows else []


def _folded_lines(kinds: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each other kind of finding."""
    rows = []
    for kind in kinds:
        if not kind.get("decisive"):
            subjects = kind.get("subjects") or []
            more = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
            rows.append(
                [f"{kind['count']} ×", kind["level"], f"{subjects[0] if subjects else '-'}{more}", kind["message"]]
            )
    if not rows:
        return []
    return ["The rest, by kind (--json has every one)", *column_lines([["", "", "about", "the first"], *rows], "")]


def _is_of_kind(finding: Mapping[str, Any], kind: Mapping[str, Any]) -> bool:
    return all(finding.get(key) == kind.get(key) for key in ("level", "code"))


def _row(*values: Any) -> list[str]:
    return [str(value or "-") for value in values]
