"""Errors as they are answered: problem details (RFC 9457) below /api/, with a type for each code; else error pages."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.utils.http import url_has_allowed_host_and_scheme

from apps.core.errors import Forbidden, Internal, Malformed, Missing, SluiceError

__all__ = [
    "PROBLEM_JSON",
    "PROBLEM_TITLES",
    "bad_request",
    "csrf_failure",
    "error_response",
    "forbidden",
    "not_found",
    "problem_details",
    "problem_of_job",
    "problem_type",
    "server_error",
]

_log = logging.getLogger(__name__)

PROBLEM_JSON = "application/problem+json"
_DOCS = "/help/docs/errors"

#: Title of each code: what an error of this type is, the same words every time.
PROBLEM_TITLES = {
    # -- the request
    "malformed": "The input cannot be read",
    "wrong-option": "An option is not taken",
    "corrupt": "The binary body cannot be read",
    "wrong_columns": "Records have other columns than the query reads",
    "wrong_frames": "Frames are not this sender's, or not in order",
    "not_acceptable": "Only JSON is answered",
    "unsupported_media_type": "The body is of a type that is not taken",
    "method_not_allowed": "The address does not take this method",
    "too_large": "More than is taken at once",
    "too-large": "Too large to simulate",
    "too_many": "Too many requests",
    "key_reused": "The Idempotency-Key belongs to another request",
    "precondition_failed": "It has changed since it was read",
    # -- the caller
    "not_authenticated": "Nobody known is asking",
    "token_expired": "The token has expired",
    "token_revoked": "The token was revoked",
    "token_used_up": "The enrolment token is used up",
    "token_network": "The token is bound to other networks",
    "token_name": "The enrolment token is bound to another agent",
    "agent_known": "An agent of this name is known, and this is not shown to be it",
    "scope_missing": "The caller lacks a scope",
    "out_of_sight": "The change would take it out of what the caller sees",
    "owners": "It touches what others own",
    "last_admin": "Nobody would be left who may administer everything",
    "session_only": "Only a signed-in person may do this",
    "second_factor_missing": "The role needs a second factor",
    "account_off": "The account is switched off",
    "provider_refused": "The provider did not sign anybody in",
    "provider_untrusted": "The provider's answer cannot be trusted",
    "provider_away": "The provider does not answer",
    "forbidden": "The caller may not do this",
    "agent_unknown": "No agent has this secret",
    "agent_disabled": "The sender is disabled",
    "another_agent": "The secret belongs to another agent",
    # -- what is there
    "missing": "There is no such thing",
    "conflict": "It contradicts something that exists",
    "stale": "The cluster has moved",
    "expired": "The preview has expired",
    "nothing_on_paper": "No query of the incident is well on paper alone",
    "wrong_state": "Its state does not allow this",
    "group_incomplete": "A member of the group was deleted",
    "in_group": "It is decided on with its group",
    "already_undone": "The change was taken back already",
    "changed_since": "The object is not as the change left it",
    "not_undoable": "The change cannot be taken back",
    "snapshot_lost": "The snapshot of the verdict is gone",
    "verdict_differs": "Computed again, it is another verdict",
    "nothing_to_compute": "There is nothing to compute again",
    "policy_moved": "Another policy is in force",
    "second_person": "Another person has to confirm",
    "running": "It runs already",
    "busy": "Another run of the cluster is being applied",
    "under_way": "One of its kind is under way",
    "not_live": "The query is not live",
    "live_run": "The query is tried already, or has a stopped live run",
    "no_trial": "There is no trial",
    "gap": "Numbers are missing",
    "full": "No room for more records now",
    "observed": "It was observed already",
    "in_force": "The model is in force already",
    "other_cluster": "It belongs to another cluster",
    "refused": "The guard refused the model",
    "check_refused": "The check refused the configuration",
    "nothing_to_move": "The proposal moves nothing",
    "nothing_to_undo": "Nothing was moved",
    "nothing_to_override": "The verdict is to admit",
    "not_wrong": "The verdict did not turn out wrong",
    # -- what cannot be done
    "impossible": "It cannot be done",
    "engine_away": "The engine does not answer",
    "engine_refused": "The engine cannot be asked, or answers with something else",
    "not_imported": "The query was not imported from an engine",
    "nothing_to_export": "There is no placement to export",
    "infeasible": "The question has no answer",
    "unplaced": "Operators are on no node",
    "not_executable": "The query has operators that cannot be executed",
    "not-runnable": "An expression cannot be computed",
    "prediction": "The query cannot be predicted",
    "weights": "The weights of the model cannot be used",
    "no_model": "No model can predict",
    "unreadable": "It cannot be read",
    "out-of-range": "Numbers leave the range that can be computed with",
    "defect": "A defect of the engine",
    "too_few": "Too few observations",
    "too_few_batches": "Too few micro-batches",
    "too_little_recorded": "Too little was recorded",
    "verdict_reject": "The verdict is to reject",
    "verdict_review": "The verdict is to ask a person",
    "override": "The verdict needs an override",
    "override_role": "The policy reserves overriding",
    "change_frozen": "A freeze holds",
    "queue_overdue": "Others have waited longer",
    # -- Sluice itself
    "engine": "The engine refused",
    "unavailable": "A part of Sluice does not answer",
    "read_only": "Changes are refused for now",
    "worker_lost": "The job lost its worker too often",
    "too_long": "The job took too long",
    "cancelled": "The job was cancelled",
    "internal": "Something went wrong inside Sluice",
}


def problem_type(code: str) -> str:
    """URI reference of a code's type: a section of the documentation."""
    return f"{_DOCS}#{code}"


