"""Objects and reviews of Kubernetes, read: bytes or JSON in, values out.

Sources: `admission.k8s.io/v1` of Kubernetes; `flink.apache.org/v1beta1` of the Flink Kubernetes Operator
(FlinkDeployment, FlinkSessionJob); `sparkoperator.k8s.io/v1beta2` of the Spark operator (SparkApplication).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps.core.errors import Fault, Malformed, fault_count
from apps.core.limits import MAX_HOST_NAME, MAX_NOTE
from apps.core.rest.parsers import strict_json
from apps.core.yaml_texts import read_yaml, read_yaml_documents
from apps.kubernetes.models import MAX_KUBERNETES_UID

__all__ = [
    "DOCUMENT_ANNOTATION",
    "QUERY_ANNOTATION",
    "REVIEW_VERSION",
    "ReviewRequest",
    "StreamingObject",
    "read_document",
    "read_manifest",
    "read_review",
]

REVIEW_VERSION = "admission.k8s.io/v1"
QUERY_ANNOTATION = "sluice.io/query"
DOCUMENT_ANNOTATION = "sluice.io/document"
#: Kinds that are decided on, with the version of each that can be read.
KINDS = {
    "FlinkDeployment": "flink.apache.org/v1beta1",
    "FlinkSessionJob": "flink.apache.org/v1beta1",
    "SparkApplication": "sparkoperator.k8s.io/v1beta2",
}
#: Kinds of the same operators that start no job by themselves: their operator makes objects of the kinds above of them.
_MAKERS = {"FlinkBlueGreenDeployment": "FlinkDeployment", "ScheduledSparkApplication": "SparkApplication"}
_OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")
_OVERRIDES = "pipeline.jobvertex-parallelism-overrides"
_SLOTS, _DEFAULT_SLOTS = "taskmanager.numberOfTaskSlots", 1
_PARALLELISM = "parallelism.default"
_NUMBER = re.compile(r"\d{1,6}\Z")
_MAX_DOCUMENTS = 50


@dataclass(frozen=True, slots=True)
class StreamingObject:
    """A Kubernetes object that asks for a streaming job, as far as an admission needs it.

    Attributes
    ----------
    job_names : tuple of str
        Names that the job may have in its engine, the surest first.
    parallelism : int, optional
        Most subtasks of an operator, or tasks at a time; None where the object does not say.
    least_parallelism : int, optional
        The least that it may run with, where that is not `parallelism`: executors come and go.
    has_job : bool
        Whether it runs a job: a session cluster runs none of its own.
    is_readable : bool
        Whether it is of a kind and version that is decided on.
    is_other_version : bool
        Whether it is of such a kind in a version that cannot be read.
    document : str
        A query's document, JSON or YAML, from its annotation; empty: none.
    material : str
        Digest of everything that a decision may depend on.
    faults : tuple of Fault
        Parts that could not be read.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    job_names: tuple[str, ...] = ()
    parallelism: int | None = None
    least_parallelism: int | None = None
    is_suspended: bool = False
    has_job: bool = True
    is_readable: bool = False
    is_other_version: bool = False
    query: str = ""
    document: str = ""
    material: str = ""
    faults: tuple[Fault, ...] = ()

    @property
    def makes(self) -> str:
        """Kind of the objects that its operator makes of it, each of which is decided on; empty for others."""
        return _MAKERS.get(self.kind, "")


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """Question of Kubernetes: may this operation on this object be done?"""

    uid: str
    operation: str
    username: str
    dry_run: bool
    subject: StreamingObject
    before: StreamingObject | None = None
    digest: str = field(default="")


