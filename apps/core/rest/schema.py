"""OpenAPI description: conventions that all operations share, and the index of `/api/v1/`."""

from __future__ import annotations

import re
from typing import Any

from django.urls import NoReverseMatch, get_resolver, reverse
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_doc
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.core.problem_details import PROBLEM_JSON
from apps.core.reach import AskedOn
from apps.core.rest.lists import is_nullable
from apps.core.rest.problems import ProblemDetailsSerializer

__all__ = ["ApiIndex", "ApiSchema", "describe_conventions"]


_REFUSED = OpenApiResponse(
    ProblemDetailsSerializer,
    "Refused: 400 malformed, 401, 403, 404, 409 stale or conflicting, 412, 413, 422, 429, 503.",
)


#: Grows by one with every change that a client could notice; the API guide says what each level brought.
API_LEVEL = 5

# Last words of addresses that are no plural of anything.
_UNCOUNTED = frozenset({"accuracy", "arrivals", "progress", "series", "statistics"})
#: Better ids than the rule's.
_NAMED = {
    "adoptQueryPlans": "adoptQueryPlan",
    "checkClusterConfigs": "checkClusterConfig",
    "createAdmission": "previewAdmission",
    "createClusterRolloutCanary": "addClusterRolloutCanaries",
    "createQueryPlan": "compareQueryPlans",
    "createStreamBatch": "sendStreamBatch",
    "createStreamProcessorFrame": "sendStreamProcessorFrames",
    "createTelemetryBatch": "sendTelemetryFrames",
    "deleteAdmissionTrial": "stopAdmissionTrial",
    "documentCluster": "importClusterDocument",
    "enrolAgents": "enrolAgent",
    "getLinkExport": "exportLinks",
    "getLiveQueryCheck": "checkLiveQuery",
    "getNodeExport": "exportNodes",
    "heartbeatAgent": "sendAgentHeartbeat",
    "listReportSchedulePreview": "previewReportSchedule",
    "previewAdmission": "previewAdmissionAgain",
    "progressSparkQuery": "sendSparkQueryProgress",
    "progressStreamProcessor": "sendStreamProcessorProgress",
    "putInForceModelVersion": "putModelVersionInForce",
    "renewSecretWebhook": "renewWebhookSecret",
    "replaceQueryStatistics": "refineQueryStatistics",
    "requestReviewAdmission": "requestAdmissionReview",
    "scheduleCluster": "switchClusterSchedule",
    "sweepWhatIfs": "sweepWhatIf",
    "trialAdmission": "startAdmissionTrial",
}
_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="The same key with the same request replays the first answer, for 24 hours.",
)
_ITEM_VERBS = {"GET": "get", "POST": "create", "PATCH": "update", "PUT": "replace", "DELETE": "delete"}
_SENTENCE = re.compile(r"(.+?)(?:[.:;](?=\s|$)|$)", re.DOTALL)


class ApiSchema(AutoSchema):
    """Description of one operation: a readable id, a summary, the room it belongs to, and its refusals."""

    def get_operation_id(self) -> str:
        """`listQueries`, `getQuery`, `createQueryVersion`, `stopQuery`: a verb, and the nouns of the address."""
        name = operation_id(self.method, self.path.removeprefix("/api/v1/"), is_list=self._is_list_view())
        return _NAMED.get(name, name)

    def get_summary(self) -> str:
        """The first sentence about the action; of the plain ones what they do."""
        action = getattr(self.view, getattr(self.view, "action", None) or self.method.lower(), None)
        sentence = _SENTENCE.match(" ".join(get_doc(action).split())) if action else None
        return sentence[1] if sentence else _plain_summary(self.get_operation_id())

    def get_serializer_name(self, serializer: Any, direction: Any) -> str:
        return super().get_serializer_name(serializer, direction).lstrip("_")

    def _get_serializer_field_meta(self, field: Any, direction: Any) -> dict[str, object]:
        """Null where an answer may have it: what is read only never says so itself."""
        if direction == "response" and not field.allow_null and self._may_be_null(field):
            field.allow_null = True
        return super()._get_serializer_field_meta(field, direction)

    def _may_be_null(self, field: Any) -> bool:
        parent = field.parent
        model = getattr(getattr(parent, "Meta", None), "model", None)
        if model is None and isinstance(parent, getattr(self.view, "serializer_class", None) or ()):
            model = self.view.queryset.model
        path = (field.source or "").replace(".", "__")
        return field.default is None or (model is not None and is_nullable(model, path, otherwise=False))

    def get_tags(self) -> list[str]:
        return [self.view.__module__.split(".")[1]]

    def map_parsers(self) -> list[Any]:
        """Without forms: an operation that takes files describes its own, elsewhere they would only repeat JSON."""
        return [kind for kind in super().map_parsers() if kind != "multipart/form-data"]

    def get_override_parameters(self) -> list[Any]:
        """Those of the view, and the `Idempotency-Key` that POSTs take unless their answer holds a secret."""
        takes_key = self.method == "POST" and not getattr(self.view, "shows_secret", lambda: True)()
        return [*super().get_override_parameters(), *([_KEY] if takes_key else [])]

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, object]:
        bodies = super()._get_response_bodies(direction)
        bodies["default"] = self._get_response_for_code(_REFUSED, "default", [PROBLEM_JSON], direction)
        return bodies


