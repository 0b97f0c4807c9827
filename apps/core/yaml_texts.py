"""YAML of strangers: read without objects of Python, and without aliases that make a small text large."""

from __future__ import annotations

from typing import Any

import yaml

from apps.core.errors import Malformed

__all__ = ["BoundedLoader", "read_yaml"]

_MAX_YAML_NODES = 100_000  # of a document with its aliases written out


class BoundedLoader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: aliases are written out, unless a small text would become a large object by them."""

    def compose_document(self) -> Any:
        node = super().compose_document()
        if _written_size(node, {}, set()) > _MAX_YAML_NODES:
            message = f"aliases (*name) make it larger than {_MAX_YAML_NODES:,} values, or hold themselves"
            raise yaml.composer.ComposerError(None, None, message, node.start_mark)
        return node


def _written_size(node: Any, known: dict[int, int], open_: set[int]) -> int:
    """Values of a node with its aliases written out; more than is allowed where it holds itself."""
    if id(node) in open_:
        return _MAX_YAML_NODES + 1
    if id(node) not in known:
        open_.add(id(node))
        entries = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = [part for entry in entries for part in (entry if isinstance(entry, tuple) else (entry,))]
        known[id(node)] = 1 + sum(_written_size(part, known, open_) for part in parts)
        open_.discard(id(node))
    return known[id(node)]


def read_yaml(text: str, path: str) -> Any:
    """The document of a text in YAML or JSON; `path` is where it stood in what was sent.

    Raises
    ------
    Malformed
        It is none; with line and column where that is known.
    """
    try:
        return yaml.load(text, Loader=BoundedLoader)  # a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read")
        raise Malformed(f"{path}: no YAML: {problem}{where}.", [(path, f"{problem}{where}")]) from None
    except (RecursionError, ValueError) as error:
        raise Malformed(f"{path}: it cannot be read.", [(path, str(error)[:200])]) from None
