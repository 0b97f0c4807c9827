"""Reader of Flink's REST answers: which to ask for, and what runs.

Answers come as a mapping from the path that was asked to the decoded JSON (an answer that was no JSON as its text), by
URL or by upload alike. Known from Flink 1.14 to 2.3; fields that are not used are ignored.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

from engine.connectors.answers import AnswerObject, Answers, Asking, number_of
from engine.connectors.chains import Chain, ChainWindow, duration_s, read_chain
from engine.connectors.flink_checkpoints import (
    checkpoint_interval_s,
    checkpoint_paths,
    commit_metrics,
    with_checkpoints,
)
from engine.connectors.flink_metrics import event_metrics, read_metrics, result_metrics
from engine.connectors.flink_state import BACKEND, describe_growth, place_memory, read_state, state_paths
from engine.connectors.picture import (
    EngineJob,
    EnginePicture,
    Exchange,
    Place,
    Subtask,
    Vertex,
)
from engine.errors import Fault

__all__ = [
    "ANSWER_BYTES",
    "ENDED",
    "FLINK_ANSWERS",
    "MAX_SUBTASKS",
    "MAX_VERTICES",
    "SCHEDULER",
    "asking_of",
    "cpu_paths",
    "cpu_use",
    "next_paths",
    "oversize_words",
    "read_flink",
]

#: A job beyond these is left out with a finding: an estimate of it would take minutes, and asking for it a storm.
MAX_VERTICES = 1_000
MAX_SUBTASKS = 20_000
#: Setting by which a running job takes another parallelism, or does not.
SCHEDULER = "jobmanager.scheduler"

#: In words, for faults.
FLINK_ANSWERS = "set of Flink answers"
_OVERVIEW, _JOBS, _PLACES, _CONFIG = "/overview", "/jobs/overview", "/taskmanagers", "/jobmanager/config"
_CPU_METRICS = ("Status.JVM.CPU.Load", "Status.JVM.CPU.Time")
_FINISHED = "FINISHED"  # by itself: a vertex in another of the states below is to run again, or its job to end
#: States of a job that has ended for good.
ENDED = {_FINISHED, "CANCELED", "FAILED", "SUSPENDED"}
_KNOWN_VERSIONS = ((1, 14), (2, 3))
_BUFFER_TIMEOUT_S = 0.1  # execution.buffer-timeout.interval unless set
_WATERMARK_INTERVAL_S = 0.2  # pipeline.auto-watermark-interval unless set
_FETCH_INTERVAL_S = 10.0  # metrics.fetcher.update-interval unless set
#: Kept where they are told: whether latency markers flow, and what schedules the job.
_TOLD_SETTINGS = ("metrics.latency.interval", SCHEDULER)
_MAX_COUNTING = 32  # vertices of a job whose metrics are asked for by name
_CHAINED = " -> "  # between the operators of a chain
_CLOCKS_APART_S = 5.0
_MAX_MOMENT_MS = 2**42  # some hundred years from now: what is later is no moment
#: Bytes of an answer, from recorded ones: for the answer itself and for each job, vertex or subtask in it.
ANSWER_BYTES = {"names": 9_000, "vertex": 1_400, "subtask": 1_100, "place": 1_300, "job": 500, "other": 600}


def next_paths(answers: Mapping[str, object], *, jobs: Collection[str] | None = None) -> Asking:
    """Paths that `read_flink` lacks, given what was answered so far; ask them, add the answers and call again.

    Three rounds lead from nothing to a whole picture: the cluster, its jobs, their vertices. A path that was answered
    with an error (give the decoded error) is not asked again.

    `jobs`: names or ids of the jobs that are wanted; all that run unless given.

    Examples
    --------
    >>> next_paths({}).paths
    ('/overview', '/jobs/overview', '/taskmanagers', '/jobmanager/config')
    """
    known = Answers(answers, FLINK_ANSWERS)
    wanted = list(_first_paths())
    for job in _running_jobs(known, jobs):
        base = f"/jobs/{job}"
        wanted += [(base, 3_000), (f"{base}/checkpoints/config", ANSWER_BYTES["other"])]
        wanted += [(f"{base}/config", ANSWER_BYTES["other"]), *state_paths(known, job)]
        vertices = _vertex_records(known, job)
        wanted += checkpoint_paths(known, job, [id_ for id_, _ in vertices])
        asked = _counting_ids(known, job)
        wanted += [(f"{base}/vertices/{id_}/subtasks/metrics", ANSWER_BYTES["names"]) for id_ in asked]
        if len(vertices) <= MAX_VERTICES:
            wanted += [(f"{base}/vertices/{id_}", 600 + ANSWER_BYTES["subtask"] * max(1, n)) for id_, n in vertices]
    places = known.raw(_PLACES)
    wanted += [
        (path, 200) for path in cpu_paths(place.id for place in _places(Answers({_PLACES: places}, FLINK_ANSWERS)))
    ]
    return asking_of(known, wanted)


def asking_of(known: Answers, wanted: Iterable[tuple[str, int]]) -> Asking:
    """Paths that are not answered yet."""
    missing = {path: size for path, size in wanted if path not in known}
    return Asking(tuple(missing), sum(missing.values()))


def _first_paths() -> Iterator[tuple[str, int]]:
    yield _OVERVIEW, 300
    yield _JOBS, 4 * ANSWER_BYTES["job"]
    yield _PLACES, 4 * ANSWER_BYTES["place"]
    yield _CONFIG, 4_000


def cpu_paths(places: Iterable[str]) -> Iterator[str]:
    """Paths that tell the CPU of places."""
    for place in places:
        yield f"/taskmanagers/{quote(place, safe=':.-_')}/metrics?get={','.join(_CPU_METRICS)}"


def _running_jobs(answers: Answers, jobs: Collection[str] | None = None) -> list[str]:
    """Ids of the jobs that have not ended, by the overview, or by their own answers where that is missing."""
    listing = answers.raw(_JOBS)
    rows = listing.get("jobs") if isinstance(listing, Mapping) else None
    if not isinstance(rows, list):
        return [path.split("/")[2] for path in answers if re.fullmatch(r"/jobs/[0-9a-f]{32}", path)]
    return [
        str(row["jid"])
        for row in rows
        if isinstance(row, Mapping)
        and isinstance(row.get("jid"), str)
        and str(row.get("state")) not in ENDED
        and (jobs is None or row["jid"] in jobs or row.get("name") in jobs)
    ]


def _vertex_records(answers: Answers, job: str) -> list[tuple[str, int]]:
    """Ids and parallelisms of a job's vertices, as far as they are legible."""
    answer = answers.raw(f"/jobs/{job}")
    rows = answer.get("vertices") if isinstance(answer, Mapping) else None
    return [
        (str(row["id"]), int(number_of(row.get("parallelism")) or 1))
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, Mapping) and isinstance(row.get("id"), str)
    ]