def problem_details(
    error: SluiceError, *, instance: str, request_id: str, status: int | None = None
) -> dict[str, object]:
    """The body of a refusal, of media type `PROBLEM_JSON`.

    Parameters
    ----------
    instance
        Path of the request.
    request_id
        Id under which the log has it.
    status
        Where it is not the error's own.
    """
    stated = status or error.status
    faults = [{"path": fault.path, "message": fault.message} for fault in error.faults]
    return {
        **_details(error.code, stated, error.message, faults),
        "instance": instance,
        "request_id": request_id,
        **error.data,
    }


def problem_of_job(error: Mapping[str, Any], status: int = 422) -> dict[str, Any]:
    """Why a job failed, as the same details: it has neither a request nor its id."""
    code = error.get("code", "impossible")
    stated = 500 if code == "internal" else status
    return _details(code, stated, error.get("message", "The job failed."), error.get("faults", ()))


def _details(code: str, status: int, detail: str, faults: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    title = PROBLEM_TITLES.get(code) or HTTPStatus(status).phrase
    return {
        "type": problem_type(code),
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "faults": list(faults),
    }


def error_response(request: HttpRequest, error: SluiceError) -> HttpResponse:
    """The answer to a refused request in the form its sender reads.

    Below /api/ it is the problem details of every REST error. Otherwise the template `ui/error.html`, or for htmx
    requests `ui/error_fragment.html`, with the context status, title, message, faults, request_id, retry_after_s, back.
    """
    request.refusal = error  # type: ignore[attr-defined] # for the ledger
    request_id = getattr(request, "request_id", "")
    if request.path.startswith("/api/"):
        body = problem_details(error, instance=request.path, request_id=request_id)
        return JsonResponse(body, status=error.status, headers=error.headers, content_type=PROBLEM_JSON)
    context = {
        "status": error.status,
        "title": HTTPStatus(error.status).phrase.capitalize(),
        "message": error.message,
        "faults": error.faults,
        "request_id": request_id,
        "retry_after_s": error.retry_after_s,
        "back": _back(request),
    }
    fragment = bool(getattr(request, "htmx", False))
    response = HttpResponse(_render(request, context, fragment), status=error.status, headers=error.headers)
    if fragment:  # it has the page's address: the browser's Back would show it in place of the page
        response.headers["Cache-Control"] = "no-store"
    return response


def _back(request: HttpRequest) -> str:
    """The page whose form was refused, if it is one of ours."""
    came_from = request.META.get("HTTP_REFERER", "")
    ours = url_has_allowed_host_and_scheme(came_from, {request.META.get("HTTP_HOST", "")})
    return came_from if ours and request.method == "POST" else ""


def _render(request: HttpRequest, context: dict[str, object], fragment: bool) -> str:
    """The page with its frame; without the frame (it reads the database) when that fails too."""
    template = "ui/error_fragment.html" if fragment else "ui/error.html"
    try:
        return render_to_string(template, context, request=request)
    except Exception:
        _log.exception("the error page cannot be rendered with its frame")
        return render_to_string("core/error_plain.html", {**context, "fragment": fragment})


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler400"""
    return error_response(request, Malformed("The request cannot be read."))


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler403"""
    return error_response(request, Forbidden(str(exception) or "You may not do this."))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler404"""
    hint = " Addresses of the API do not end in a slash." if _api_slash(request.path) else ""
    return error_response(request, Missing(f"There is nothing at {request.path}.{hint}"))


def _api_slash(path: str) -> bool:
    return path.startswith("/api/v1/") and path.endswith("/")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """CSRF_FAILURE_VIEW"""
    return error_response(request, Forbidden("The form has expired or was sent from another site. Reload the page."))


def server_error(request: HttpRequest) -> HttpResponse:
    """handler500: says that it is our fault and under which id it is in the log, never a stack trace."""
    return error_response(request, Internal("Something went wrong inside Sluice. The log has it by the request id."))
