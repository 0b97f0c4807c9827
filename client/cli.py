"""Commands that ask a console, `./sluice admit` and others: arguments, question, answer."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote, urlencode

from client.capacity import CAPACITY_EXIT_TEXT, capacity_status, cluster_capacity_text, query_capacity_text
from client.connections import CONNECT_EXIT_TEXT, connect_engine, operators_of
from client.console import ConsoleConnection
from client.documents import file_text, manifest_text, query_document, read_document
from client.errors import ClientError
from client.evacuations import EVACUATE_EXIT_TEXT, evacuation_status, evacuation_text, moment
from client.parallelism import PARALLELISM_EXIT_TEXT, back_lines, parallelism_status, parallelism_text
from client.policies import (
    POLICY_EXIT_TEXT,
    applied_text,
    differences_text,
    policy_status,
    policy_text,
    preview_text,
)
from client.remedies import REMEDIES_EXIT_TEXT, remedies_status, remedies_text
from client.report import (
    BACKLOG_EXIT_TEXT,
    ESTIMATE_EXIT_TEXT,
    EXIT_TEXT,
    FAILED,
    PASSED,
    USAGE,
    admission_status,
    admission_text,
    backlog_text,
    estimate_status,
    estimate_text,
    group_text,
    manifest_answer_text,
    manifest_status,
    parts_under_way,
)
from client.settings import read_settings

__all__ = ["client_parser", "main"]

_Answer = TypeVar("_Answer")
_OBJECTIVE = re.compile(r"(worst|mean|q0?\.\d+|q1(?:\.0*)?)[:=](\d+(?:\.\d+)?)s?")
_ENGINES = ("flink", "spark", "prometheus", "kafka")
_DEFAULT_TIMEOUT_S = 120.0
_MAX_MANIFEST_WAIT_S = 120.0  # that the console waits for the verdicts of a manifest
_GRACE_S = 10.0  # for the way there and back
_OF_ONE = {"version": "query-version", "objective": "objective"}  # options of one query, by their attribute
_QUERY_OPTIONS = {"queries": "query", **_OF_ONE, "may_wait_s": "may-wait", "reason": "reason"}
_SETTINGS_TEXT = """server: --server, SLUICE_SERVER, or server = "https://…" in the file of settings; else http://localhost:8000
token:  SLUICE_TOKEN, or token = "slu_…" in the file of settings (SLUICE_CONFIG, or ~/.config/sluice/client.toml)"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. With `--json` whatever happens is one JSON object on one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    options = client_parser(as_json).parse_args(words)
    if fault := options.fault(options):
        options.parser.error(fault)
    ask: Callable[[argparse.Namespace], tuple[int, dict[str, Any], str]] = options.ask
    try:
        status, answer, text = ask(options)
    except ClientError as error:
        _print_error(error, FAILED, as_json)
        return FAILED
    except KeyboardInterrupt:
        _print_error(ClientError("interrupted", "Interrupted; what was asked may go on."), FAILED, as_json)
        return FAILED
    _print(json.dumps({"exit_status": status, **answer}) if as_json else text)
    return status