def operation_id(method: str, path: str, *, is_list: bool) -> str:
    """Id of an operation by its method and address.

    Examples
    --------
    >>> operation_id("GET", "queries/{id}/versions", is_list=True)
    'listQueryVersions'
    >>> operation_id("POST", "clusters/{slug}/rollouts/{number}/roll-back", is_list=False)
    'rollBackClusterRollout'
    >>> operation_id("GET", "forecasts/{id}/series", is_list=False)
    'getForecastSeries'
    """
    parts = path.strip("/").split("/")
    names = [part for part in parts if "{" not in part]
    *owners, last = names
    nouns = [_singular(name) for name in owners]
    if "{" in parts[-1]:
        return _camel(_ITEM_VERBS[method], *nouns, _singular(last))
    if is_list:
        return _camel("list", *nouns, last)
    if method == "POST" and owners and last == _singular(last):  # an action: of one item, or of all
        return _camel(last, *(nouns if "{" in parts[-2] else [*nouns[:-1], owners[-1]]))
    return _camel(_ITEM_VERBS[method], *nouns, _singular(last) if method == "POST" else last)


def _singular(word: str) -> str:
    """A plural of an address as one of its kind; other words stay."""
    if word in _UNCOUNTED or word.endswith("ss") or not word.endswith("s"):
        return word
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-2] if word.endswith("ches") else word[:-1]


def _camel(*parts: str) -> str:
    words = [word for part in parts for word in re.split(r"[-_.]", part) if word]
    return words[0] + "".join(word.capitalize() for word in words[1:])


def _plain_summary(name: str) -> str:
    """`getQueryVersion` as `Get a query version`."""
    verb, *nouns = re.findall(r"[a-z0-9]+|[A-Z][a-z0-9]*", name)
    noun = " ".join(nouns).lower()
    is_counted = verb != "list" and nouns[-1].lower() not in _UNCOUNTED
    article = "" if not is_counted else "an " if noun[0] in "aeiou" else "a "
    return f"{verb.capitalize()} {article}{noun}"


_MATCH = ("If-Match", "ETag of the state you have read; 412 if it has changed since.")
_HEADERS = {
    "put": _MATCH,
    "patch": _MATCH,
    "delete": _MATCH,
}
_ANY_OR_NULL = [{}, {"type": "null"}]
_PREFER = ("Prefer", "`wait=N`: wait up to N seconds, at most 30, for the result.")
_JOB_HEADERS = {
    "202": {"Location": "Address of the job."},
    "200": {"Content-Location": "Address of the result.", "Preference-Applied": "`wait=N`, where it was waited for."},
}


def describe_conventions(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """drf-spectacular's POSTPROCESSING_HOOKS entry: headers, jobs and scopes."""
    for component in result["components"]["schemas"].values():
        for described in component.get("properties", {}).values():
            if described.get("oneOf") == _ANY_OR_NULL:  # null is any value, too: it would fit both, and so neither
                del described["oneOf"]
    for operations in result["paths"].values():
        for method, operation in operations.items():
            is_job = "202" in operation["responses"]
            for name, text in [*([_HEADERS[method]] if method in _HEADERS else []), *([_PREFER] if is_job else [])]:
                header = {"name": name, "in": "header", "required": False, "description": text}
                operation.setdefault("parameters", []).append({**header, "schema": {"type": "string"}})
            if is_job:
                _describe_job(operation)
            scopes = [scope for one in operation.get("security", ()) for scope in one.get("token", ())]
            if scopes:
                operation["description"] = f"{operation.get('description', '')}\n\nScope: `{scopes[0]}`.".strip()
    return result


def _describe_job(operation: dict[str, Any]) -> None:
    """Both shapes of an answer whose work a job does."""
    texts = {"202": "A job does it; poll it until it has ended.", "200": "The job has ended: its result."}
    for status, headers in _JOB_HEADERS.items():
        answer = operation["responses"].get(status)
        if answer is not None:
            described = {name: {"schema": {"type": "string"}, "description": text} for name, text in headers.items()}
            answer["headers"] = {**answer.get("headers", {}), **described}
            answer["description"] = answer["description"] or texts[status]


_INDEX = {
    "type": "object",
    "required": ["level"],
    "properties": {"level": {"type": "integer", "description": "Grows with every change that a client could notice."}},
    "additionalProperties": {"type": "string"},
}


class ApiIndex(APIView):
    """The resources of the API with their addresses, its description and its documentation."""

    asked_on = AskedOn.OWN

    @extend_schema(operation_id="getIndex", responses={(200, "application/json"): _INDEX})
    def get(self, request: Request) -> Response:
        """Addresses of the resources by name, and the level of the API."""
        addresses = {}
        for name in get_resolver().reverse_dict:
            if not isinstance(name, str) or not name.endswith("-list"):
                continue
            try:
                path = reverse(name)
            except NoReverseMatch:  # below a resource, such as a query's versions
                continue
            addresses[path.removeprefix("/api/v1/")] = path
        return Response(
            {"level": API_LEVEL, **dict(sorted(addresses.items())), "schema": "/api/schema/", "docs": "/api/docs/"}
        )
