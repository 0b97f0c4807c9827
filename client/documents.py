"""The file that a command is given: a query for `admit`, a deployment for `estimate`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from client.errors import ClientError

__all__ = ["query_document", "read_document"]

_QUERY_FIELDS = frozenset({"query", "operators", "sources", "objective", "priority", "team", "description"})


def read_document(file: str) -> dict[str, Any]:
    """The JSON object in a file; `-` is the standard input.

    Raises
    ------
    ClientError
        It cannot be read, or is no JSON object.
    """
    name = "the standard input" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        document = json.loads(data.decode("utf-8-sig"))
    except OSError as error:
        raise ClientError("document", f"{name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ClientError("document", f"{name} is not UTF-8: byte {error.start}.") from None
    except json.JSONDecodeError as error:
        message = f"{name} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        raise ClientError("document", message) from None
    except (RecursionError, ValueError) as error:
        raise ClientError("document", f"{name} is no acceptable JSON: {error}.") from None
    if not isinstance(document, dict):
        raise ClientError("document", f"{name} holds a {type(document).__name__}; allowed: an object.")
    return document


def query_document(file: str, name: str | None) -> dict[str, Any]:
    """The query that a file describes, with its name from the file or from `name`.

    Raises
    ------
    ClientError
        The file describes no query, or a whole cluster; or the query has no name.
    """
    document = read_document(file)
    if "candidate" in document or "nodes" in document:
        raise ClientError(
            "document",
            f"{file} describes a cluster of its own; the console decides on its own clusters. Give the query alone "
            "(query, operators, objective), or ask the models on this machine: sluice engine admit.",
        )
    if "operators" not in document:
        allowed = ", ".join(sorted(_QUERY_FIELDS))
        raise ClientError("document", f"{file} describes no query: operators is missing. Its fields are {allowed}.")
    if name:
        document["query"] = name
    if not document.get("query"):
        raise ClientError("document", f"{file} does not name its query: add query to it, or say --query NAME.")
    return document