def read_review(body: Any) -> ReviewRequest:
    """Read an AdmissionReview.

    Raises
    ------
    Malformed
        It is none, is of another version, or lacks what an answer needs; with every fault.
    """
    faults: list[Fault] = []
    review = _mapping(body, "", faults)
    _expect(review, "apiVersion", REVIEW_VERSION, faults)
    _expect(review, "kind", "AdmissionReview", faults)
    request = _mapping(review.get("request"), "request", faults) if not faults else {}
    if not faults:
        uid = _text(request, "uid", "request.uid", faults, MAX_KUBERNETES_UID)
        operation = request.get("operation")
        if operation not in _OPERATIONS:
            faults.append(
                Fault("request.operation", f"operation is {_shown(operation)}; allowed: {', '.join(_OPERATIONS)}")
            )
        dry_run = request.get("dryRun", False)
        if not isinstance(dry_run, bool | None):
            faults.append(Fault("request.dryRun", f"dryRun is {_shown(dry_run)}; allowed: true and false"))
        is_leaving = operation in {"DELETE", "CONNECT"}
        username = _inner(request, "userInfo").get("username")
        subject = _subject(request, "oldObject" if is_leaving else "object", faults, required=not is_leaving)
        before = _subject(request, "oldObject", faults, required=False) if operation == "UPDATE" else None
    if faults:
        raise Malformed(f"The AdmissionReview has {fault_count(faults)}; first: {faults[0]}", faults)
    assert subject is not None  # of an operation that needs it a fault was raised
    return ReviewRequest(
        uid=uid,
        operation=str(operation),
        username=username[:MAX_HOST_NAME] if isinstance(username, str) else "",
        dry_run=bool(dry_run),
        subject=subject,
        before=before if before is not None and before.name else None,
        digest=_digest([operation, bool(dry_run), request.get("object"), request.get("oldObject")]),
    )


def read_manifest(text: str) -> list[StreamingObject]:
    """Objects of a manifest, YAML or JSON, of one or several documents; a List counts as what it holds, and an
    AdmissionReview as its object.

    Raises
    ------
    Malformed
        It is no YAML, holds no object, or objects without a kind or a name; with every fault.
    """
    documents = [document for document in read_yaml_documents(text, "manifest") if document is not None]
    objects = [item for document in documents for item in _items(document)]
    faults: list[Fault] = []
    if not objects or len(objects) > _MAX_DOCUMENTS:
        faults.append(Fault("manifest", f"it holds {len(objects)} objects; allowed: 1 to {_MAX_DOCUMENTS}"))
        objects = []
    read = [read_object(item, f"manifest[{i}]", faults) for i, item in enumerate(objects)]
    if faults:
        raise Malformed(f"The manifest has {fault_count(faults)}; first: {faults[0]}", faults)
    return read


