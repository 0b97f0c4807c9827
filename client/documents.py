"""The file that a command is given: a query or a manifest for `admit`, a deployment for `estimate`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from client.errors import ClientError

__all__ = ["file_text", "manifest_text", "query_document", "read_document"]

_MANIFEST = re.compile(r"^apiVersion:\s*\S", re.MULTILINE)
_QUERY_FIELDS = frozenset({"query", "operators", "sources", "objective", "priority", "team", "description"})


def read_document(file: str) -> dict[str, Any]:
    """The JSON object in a file; `-` is the standard input.

    Raises
    ------
    ClientError
        It cannot be read, or is no JSON object.
    """
    return _parsed(file_text(file), _name(file))


def manifest_text(file: str) -> tuple[str, bool]:
    """The text of a file, and whether it is a manifest of Kubernetes: YAML, or JSON with a kind and its version.

    The console parses YAML: this command needs the standard library alone.
    """
    text = file_text(file)
    if Path(file).suffix in {".yaml", ".yml"}:
        return text, True
    if not text.lstrip().startswith("{"):
        return text, _MANIFEST.search(text) is not None
    try:
        document = json.loads(text)
    except ValueError:
        return text, False
    return text, isinstance(document, dict) and {"apiVersion", "kind"} <= document.keys()


def _name(file: str) -> str:
    return "the standard input" if file == "-" else file


def file_text(file: str) -> str:
    """The text of a file; `-` is the standard input."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ClientError("document", f"{_name(file)} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise ClientError("document", f"{_name(file)} is not UTF-8: byte {error.start}.") from None


def _parsed(text: str, name: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"{name} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        raise ClientError("document", message) from None
    except (RecursionError, ValueError) as error:
        raise ClientError("document", f"{name} is no acceptable JSON: {error}.") from None
    if not isinstance(document, dict):
        raise ClientError("document", f"{name} holds a {type(document).__name__}; allowed: an object.")
    return document


def query_document(text: str, file: str, name: str | None) -> dict[str, Any]:
    """The query that the text of a file describes, with its name from the file or from `name`.

    Raises
    ------
    ClientError
        The file describes no query, or a whole cluster; or the query has no name.
    """
    document = _parsed(text, _name(file))
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