def _counting_ids(answers: Answers, job: str) -> list[str]:
    """Ids of a job's vertices in which an operator counts what the vertex does not; of too many none.

    Sinks count what a vertex puts out that nobody reads, a source its events where more is chained to it.
    """
    answer = answers.raw(f"/jobs/{job}")
    plan = answer.get("plan") if isinstance(answer, Mapping) else None
    nodes = plan.get("nodes") if isinstance(plan, Mapping) else None
    rows = [node for node in (nodes if isinstance(nodes, list) else ()) if isinstance(node, Mapping)]
    inputs = {str(node.get("id")): node["inputs"] for node in rows if isinstance(node.get("inputs"), list)}
    read = {str(entry.get("id")) for listed in inputs.values() for entry in listed if isinstance(entry, Mapping)}
    vertices = answer.get("vertices") if isinstance(answer, Mapping) else None
    chained = {
        str(row.get("id"))
        for row in (vertices if isinstance(vertices, list) else ())
        if isinstance(row, Mapping) and _CHAINED in str(row.get("name"))
    }
    ids = [id_ for id_, _ in _vertex_records(answers, job)]
    counting = [id_ for id_ in ids if id_ not in read or (id_ in chained and not inputs.get(id_))]
    return counting if rows and len(counting) <= _MAX_COUNTING else []