def read_object(item: Any, path: str, faults: list[Fault], namespace: str = "") -> StreamingObject:
    """Read an object. What names it must be there; what else cannot be read stands in its own `faults`."""
    document = _mapping(item, path, faults)
    api_version = _text(document, "apiVersion", f"{path}.apiVersion", faults, MAX_HOST_NAME) if document else ""
    kind = _text(document, "kind", f"{path}.kind", faults, MAX_NOTE) if document else ""
    metadata = _mapping(document.get("metadata"), f"{path}.metadata", faults) if document else {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    if isinstance(document.get("metadata"), Mapping) and not (isinstance(name, str) and 0 < len(name) <= MAX_HOST_NAME):
        faults.append(
            Fault(f"{path}.metadata.name", f"name is {_shown(name)}; allowed: 1 to {MAX_HOST_NAME} characters")
        )
        name = ""
    stated = metadata.get("namespace")
    own: list[Fault] = []
    is_readable = KINDS.get(kind) == api_version
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        if is_readable:
            own.append(Fault("spec", f"spec is {_shown(spec)}; allowed: an object"))
        spec = {}
    annotations = _inner(metadata, "annotations")
    query, text = (_annotation(annotations, key, own) for key in (QUERY_ANNOTATION, DOCUMENT_ANNOTATION))
    is_spark = kind == "SparkApplication"
    settings = {} if is_spark else _flat_settings(spec.get("flinkConfiguration"), "spec.flinkConfiguration", own)
    most, least = None, None
    if is_readable:
        most, least = _spark_parallelism(spec, own) if is_spark else (_flink_parallelism(spec, settings, own), None)
    return StreamingObject(
        api_version=api_version,
        kind=kind,
        namespace=stated[:MAX_HOST_NAME] if isinstance(stated, str) and stated else namespace,
        name=name,
        job_names=_job_names(spec.get("sparkConf") if is_spark else settings, name, is_spark=is_spark),
        parallelism=most,
        least_parallelism=least,
        is_suspended=_is_suspended(spec),
        has_job=kind != "FlinkDeployment" or spec.get("job") is not None or bool(query or text),
        is_readable=is_readable,
        is_other_version=_is_other_version(kind, api_version),
        query=query,
        document=text,
        material=_digest([api_version, kind, spec, query, text]),
        faults=tuple(own),
    )


def _subject(request: Mapping[str, object], key: str, faults: list[Fault], *, required: bool) -> StreamingObject | None:
    """The object of a review; one that Kubernetes leaves out, as of a DELETE, by what the request says of it."""
    item = request.get(key)
    stated = request.get("namespace")
    namespace = stated[:MAX_HOST_NAME] if isinstance(stated, str) else ""
    if item is None and not required:
        kind = _inner(request, "kind")
        group, version, name = kind.get("group"), kind.get("version"), request.get("name")
        parts = [part for part in (group, version) if isinstance(part, str) and part]
        return StreamingObject(
            "/".join(parts)[:MAX_HOST_NAME],
            str(kind.get("kind") or "")[:MAX_NOTE],
            namespace,
            name[:MAX_HOST_NAME] if isinstance(name, str) else "",
        )
    return read_object(item, f"request.{key}", faults, namespace)


def _is_other_version(kind: str, api_version: str) -> bool:
    known = KINDS.get(kind, "")
    return bool(known) and known != api_version and known.partition("/")[0] == api_version.partition("/")[0]


def _job_names(settings: object, name: str, *, is_spark: bool) -> tuple[str, ...]:
    """By which name the engine may know the job: as it is configured, then as the object is called."""
    key = "spark.app.name" if is_spark else "pipeline.name"
    stated = settings.get(key) if isinstance(settings, Mapping) else None
    return tuple(dict.fromkeys(text for text in (stated, name) if isinstance(text, str) and text))


def _flat_settings(value: object, path: str, faults: list[Fault]) -> dict[str, object]:
    """Settings by their whole names: `a.b: 1` and `a: {b: 1}` say the same, and one may not say another thing."""
    flat: dict[str, object] = {}
    waiting = [("", value)] if isinstance(value, Mapping) else []
    while waiting:
        prefix, settings = waiting.pop()
        for key, entry in settings.items():
            name = f"{prefix}{key}"
            if isinstance(entry, Mapping) and name != _OVERRIDES:
                waiting.append((f"{name}.", entry))
            elif name in flat and str(flat[name]) != str(entry):
                faults.append(
                    Fault(f"{path}.{name}", f"it is {_shown(flat[name])} and {_shown(entry)}; allowed: one of them")
                )
            else:
                flat[name] = entry
    return flat


def _flink_parallelism(spec: Mapping[str, object], settings: Mapping[str, object], faults: list[Fault]) -> int | None:
    """The most that an operator gets, by the rules of Flink's Kubernetes operator; overrides of vertices count as well.

    Where the number of TaskManagers is given, their slots decide, and the job's own parallelism is ignored; without
    either, the configuration's default.
    """
    stated_job = spec.get("job")
    if stated_job is not None and not isinstance(stated_job, Mapping):
        faults.append(Fault("spec.job", f"job is {_shown(stated_job)}; allowed: an object"))
    job, managers = _inner(spec, "job"), _inner(spec, "taskManager")
    replicas = _count(managers.get("replicas"), "spec.taskManager.replicas", faults)
    stated = _count(job.get("parallelism"), "spec.job.parallelism", faults)
    default = _count(settings.get(_PARALLELISM), f"spec.flinkConfiguration.{_PARALLELISM}", faults)
    if replicas is not None:
        slots = _count(settings.get(_SLOTS), f"spec.flinkConfiguration.{_SLOTS}", faults)
        counts = [replicas * (slots or _DEFAULT_SLOTS)]
    else:
        counts = [count for count in (stated if stated is not None else default,) if count is not None]
    overrides = settings.get(_OVERRIDES)
    if isinstance(overrides, str):
        pairs = [pair.rpartition(":") for pair in overrides.split(",") if pair.strip()]
        overrides = {vertex: count.strip() for vertex, _, count in pairs}
    if isinstance(overrides, Mapping):
        found = [_count(count, f"spec.flinkConfiguration.{_OVERRIDES}", faults) for count in overrides.values()]
        counts += [count for count in found if count is not None]
    return max(counts, default=None)


def _spark_parallelism(spec: Mapping[str, object], faults: list[Fault]) -> tuple[int | None, int | None]:
    """The most tasks at a time, and the least where executors come and go; the object's own fields before its conf."""
    executor, dynamic, conf = (_inner(spec, key) for key in ("executor", "dynamicAllocation", "sparkConf"))

    def number(fields: Mapping[str, object], where: str, name: str, setting: str, *, least: int = 1) -> int | None:
        if fields.get(name) is not None:
            return _count(fields[name], f"spec.{where}.{name}", faults, least)
        return _count(conf.get(setting), f"spec.sparkConf.{setting}", faults, least)

    cores = number(executor, "executor", "cores", "spark.executor.cores") or 1
    instances = number(executor, "executor", "instances", "spark.executor.instances", least=0)
    enabled = dynamic.get("enabled", conf.get("spark.dynamicAllocation.enabled"))
    if str(enabled).lower() != "true":
        return (instances * cores if instances else None), None
    most = number(dynamic, "dynamicAllocation", "maxExecutors", "spark.dynamicAllocation.maxExecutors")
    least = number(dynamic, "dynamicAllocation", "minExecutors", "spark.dynamicAllocation.minExecutors", least=0)
    return (most * cores if most is not None else None), (least or 0) * cores


def _count(value: object, path: str, faults: list[Fault], least: int = 1) -> int | None:
    if value is None:
        return None
    text = str(value).strip()
    if isinstance(value, bool) or not _NUMBER.match(text) or int(text) < least:
        faults.append(Fault(path, f"it is {_shown(value)}; allowed: a whole number from {least}"))
        return None
    return int(text)


def _is_suspended(spec: Mapping[str, object]) -> bool:
    return _inner(spec, "job").get("state") == "suspended" or spec.get("suspend") is True


def _annotation(annotations: Mapping[str, object], key: str, faults: list[Fault]) -> str:
    value = annotations.get(key, "")
    if isinstance(value, str):
        return value.strip()
    faults.append(Fault(f"metadata.annotations[{key}]", f"it is {_shown(value)}; allowed: text"))
    return ""


def _inner(fields: Mapping[str, object], key: str) -> Mapping[str, object]:
    """An object within an object; empty where there is none."""
    value = fields.get(key)
    return value if isinstance(value, Mapping) else {}


def _mapping(value: object, path: str, faults: list[Fault]) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    name = path.rpartition(".")[2] or "the body"
    faults.append(Fault(path, f"{name} is {_shown(value)}; allowed: an object"))
    return {}


def _expect(document: Mapping[str, object], key: str, allowed: str, faults: list[Fault]) -> None:
    if document and document.get(key) != allowed:
        faults.append(Fault(key, f"{key} is {_shown(document.get(key))}; allowed: {allowed}"))


def _text(document: Mapping[str, object], key: str, path: str, faults: list[Fault], limit: int) -> str:
    value = document.get(key)
    if isinstance(value, str) and 0 < len(value) <= limit and value.isprintable():
        return value
    faults.append(Fault(path, f"{key} is {_shown(value)}; allowed: 1 to {limit} printable characters"))
    return ""


def _shown(value: object) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode("utf-8", "replace")).hexdigest()


def _items(document: Any) -> Sequence[Any]:
    if isinstance(document, Mapping) and document.get("kind") == "List" and isinstance(document.get("items"), list):
        return list(document["items"])
    request = document.get("request") if isinstance(document, Mapping) else None
    if isinstance(request, Mapping) and document.get("kind") == "AdmissionReview" and "object" in request:
        return [request["object"]]  # as an API server asks it, saved to try it out
    return [document]


def read_document(text: str) -> Any:
    """The document of an annotation: JSON, or else YAML. Malformed names its place."""
    if text.lstrip().startswith("{"):
        return strict_json(text.encode())
    return read_yaml(text, DOCUMENT_ANNOTATION)
