"""What every endpoint of the REST API promises: its methods, the scope each needs, and where it stands in the world."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ENDPOINTS", "Endpoint"]

READ, OPERATE, ADMIT, INGEST, ADMIN = "read", "operate", "admit", "ingest", "admin"


@dataclass(frozen=True)
class Endpoint:
    """`methods` are {method: scope}; `at` the parts of the address: {keyword: name in the world}.

    An endpoint with `other_sign_in` takes another proof than a person's token: that of an agent, or an enrolment's.
    """

    methods: dict[str, str]
    at: dict[str, str] = field(default_factory=dict)
    query: str = ""
    other_sign_in: bool = False


def _list(post: str | None = None, **at: str) -> Endpoint:
    return Endpoint({"GET": READ} | ({"POST": post} if post else {}), at)


def _row(pk: str, *methods: str, scope: str = OPERATE) -> Endpoint:
    """One row: to be read, and changed by these methods."""
    return Endpoint({"GET": READ} | dict.fromkeys(methods, scope), {"pk": pk})


def _action(pk: str, scope: str = OPERATE) -> Endpoint:
    return Endpoint({"POST": scope}, {"pk": pk})


def _cluster(**methods: str) -> Endpoint:
    return Endpoint(methods, {"slug": "cluster"})


def _rollout(**methods: str) -> Endpoint:
    return Endpoint(methods, {"slug": "cluster", "number": "rollout_number"})


def _config(**methods: str) -> Endpoint:
    return Endpoint(methods, {"slug": "cluster", "number": "config"})


ENDPOINTS: dict[str, Endpoint] = {}