def read_flink(answers: Mapping[str, object], at_s: float) -> EnginePicture:
    """Places and running jobs of a Flink cluster from its answers.

    `answers`: what `next_paths` asks for; the jobs' overview, or jobs themselves, at the least. `at_s`: when they were
    asked, by our clock.

    Raises
    ------
    DocumentError
        With every fault: no answer of Flink, missing fields, plans that do not fit their vertices.
    """
    known = Answers(answers, FLINK_ANSWERS)
    if _JOBS not in known and not _running_jobs(known):
        known.add_fault(_JOBS, "", "there is no list of jobs; allowed: answers of a Flink JobManager's REST API")
    elif refusal := known.refusal(_JOBS):
        known.add_fault(_JOBS, "", f"it answered with an error: {refusal}")
    elif (listing := known.record(_JOBS)) is not None:
        rows = [(row, row.text("jid"), row.text("state")) for row in listing.records("jobs")]
        if any(id_ and state for _, id_, state in rows):
            _describe_faults(known, known.take_faults(0), "", "A row of the list of jobs")
    version = _version(known)
    settings = _cluster_settings(known)
    places = _with_loads(known, _places(known))
    if not places:
        known.find("missing", "places_missing", "")
    jobs, left_out = _jobs(known, settings)
    now_s = _engine_now_s(known, at_s)
    known.check()
    return EnginePicture("flink", version, now_s, places, jobs, tuple(known.findings), left_out)


def _jobs(known: Answers, settings: Mapping[str, str]) -> tuple[tuple[EngineJob, ...], dict[str, str]]:
    """Jobs that run, and names by id of those that are left out: one that cannot be read refuses no other."""
    jobs: list[EngineJob] = []
    left_out: dict[str, str] = {}
    unreadable: dict[str, list[Fault]] = {}
    for id_ in _running_jobs(known):
        seen = known.fault_count
        job = _job(known, id_, settings, left_out)
        if faults := known.take_faults(seen):
            unreadable[id_] = faults
        elif job is not None:
            jobs.append(job)
    for id_, faults in unreadable.items():
        answer = known.raw(f"/jobs/{id_}")
        name = str(answer.get("name") or id_) if isinstance(answer, Mapping) else id_
        if jobs:
            left_out[id_] = name
            _describe_faults(known, faults, name, f"Job {name}")
        else:
            known.add_faults(faults)
    return tuple(jobs), left_out


def _describe_faults(known: Answers, faults: Sequence[Fault], subject: str, what: str) -> None:
    """Tell of a part that is left out because of its faults."""
    if faults:
        kind, first = "parts_unreadable" if len(faults) > 1 else "", faults[0]
        told = {"what": what, "path": first.path, "fault": first.message, "more": len(faults) - 1}
        known.find("warning", "part_unreadable", subject, kind, **told)


def _engine_now_s(known: Answers, at_s: float) -> float:
    """The newest time by Flink's own clock, which jobs tell; ours where none does."""
    nows = [
        number_of(known.raw(path)["now"])
        for path in known
        if isinstance(known.raw(path), Mapping) and "now" in known.raw(path)
    ]
    now_s = max((now for now in nows if now), default=0.0) / 1000
    if not now_s:
        return at_s
    if abs(now_s - at_s) > _CLOCKS_APART_S:
        kind = "clock_ahead" if now_s > at_s else "clock_behind"
        known.find("warning", "clocks_apart", "", kind, by_s=abs(now_s - at_s))
    return now_s