def _admit(options: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    if options.together:
        return _admit_together(options)
    asked: dict[str, Any] = {"cluster": options.cluster, "mode": "apply" if options.apply else "preview"}
    if not options.files:
        asked["query"] = options.queries[0]
    else:
        (file,) = options.files
        text, is_manifest = manifest_text(file)
        if is_manifest:
            return _admit_manifest(options, text)
        asked["document"] = query_document(text, file, options.queries[0] if options.queries else None)
    for name in ("objective", "version", "may_wait_s", "reason"):
        if getattr(options, name) is not None:
            asked[name] = getattr(options, name)
    console = _connection(options)
    admission = _about_cluster(console, options.cluster, lambda: console.post_job("/api/v1/admissions", asked))
    path = f"/api/v1/admissions/{admission.get('id')}"
    if options.parts:
        with contextlib.suppress(ClientError):  # the verdict is there: what follows it costs no exit status
            admission = console.get_settled(path, admission, lambda answer: bool(parts_under_way(answer)))
    status = admission_status(admission, apply=options.apply, accept_changes=options.accept_changes)
    address = console.address(f"/c/{admission.get('cluster')}/admission/{admission.get('id')}/")
    return status, {"url": address, "admission": admission}, admission_text(admission, address)


def _admit_together(options: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    """Ask for several queries as one: those of the files, then the registered ones, all or none."""
    members: list[dict[str, Any]] = []
    for file in options.files:
        text, is_manifest = manifest_text(file)
        if is_manifest:
            raise ClientError("document", f"{file} is a manifest of Kubernetes; --together takes queries as JSON.")
        members.append({"document": query_document(text, file, None)})
    members += [{"query": name} for name in options.queries]
    asked: dict[str, Any] = {"cluster": options.cluster, "mode": "apply" if options.apply else "preview"}
    asked |= {name: value for name in ("may_wait_s", "reason") if (value := getattr(options, name)) is not None}
    asked["members"] = members
    console = _connection(options)
    group = _about_cluster(console, options.cluster, lambda: console.post_job("/api/v1/admissions/groups", asked))
    status = admission_status(group, apply=options.apply, accept_changes=options.accept_changes)
    address = console.address(f"/c/{group.get('cluster')}/admission/groups/{group.get('id')}/")
    return status, {"url": address, "group": group}, group_text(group, address)


def _admit_manifest(options: argparse.Namespace, text: str) -> tuple[int, dict[str, Any], str]:
    """Ask as Kubernetes would be answered if the manifest's objects were created."""
    given = [f"--{option}" for name, option in _QUERY_OPTIONS.items() if getattr(options, name) not in (None, [])]
    if given:
        message = (
            f"{', '.join(given)} is of a query's document; a manifest says it by annotations (docs/kubernetes.md)."
        )
        raise ClientError("document", message)
    wait_s = max(1.0, min(_MAX_MANIFEST_WAIT_S, options.timeout - _GRACE_S))
    mode = "apply" if options.apply else "preview"
    asked = {"cluster": options.cluster, "manifest": text, "mode": mode, "wait_s": wait_s}
    console = _connection(options)
    answer = _about_cluster(console, options.cluster, lambda: console.post_job("/api/v1/kubernetes-reviews", asked))
    status = manifest_status(answer, apply=options.apply, accept_changes=options.accept_changes)
    return status, answer, manifest_answer_text(answer)


def _estimate(options: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    asked = {"document": read_document(options.file)} if options.file else {"cluster": options.cluster}
    console = _connection(options)
    estimate = _about_cluster(console, options.cluster, lambda: console.post_job("/api/v1/estimates", asked))
    return estimate_status(estimate), {"estimate": estimate}, estimate_text(estimate)


def _connect(options: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    objectives = dict(options.objective or [])
    console = _connection(options)
    ask = partial(
        connect_engine,
        console,
        cluster=options.cluster,
        new_cluster=options.new_cluster,
        url=options.url,
        upload=options.upload,
        engine=_engine_of(options),
        name=options.name,
        token_file=options.token_file,
        ca=options.ca,
        settings=_connect_settings(options),
        jobs=options.job or [],
        objectives=objectives,
        only_check=options.check,
        wait=options.wait,
        is_quiet=options.json,
    )
    return _about_cluster(console, options.cluster, ask, " --new-cluster makes it.")


def _engine_of(options: argparse.Namespace) -> str:
    """The engine that was named, or else that of the address."""
    is_broker = str(options.url or "").lower().startswith(("kafka://", "kafka+ssl://"))
    return options.engine or ("kafka" if is_broker else "flink")


def _connect_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Fields of the connection that were given."""
    queries = {
        "prometheus_url": options.prometheus,
        "latency_query": options.latency_query,
        "lag_query": options.lag_query,
    }
    operators = {} if options.operators is None else {"operators": operators_of(options.operators)}
    return {name: value for name, value in queries.items() if value is not None} | operators


def _capacity(options: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    console = _connection(options)
    if options.query is None:
        path = f"/api/v1/clusters/{quote(options.cluster, safe='')}/capacity"
        answer = _about_cluster(console, options.cluster, lambda: console.get(path))
        told = [answer["capacity"], *(entry["capacity"] for entry in answer.get("queries") or ())]
        return capacity_status(told), answer, cluster_capacity_text(answer)
    path = f"{_query_path(console, options)}/capacity"
    answer = console.post_job(path, {}) if options.look else console.get(path)
    return capacity_status([answer["capacity"]]), answer, query_capacity_text(answer)


def _parallelism(options: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    console = _connection(options)
    path = f"{_query_path(console, options)}/parallelism"
    if options.export is not None:
        asked = urlencode({"parallelism": options.export, "format": "json", "part": options.part})
        export = console.get(f"{path}/export?{asked}")
        return PASSED, {"export": export}, json.dumps(export, indent=2)
    amounts = {"operators": options.operators, "parallelism": options.parallelism, "restart_s": options.restart_s}
    asked_body = {name: value for name, value in amounts.items() if value is not None}
    if options.partitions:
        asked_body["partitions"] = dict(options.partitions)
    answer = console.post_job(path, asked_body)
    return parallelism_status(answer["plan"]), answer, parallelism_text(answer)


def _remedies(options: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    console = _connection(options)
    path = f"{_query_path(console, options)}/remedies"
    if options.preview is not None:
        preview = console.post(f"{path}/preview", {"remedy": options.preview})
        page = console.address(str(preview["page"]))
        return PASSED, {"url": page, "preview": preview}, f"{options.preview} is previewed, and applied, here:\n{page}"
    found = console.post_job(path, {})
    page = console.address(f"/c/{options.cluster}/queries/{quote(options.query, safe='')}/remedies/")
    return remedies_status(found["answer"]), {"url": page, **found}, remedies_text(found, page)


def _evacuate(options: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    names = ("cluster", "nodes", "order", "domain", "starts_at", "ends_at", "hold_s", "back")
    asked = {name: value for name in names if (value := getattr(options, name)) is not None}
    console = _connection(options)
    run = _about_cluster(console, options.cluster, lambda: console.post_job("/api/v1/evacuations", asked))
    status = evacuation_status(run, accept_late=options.accept_late)
    if options.confirm and status == PASSED:
        run = console.post(f"/api/v1/evacuations/{run['id']}/confirm", {"accept_late": options.accept_late})
    page = console.address(f"/c/{run.get('cluster')}/fleet/evacuations/{run.get('id')}/")
    return status, {"url": page, "evacuation": run}, evacuation_text(run, page)


def _policy(options: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    console = _connection(options)
    path = f"/api/v1/clusters/{quote(options.cluster, safe='')}/policy"
    if options.act == "show":
        shown = _about_cluster(console, options.cluster, lambda: console.get(path))
        return PASSED, shown, policy_text(shown)
    asked: dict[str, Any] = {"text": file_text(options.file)}
    if options.act == "apply":
        if options.reason is not None:
            asked["note"] = options.reason
        if options.base is not None:
            asked["base"] = options.base
        applied = _about_cluster(console, options.cluster, lambda: console.put(path, asked))
        return PASSED, applied, applied_text(applied)
    if options.act == "preview":
        preview = _about_cluster(console, options.cluster, lambda: console.post(f"{path}/preview", asked))
        return policy_status(preview.get("otherwise")), preview, preview_text(preview)
    checked = _about_cluster(console, options.cluster, lambda: console.post(f"{path}/check", asked))
    count = len(checked["differences"]) if options.act == "diff" else 0
    return policy_status(count), checked, differences_text(checked, listed=options.act == "diff")


def _policy_fault(options: argparse.Namespace) -> str:
    if (options.file is None) != (options.act == "show"):
        return "show takes no FILE" if options.act == "show" else f"FILE is missing: the policy to {options.act}"
    if options.act != "apply" and (options.reason is not None or options.base is not None):
        return "--reason and --base are of apply"
    return ""


def _query_path(console: ConsoleConnection, options: argparse.Namespace) -> str:
    """Address of a query by its name."""
    asked = urlencode({"cluster": options.cluster, "name": options.query})
    found = _about_cluster(console, options.cluster, lambda: console.get(f"/api/v1/queries?{asked}"))
    rows = found.get("results") or []
    if not rows:
        raise ClientError("missing", f"{options.cluster} has no query {options.query!r}.")
    return f"/api/v1/queries/{rows[0]['id']}"


def _backlog(options: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    console = _connection(options)
    path = f"{_query_path(console, options)}/backlogs"
    amounts = {"events": options.events, "behind_s": options.behind_s}
    entry = {name: value for name, value in amounts.items() if value is not None}
    if options.none:
        answer = console.put(path, {"backlogs": []})
    elif entry:
        names = {"operator": options.operator, "from": options.source}
        named = {name: value for name, value in names.items() if value is not None}
        answer = console.put(path, {"backlogs": [named | entry]})
    else:
        answer = console.get(path)
        with contextlib.suppress(ClientError):  # nobody has asked for a plan of its parallelism yet
            answer["parallelism"] = console.get(f"{path.removesuffix('/backlogs')}/parallelism")
    text = backlog_text(options.query, answer.get("backlogs") or [])
    planned = back_lines(answer["parallelism"]) if answer.get("backlogs") and answer.get("parallelism") else ()
    return PASSED, answer, "\n".join([text, *planned])


def _connection(options: argparse.Namespace) -> ConsoleConnection:
    return ConsoleConnection(read_settings(server=options.server, ca_file=options.ca_file), options.timeout)


def _about_cluster(
    console: ConsoleConnection, slug: str | None, ask: Callable[[], _Answer], advice: str = ""
) -> _Answer:
    """The answer; a cluster that does not exist is refused with those that do, and advice."""
    try:
        return ask()
    except ClientError as error:
        if error.faults and all(fault.get("path") == "cluster" for fault in error.faults):
            rows = console.get("/api/v1/clusters?page_size=20").get("results") or []
            known = ", ".join(str(row.get("slug")) for row in rows) or "none yet"
            message = f"{console.settings.server} has no cluster {slug!r}; it has: {known}.{advice}"
            raise ClientError(error.code, message, problem=error.problem) from None
        raise


def _print(text: str) -> None:
    """Print; a reader that is gone, as by ``| head``, changes nothing about the exit status."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails again


def _print_error(error: ClientError, status: int, as_json: bool) -> None:
    if as_json:
        _print(json.dumps({"exit_status": status, "error": error.to_dict()}))
    else:
        print("\n".join(["sluice: " + error.lines()[0], *error.lines()[1:]]), file=sys.stderr)


class _JsonParser(argparse.ArgumentParser):
    """Tells wrong usage as JSON."""

    def error(self, message: str) -> NoReturn:
        _print_error(ClientError("usage", message), USAGE, as_json=True)
        sys.exit(USAGE)


def client_parser(as_json: bool) -> argparse.ArgumentParser:
    """The arguments of every command."""
    kind = _JsonParser if as_json else argparse.ArgumentParser
    parser = kind(prog="sluice", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=kind)
    admit = _command(commands, "admit", "May a query run in a cluster of a console?", EXIT_TEXT)
    admit.set_defaults(parser=admit, ask=_admit, fault=_admit_fault)
    admit.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="the query as JSON, or a manifest of Kubernetes; - is the standard input; several with --together",
    )
    admit.add_argument("--cluster", required=True, metavar="SLUG", help="which cluster")
    admit.add_argument(
        "--query",
        dest="queries",
        action="append",
        default=[],
        metavar="NAME",
        help="its name; without FILE, a query that is registered; several with --together",
    )
    admit.add_argument("--together", action="store_true", help="all the files and queries are admitted, or none is")
    admit.add_argument("--query-version", type=_count, dest="version", metavar="N", help="of a registered one (newest)")
    admit.add_argument("--objective", type=_objective, metavar="STATISTIC:S", help="such as worst:2 or q0.99:0.5")
    admit.add_argument("--may-wait", type=_seconds, dest="may_wait_s", metavar="S", help="how long it may wait (0)")
    admit.add_argument("--apply", action="store_true", help="run it if the verdict lets it (scope admit)")
    admit.add_argument("--accept-changes", action="store_true", help="admit with changes passes, too")
    admit.add_argument(
        "--parts",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="wait for what follows the verdict: alternatives, and how much it stands",
    )
    admit.add_argument("--reason", metavar="TEXT", help="why it is asked, kept with the request")
    estimate = _command(commands, "estimate", "Latency of every query of a cluster.", ESTIMATE_EXIT_TEXT)
    estimate.set_defaults(parser=estimate, ask=_estimate, fault=_estimate_fault)
    estimate.add_argument("file", nargs="?", metavar="FILE", help="a deployment document in place of a cluster")
    estimate.add_argument("--cluster", metavar="SLUG", help="which cluster")
    capacity = _command(
        commands, "capacity", "The largest rate that a query, or a cluster, sustains.", CAPACITY_EXIT_TEXT
    )
    capacity.set_defaults(parser=capacity, ask=_capacity, fault=_capacity_fault)
    capacity.add_argument(
        "query", nargs="?", metavar="QUERY", help="its name; left out: the cluster and all its queries"
    )
    capacity.add_argument("--cluster", required=True, metavar="SLUG", help="which cluster")
    capacity.add_argument("--look", action="store_true", help="look now when objectives break (scope operate)")
    parallelism = _command(
        commands, "parallelism", "What other numbers of subtasks sustain, and what they cost.", PARALLELISM_EXIT_TEXT
    )
    parallelism.set_defaults(parser=parallelism, ask=_parallelism, fault=_parallelism_fault)
    parallelism.add_argument("query", metavar="QUERY", help="its name")
    parallelism.add_argument("--cluster", required=True, metavar="SLUG", help="which cluster")
    parallelism.add_argument("--operators", nargs="+", metavar="NAME", help="that are scaled (all that can be)")
    parallelism.add_argument(
        "--parallelism", nargs="+", type=_count, metavar="N", help="that are looked at (some about what it has)"
    )
    parallelism.add_argument("--restart", type=_seconds, dest="restart_s", metavar="S", help="seconds of a restart")
    parallelism.add_argument(
        "--partitions", nargs="+", type=_partitions, metavar="NAME=N", help="partitions that a source reads"
    )
    parallelism.add_argument(
        "--export", type=_count, metavar="N", help="one of the newest plan, as the engine takes it"
    )
    parallelism.add_argument(
        "--part", choices=("all", "settings", "patch", "calls"), default="all", help="of the export (all)"
    )
    remedies = _command(commands, "remedies", "What helps a query that is late or at risk.", REMEDIES_EXIT_TEXT)
    remedies.set_defaults(parser=remedies, ask=_remedies, fault=lambda options: "")
    remedies.add_argument("query", metavar="QUERY", help="its name")
    remedies.add_argument("--cluster", required=True, metavar="SLUG", help="which cluster")
    remedies.add_argument("--preview", metavar="REMEDY", help="preview one of those that were found, such as move-1")
    evacuate = _command(
        commands, "evacuate", "What it takes to empty nodes, and for how long who is late.", EVACUATE_EXIT_TEXT
    )
    evacuate.set_defaults(parser=evacuate, ask=_evacuate, fault=_evacuate_fault)
    evacuate.add_argument("nodes", nargs="+", metavar="NODE", help="its name, rack=r7 for a label, or pool=large")
    evacuate.add_argument("--cluster", required=True, metavar="SLUG", help="which cluster")
    evacuate.add_argument("--from", type=moment, dest="starts_at", metavar="TIME", help="(as soon as it is confirmed)")
    evacuate.add_argument("--until", type=moment, dest="ends_at", metavar="TIME", help="when all are back (when told)")
    evacuate.add_argument("--order", choices=("together", "each", "domain"), help="a rolling upgrade: each, domain")
    evacuate.add_argument("--domain", metavar="LABEL", help="whose nodes go together, such as rack")
    evacuate.add_argument("--hold", type=_seconds, dest="hold_s", metavar="S", help="that each is away, one by one")
    evacuate.add_argument(
        "--back", action=argparse.BooleanOptionalAction, default=True, help="operators return with their nodes"
    )
    evacuate.add_argument("--confirm", action="store_true", help="have it done, if the exit status is 0 then")
    evacuate.add_argument("--accept-late", action="store_true", help="queries may be late, or miss their objectives")
    backlog = _command(
        commands, "backlog", "What waits for a running query; with an amount, state it.", BACKLOG_EXIT_TEXT
    )
    backlog.set_defaults(parser=backlog, ask=_backlog, fault=_backlog_fault)
    backlog.add_argument("query", metavar="QUERY", help="its name")
    backlog.add_argument("--cluster", required=True, metavar="SLUG", help="which cluster")
    backlog.add_argument("--source", metavar="NAME", help="source or operator whose events wait")
    backlog.add_argument("--operator", metavar="NAME", help="that reads them, where one of several is meant")
    backlog.add_argument("--behind", type=_seconds, dest="behind_s", metavar="S", help="age of the oldest, in seconds")
    backlog.add_argument("--events", type=_seconds, metavar="N", help="how many wait")
    backlog.add_argument("--none", action="store_true", help="nothing waits")
    policy = _command(commands, "policy", "The policy of a cluster, shown, or given as a file.", POLICY_EXIT_TEXT)
    policy.set_defaults(parser=policy, ask=_policy, fault=_policy_fault)
    policy.add_argument("act", choices=("show", "check", "diff", "preview", "apply"), help="what to do")
    policy.add_argument("file", nargs="?", metavar="FILE", help="a policy as YAML or JSON; - is the standard input")
    policy.add_argument("--cluster", required=True, metavar="SLUG", help="which cluster")
    policy.add_argument("--base", type=_version_number, metavar="N", help="version it was made from (any)")
    policy.add_argument("--reason", metavar="TEXT", help="why, kept with the version")
    connect = _command(commands, "connect", "Jobs of an engine as running queries of a cluster.", CONNECT_EXIT_TEXT)
    connect.set_defaults(parser=connect, ask=_connect, fault=_connect_fault)
    connect.add_argument("url", nargs="?", metavar="URL", help="address of the engine, such as http://localhost:8081")
    connect.add_argument("--upload", metavar="FILE", help="its answers as a zip, JSON or text, in place of URL")
    connect.add_argument("--cluster", required=True, metavar="SLUG", help="which cluster")
    connect.add_argument("--new-cluster", action="store_true", help="make the cluster unless it is there")
    connect.add_argument(
        "--engine", choices=_ENGINES, help="what it is (kafka where the URL begins so, and flink otherwise)"
    )
    connect.add_argument("--name", metavar="NAME", help="of the connection (its host and port)")
    connect.add_argument("--token-file", metavar="FILE", help="the engine's token (or SLUICE_ENGINE_TOKEN); - is stdin")
    connect.add_argument("--ca", metavar="FILE", help="certificate of the authority that signed the engine's")
    connect.add_argument("--prometheus", metavar="URL", help="Prometheus beside it, with counters from before")
    connect.add_argument("--latency-query", metavar="PROMQL", help="measured latency in seconds; $job is the job's id")
    connect.add_argument(
        "--lag-query", metavar="PROMQL", help="counter of what comes to a source; $topic: what it reads"
    )
    connect.add_argument("--operators", metavar="FILE", help="of --engine prometheus: operators with PromQL, as JSON")
    connect.add_argument("--job", action="append", metavar="JOB", help="name or id; may be repeated (all that run)")
    connect.add_argument(
        "--objective", action="append", type=_job_objective, metavar="[JOB=]STATISTIC:S", help="such as orders=worst:5"
    )
    connect.add_argument("--check", action="store_true", help="say what is there and what asking costs; import nothing")
    connect.add_argument("--wait", action=argparse.BooleanOptionalAction, default=True, help="wait for the import")
    return parser


def _command(commands: Any, name: str, description: str, statuses: str) -> argparse.ArgumentParser:
    """A command with the options that all of them have."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=description,
        description=description,
        epilog=f"{_SETTINGS_TEXT}\n\n{statuses}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("--server", metavar="URL", help="address of the console")
    command.add_argument("--ca-file", metavar="FILE", help="certificate of the authority that signed the console's")
    command.add_argument("--timeout", type=_patience, default=_DEFAULT_TIMEOUT_S, metavar="S", help="seconds (120)")
    command.add_argument("--json", action="store_true", help="one JSON object on one line, errors too")
    return command


def _admit_fault(options: argparse.Namespace) -> str:
    count = len(options.files) + len(options.queries)
    if not count:
        return "FILE is missing, or --query with the name of a registered query"
    if options.together:
        return _together_fault(options, count)
    if len(options.files) > 1 or len(options.queries) > 1:
        return "several queries are asked for with --together"
    if options.files and options.version is not None:
        return "--query-version is of a registered query; a FILE is always a new version"
    return ""


def _together_fault(options: argparse.Namespace, count: int) -> str:
    if count < 2:
        return "--together takes two queries or more: files, or --query of registered ones"
    if options.files.count("-") > 1:
        return "- is the standard input, which holds one query"
    given = [f"--{option}" for name, option in _OF_ONE.items() if getattr(options, name) is not None]
    return f"{', '.join(given)} is of one query; a document says its objective" if given else ""


def _capacity_fault(options: argparse.Namespace) -> str:
    return "--look is of one query: name it" if options.look and options.query is None else ""


def _parallelism_fault(options: argparse.Namespace) -> str:
    asked = (options.operators, options.parallelism, options.restart_s, options.partitions)
    if options.export is not None and any(value is not None for value in asked):
        return "--export is of the newest plan; --operators, --parallelism, --restart and --partitions ask for another"
    return ""


def _evacuate_fault(options: argparse.Namespace) -> str:
    if options.order == "domain" and not options.domain:
        return "--domain is missing: the label whose nodes go together"
    if options.domain and options.order != "domain":
        return "--domain goes with --order domain"
    return ""


def _backlog_fault(options: argparse.Namespace) -> str:
    states = options.events is not None or options.behind_s is not None
    if states and options.none:
        return "--none says that nothing waits; --events and --behind that something does"
    if states and options.source is None:
        return "--source is missing: whose events wait"
    return ""


def _estimate_fault(options: argparse.Namespace) -> str:
    if (options.file is None) == (options.cluster is None):
        return "give exactly one of FILE and --cluster"
    return ""


def _connect_fault(options: argparse.Namespace) -> str:
    if (options.url is None) == (options.upload is None):
        return "give exactly one of URL and --upload FILE"
    if options.check and options.objective:
        return "--check imports nothing; --objective is of what is imported"
    return ""


def _job_objective(text: str) -> tuple[str, dict[str, Any]]:
    """An objective and the job that it is of; without one it is of every job."""
    job, separator, objective = text.rpartition("=")
    if separator and _OBJECTIVE.fullmatch(text):  # worst=5
        return "*", _objective(text)
    return job or "*", _objective(objective)


def _objective(text: str) -> dict[str, Any]:
    match = _OBJECTIVE.fullmatch(text)
    if match is None or float(match[2]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is worst, mean or q0.99, a colon and seconds above 0")
    return {"statistic": match[1], "bound_s": float(match[2])}


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is a whole number from 1")
    return int(text)


def _version_number(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _partitions(text: str) -> tuple[str, int]:
    """An operator and the partitions that it reads."""
    name, separator, count = text.rpartition("=")
    if not (separator and name):
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is an operator, = and a whole number from 1")
    return name, _count(count)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is a number of seconds from 0")
    return value


def _patience(text: str) -> float:
    value = _seconds(text)
    if value < 1.0:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is at least 1 second")
    return value
