"""Why a command ends without an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["ClientError"]


class ClientError(Exception):
    """The console was not reached, or refused: then `code` and `faults` are those of its problem details.

    Codes of the command's own: ``unreachable``, ``timeout``, ``settings``, ``document`` and ``not_a_console``.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        faults: Iterable[Mapping[str, str]] = (),
        *,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code, self.detail, self.faults = code, detail, tuple(faults)
        self.problem = dict(problem or {})

    def to_dict(self) -> dict[str, Any]:
        """The error for programs: the console's problem details as they came, or as many of their members as apply."""
        return {**self.problem, "code": self.code, "detail": self.detail, "faults": [dict(one) for one in self.faults]}

    def lines(self) -> list[str]:
        """The error for people: the sentence, then every fault that it does not hold already."""
        faults = [f"{fault.get('path', '')}: {fault.get('message', '')}" for fault in self.faults]
        return [self.detail, *(f"  {fault}" for fault in faults if fault.strip(": ") not in self.detail)]