def _version(known: Answers) -> str:
    overview = known.record(_OVERVIEW)
    if overview is None:
        return ""
    version = str(overview.fields.get("flink-version") or "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and not _KNOWN_VERSIONS[0] <= (int(numbers[1]), int(numbers[2])) <= _KNOWN_VERSIONS[1]:
        known.find("warning", "version_unknown", "", version=version)
    return version


def _cluster_settings(known: Answers) -> dict[str, str]:
    """The cluster's configuration as far as it is told: only what is set is."""
    answer = known.raw(_CONFIG)
    rows = answer if isinstance(answer, list) else ()
    return {str(row["key"]): str(row.get("value", "")) for row in rows if isinstance(row, Mapping) and "key" in row}


def _places(known: Answers) -> tuple[Place, ...]:
    answer = known.record(_PLACES)
    if answer is None:
        return ()
    places, hardware = [], {}
    unreadable: list[Fault] = []
    for row in answer.records("taskmanagers"):
        seen = known.fault_count
        own = row.record("totalResource", required=False)
        machine = row.record("hardware", required=False)
        memory = place_memory(row)
        all_cores = machine.optional("cpuCores") or 0.0
        stated = own.optional("cpuCores") or all_cores
        # A setting may promise more than the machine, or the quota that the JVM sees, has.
        cores = min(stated, all_cores) if all_cores else stated
        id_ = row.text("id")
        if cores < stated:
            known.find("found", "cores_promised", id_, place=id_, stated=stated, cores=cores)
        if not cores:
            known.find("assumed", "cores_unknown", id_, place=id_)
            cores = 1.0
        place = Place(
            id_,
            id_,
            cores,
            int(row.number("slotsNumber", least=0)),
            memory.process_bytes,
            host=_host(row),
            heap_bytes=memory.heap_bytes,
            managed_bytes=memory.managed_bytes,
        )
        if faults := known.take_faults(seen):
            unreadable += faults
            continue
        places.append(place)
        if all_cores:
            hardware[place.id] = all_cores
    if places:
        _describe_faults(known, unreadable, "", "A TaskManager")
    else:
        known.add_faults(unreadable)
    return tuple(_with_shared_hosts(known, places, hardware))


def _host(row: AnswerObject) -> str:
    found = re.search(r"@([^:/\s]+)(?::\d+)?/", str(row.fields.get("path") or ""))
    return found[1] if found else ""


def _with_shared_hosts(known: Answers, places: Sequence[Place], hardware: Mapping[str, float]) -> Iterator[Place]:
    """Places of one machine share its cores: each reports all of them."""
    for place in places:
        together = [other for other in places if other.host and other.host == place.host]
        claimed, there = sum(other.cores for other in together), hardware.get(place.id, 0.0)
        if len(together) < 2 or not there or claimed <= there:
            yield place
            continue
        cores = place.cores * there / claimed
        told = {"count": len(together), "host": place.host, "claimed": claimed, "there": there, "cores": cores}
        known.find("assumed", "cores_shared", place.id, place=place.id, **told)
        yield replace(place, cores=cores)


def _with_loads(known: Answers, places: Sequence[Place]) -> tuple[Place, ...]:
    loads = {place.id: cpu_use(known, place.id)[0] for place in places}
    if places and not any(load is not None for load in loads.values()):
        known.find("missing", "cpu_unknown", "")
    return tuple(replace(place, cpu_load=loads[place.id]) for place in places)


def cpu_use(known: Answers, place: str) -> tuple[float | None, float | None]:
    """Load (0 to 1 of the host) and CPU seconds of a place's process, as far as they were answered."""
    values: dict[str, float] = {}
    for path in known:
        if path.startswith(f"/taskmanagers/{place}/metrics"):
            values |= read_metrics(known.raw(path))
    load, time_ns = (values.get(name) for name in _CPU_METRICS)
    return (None if load is None or not 0.0 <= load <= 1.0 else load), (None if time_ns is None else time_ns / 1e9)


def _job(known: Answers, id_: str, cluster: Mapping[str, str], left_out: dict[str, str]) -> EngineJob | None:
    path = f"/jobs/{id_}"
    answer = known.record(path)
    if answer is None:
        if path not in known:
            known.find("missing", "job_not_asked", id_, job=id_)
        else:
            known.find("warning", "job_gone", id_, job=id_, refusal=known.refusal(path))
        return None
    name, state = answer.text("name"), answer.text("state")
    if state in ENDED:
        return None
    if _is_batch(known, id_, answer):
        known.find("warning", "batch_job", name, job=name)
        return None
    if (problem := oversize_words(answer)) is not None:
        left_out[id_] = name
        known.find("missing", "job_too_large", name, job=name, size=problem)
        return None
    if state and state != "RUNNING" and _is_unplanned(known, id_, answer):
        left_out[id_] = name
        known.find("found", "job_waiting", name, job=name, state=state)
        return None
    settings = _job_settings(known, id_, name, cluster)
    vertices = _vertices(known, answer, id_, name, settings)
    held = read_state(known, id_, name, settings, cluster)
    describe_growth(known, id_, name, [vertex.label for vertex in vertices if vertex.keeps_rows], cluster)
    vertices = tuple(
        replace(vertex, state_bytes=held.by_vertex.get(vertex.id), state_on_disk=held.on_disk) for vertex in vertices
    )
    rows = list(answer.records("vertices"))
    names = {row.text("id"): str(row.fields.get("name") or "") for row in rows}
    begun_s = max((row.optional("start-time") or 0.0 for row in rows), default=0.0) / 1000
    checked = with_checkpoints(known, id_, name, vertices, names, begun_s)
    return EngineJob(id_, name, state.lower(), _started_at_s(answer), tuple(checked), settings)


def _is_batch(known: Answers, id_: str, answer: AnswerObject) -> bool:
    """Whether a job is none of streams: by its own word, of newer versions, or by that of its plan or the overview."""
    plan = answer.fields.get("plan")
    told = [answer.fields.get("job-type"), plan.get("type") if isinstance(plan, Mapping) else None]
    told += [row.get("jobType") for row in _overview_rows(known, id_)]
    return any(str(word).upper() == "BATCH" for word in told if word)


def _is_unplanned(known: Answers, id_: str, answer: AnswerObject) -> bool:
    """Whether a job has no vertices, no plan of them, or vertices that nobody has given threads to."""
    rows, plan = answer.fields.get("vertices"), answer.fields.get("plan")
    if plan is None and isinstance(other := known.raw(f"/jobs/{id_}/plan"), Mapping):
        plan = other.get("plan")
    if not rows or not isinstance(plan, Mapping) or not plan.get("nodes"):
        return True
    return isinstance(rows, list) and any(
        (number_of(row.get("parallelism")) or 0.0) < 1.0 for row in rows if isinstance(row, Mapping)
    )


def _started_at_s(answer: AnswerObject) -> float:
    """Beginning of a job, by its own time or that of its state; 0 where neither can be one."""
    timestamps = answer.fields.get("timestamps")
    running = timestamps.get("RUNNING") if isinstance(timestamps, Mapping) else None
    for value in (answer.optional("start-time"), number_of(running)):
        if value is not None and 0.0 < value < _MAX_MOMENT_MS:
            return value / 1000
    return 0.0


def oversize_words(answer: AnswerObject) -> str | None:
    """By what a job is too large to be read; None where it is not."""
    rows = answer.fields.get("vertices")
    if not isinstance(rows, list):
        return None
    if len(rows) > MAX_VERTICES:
        return f"{len(rows):,} vertices; allowed: {MAX_VERTICES:,}"
    subtasks = sum(number_of(row.get("parallelism")) or 1 for row in rows if isinstance(row, Mapping))
    return f"{subtasks:,.0f} subtasks; allowed: {MAX_SUBTASKS:,}" if subtasks > MAX_SUBTASKS else None


def _job_settings(known: Answers, id_: str, name: str, cluster: Mapping[str, str]) -> dict[str, str]:
    """Settings that statistics and waits depend on, by Flink's own names, with what is assumed where none is told."""
    answer = known.record(f"/jobs/{id_}/config")
    user = (
        answer.record("execution-config", required=False).record("user-config", required=False).fields if answer else {}
    )
    given = {**cluster, **{str(key): str(value) for key, value in user.items()}}
    settings = {}
    timeout = given.get("execution.buffer-timeout.interval", given.get("execution.buffer-timeout"))
    if given.get("execution.buffer-timeout.enabled", "true").lower() == "false":
        timeout = "-1"
    if timeout is None or duration_s(timeout) is None:
        timeout = f"{_BUFFER_TIMEOUT_S * 1000:g} ms"
        known.find("assumed", "buffer_timeout_assumed", name, job=name, timeout=timeout)
    settings["execution.buffer-timeout.interval"] = timeout
    interval = given.get("metrics.fetcher.update-interval", "")
    settings["metrics.fetcher.update-interval"] = (
        interval if duration_s(interval) is not None else f"{_FETCH_INTERVAL_S * 1000:g}"
    )
    settings |= {key: given[key] for key in _TOLD_SETTINGS if key in given}
    if scheduler := _scheduler(known, id_):
        settings[SCHEDULER] = scheduler
    checkpoints = known.record(f"/jobs/{id_}/checkpoints/config")
    if checkpoints is not None:
        every_s = checkpoint_interval_s(known, id_)
        settings["execution.checkpointing.interval"] = "off" if every_s is None else f"{every_s * 1000:g} ms"
        if mode := checkpoints.fields.get("mode"):
            settings["execution.checkpointing.mode"] = str(mode)
    backend = (checkpoints.fields.get("state_backend") if checkpoints else None) or next(
        (given[key] for key in (BACKEND, "state.backend") if given.get(key)), None
    )
    if backend:
        settings[BACKEND] = str(backend)
    return settings


def _scheduler(known: Answers, id_: str) -> str:
    """The scheduler of a job, which Flink tells from 2.0 on: adaptive, default; empty where it is not told."""
    return next((str(row.get("schedulerType") or "").lower() for row in _overview_rows(known, id_)), "")


def _overview_rows(known: Answers, id_: str) -> list[Mapping[str, object]]:
    """Rows of one job in the list of jobs."""
    listing = known.raw(_JOBS)
    rows = listing.get("jobs") if isinstance(listing, Mapping) else None
    return [
        row for row in (rows if isinstance(rows, list) else ()) if isinstance(row, Mapping) and row.get("jid") == id_
    ]


def _vertices(
    known: Answers, answer: AnswerObject, id_: str, name: str, settings: Mapping[str, str]
) -> tuple[Vertex, ...]:
    rows = {row.text("id"): row for row in answer.records("vertices")}
    nodes = {node.text("id"): node for node in _plan_nodes(known, answer, id_)}
    inputs = {key: _inputs(known, id_, nodes[key], rows) if key in nodes else () for key in rows}
    for key in rows:
        if nodes and key not in nodes:
            known.add_fault(f"/jobs/{id_}", "plan.nodes", f"there is no node of vertex {key}; allowed: one for each")
    order = _sorted(inputs)
    if len(order) < len(rows):
        known.add_fault(f"/jobs/{id_}", "plan.nodes", "its inputs form a cycle; allowed: a graph without one")
    read = {exchange.upstream for exchanges in inputs.values() for exchange in exchanges}
    timeout_s = duration_s(settings["execution.buffer-timeout.interval"])
    vertices, chains = [], {}
    for key in order:
        row, node = rows[key], nodes.get(key)
        description = str(node.fields.get("description") or "") if node else ""
        task_name, status = row.text("name"), str(row.fields.get("status"))
        chain = read_chain(task_name, description, has_inputs=bool(inputs[key]), has_readers=key in read)
        chains[key] = chain
        parallelism = max(1, int(row.number("parallelism", least=1)))
        metrics = known.raw(f"/jobs/{id_}/vertices/{key}/subtasks/metrics")
        vertex = Vertex(
            id=key,
            label=chain.label or key,
            kind=chain.kind,
            parallelism=parallelism,
            inputs=inputs[key],
            subtasks=_subtasks(known, id_, key, parallelism),
            slot_group=str(row.fields.get("slotSharingGroupId") or "") or None,
            buffer_timeout_s=timeout_s if key in read and timeout_s is not None and timeout_s > 0.0 else None,
            max_parallelism=_max_parallelism(row),
            stream=chain.stream,
            keeps_rows=chain.keeps_rows,
            task_name="" if status in ENDED else task_name,
            result_metrics=() if key in read else result_metrics(metrics),
            event_metrics=() if inputs[key] else event_metrics(metrics),
            commit_metrics=commit_metrics(metrics),
            has_ended=status == _FINISHED,
        )
        vertices.append(vertex)
    _describe_unplaced(known, name, vertices)
    if vertices:
        known.find("assumed", "kinds_guessed", name, job=name, count=len(vertices))
    if timeout_s is not None and timeout_s < 0.0 and read:
        known.find("warning", "buffers_without_timeout", name, job=name)
    return tuple(_with_windows(known, name, vertices, chains))


def _max_parallelism(row: AnswerObject) -> int | None:
    """Key groups of a vertex; None where they are not told."""
    told = row.optional("maxParallelism")
    return int(told) if told is not None and told >= 1.0 else None


def _plan_nodes(known: Answers, answer: AnswerObject, id_: str) -> list[AnswerObject]:
    """Nodes of the plan, in no order, from the job's answer or from that of its plan."""
    if "plan" in answer.fields:
        return list(answer.record("plan").records("nodes"))
    plan = known.record(f"/jobs/{id_}/plan")
    if plan is None:
        known.add_fault(f"/jobs/{id_}", "plan", "plan is missing; allowed: an object with the nodes and their inputs")
        return []
    return list(plan.record("plan").records("nodes"))


def _inputs(known: Answers, id_: str, node: AnswerObject, rows: Mapping[str, AnswerObject]) -> tuple[Exchange, ...]:
    exchanges = []
    for entry in node.records("inputs", required=False):
        upstream = entry.text("id")
        if upstream and upstream not in rows:
            message = f"input {upstream} is no vertex of the job; allowed: ids of its vertices"
            known.add_fault(f"/jobs/{id_}", "plan.nodes", message)
        elif upstream:
            exchanges.append(Exchange(upstream, str(entry.fields.get("ship_strategy") or "forward").lower()))
    return tuple(exchanges)


def _sorted(inputs: Mapping[str, Sequence[Exchange]]) -> list[str]:
    """Vertices before those that read them, otherwise in the order of the answer; those of a cycle left out."""
    waiting = {key: {exchange.upstream for exchange in exchanges} for key, exchanges in inputs.items()}
    readers: dict[str, list[str]] = {}
    for key, upstreams in waiting.items():
        for upstream in upstreams:
            readers.setdefault(upstream, []).append(key)
    position = {key: i for i, key in enumerate(inputs)}
    ready = [key for key, upstreams in waiting.items() if not upstreams]
    order = []
    while ready:
        key = ready.pop(0)
        order.append(key)
        freed = []
        for reader in readers.get(key, ()):
            waiting[reader].discard(key)
            if not waiting[reader]:
                freed.append(reader)
        ready += sorted(freed, key=position.__getitem__)
    return order


def _subtasks(known: Answers, job: str, vertex: str, parallelism: int) -> tuple[Subtask, ...]:
    places: dict[int, str | None] = {}
    base = f"/jobs/{job}/vertices/{vertex}"
    if (answer := known.record(base)) is not None:
        for row in answer.records("subtasks"):
            places[int(row.number("subtask", least=0))] = _place_id(row)
    elif (answer := known.record(f"{base}/taskmanagers")) is not None:
        for row in answer.records("taskmanagers"):
            count = sum(number_of(n) or 0 for n in row.record("status-counts", required=False).fields.values())
            for _ in range(int(count)):
                places[len(places)] = _place_id(row)
    return tuple(Subtask(i, places.get(i)) for i in range(parallelism))


def _place_id(row: AnswerObject) -> str | None:
    place = str(row.fields.get("taskmanager-id") or "")
    return None if not place or place.startswith("(") else place  # "(unassigned)" until it is deployed


def _describe_unplaced(known: Answers, job: str, vertices: Sequence[Vertex]) -> None:
    unplaced = [vertex.label for vertex in vertices if any(subtask.place is None for subtask in vertex.subtasks)]
    if unplaced:
        known.find("missing", "subtasks_unplaced", job, vertices=unplaced)


def _with_windows(
    known: Answers, job: str, vertices: Sequence[Vertex], chains: Mapping[str, Chain]
) -> Iterator[Vertex]:
    """Vertices with windows, the delays of watermarks that reach them, and what of their plans is not understood."""
    delays: dict[str, list[float | None]] = {}
    by_clock: dict[str, bool] = {}
    closed: dict[str, list[ChainWindow]] = {}  # windows that rows have passed when they leave a vertex
    for vertex in vertices:
        chain, subject = chains[vertex.id], f"{job}/{vertex.label}"
        above = [delay for exchange in vertex.inputs for delay in delays[exchange.upstream]]
        delays[vertex.id] = list(chain.watermarks.values()) or above
        by_clock[vertex.id] = chain.processing_time or any(by_clock[e.upstream] for e in vertex.inputs)
        before = [closed[exchange.upstream] for exchange in vertex.inputs]
        window = chain.window
        is_ordered = chain.is_pattern or (chain.by_watermark and bool(delays[vertex.id]))
        if window is None and is_ordered and not by_clock[vertex.id]:
            window = ChainWindow("row time", _WATERMARK_INTERVAL_S, event_time=True)
        if window is not None and window.is_attached and before and _all_closed(before, window):
            window = None  # it closes at the same moment as the window that all its rows come from
        closed[vertex.id] = [*itertools.chain.from_iterable(before), *([] if window is None else [window])]
        delay_s = max((d for d in chain.watermarks.values() if d is not None), default=None)
        yield replace(
            vertex,
            watermark_delay_s=delay_s,
            window=_window(known, subject, window, delays[vertex.id], by_clock=by_clock[vertex.id]),
            unread=chain.unread,
            waits_outside=chain.waits_outside,
        )
        for part in chain.unread:
            known.find("warning", "plan_unread", subject, vertex=vertex.label, part=f"{part[:1].upper()}{part[1:]}")


def _all_closed(inputs: Sequence[Sequence[ChainWindow]], window: ChainWindow) -> bool:
    """Whether the rows of every input have passed a window that closes with this one."""
    return all(any(window.closes_with(other) for other in passed) for passed in inputs)


def _window(
    known: Answers, subject: str, window: ChainWindow | None, delays: Sequence[float | None], *, by_clock: bool
) -> Mapping[str, object] | None:
    if window is None:
        return None
    if window.size_s is None and window.events is None:
        known.find("missing", "window_unknown", subject, vertex=subject, window=window.words)
        return None
    if window.is_early:
        kind, times = "" if window.early_s else "results_by_event", {"early_s": window.early_s, "size_s": window.size_s}
        known.find("found", "early_results", subject, kind, vertex=subject, **times)
    event_time = window.event_time if window.event_time is not None else bool(delays) and not by_clock
    delay_s = max((delay for delay in delays if delay is not None), default=None)
    if event_time and delay_s is None:
        delay_s = _WATERMARK_INTERVAL_S
        known.find("assumed", "watermark_assumed", subject, vertex=subject, delay_s=delay_s)
    if window.event_time is None and window.events is None and not delays and not by_clock:
        known.find("assumed", "window_time_assumed", subject, vertex=subject)
    return replace(window, event_time=event_time).to_document(delay_s)
