"""YAML of strangers: read without objects of Python, and without aliases that make a small text large."""

from __future__ import annotations

from typing import Any

import yaml

from apps.core.errors import Malformed

__all__ = ["read_yaml", "read_yaml_documents"]

_MAX_YAML_NODES = 100_000  # of a document with its aliases written out


class _StrictLoader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: aliases are written out, unless a small text would become a large object by them.

    A key that stands twice in a mapping is refused, as JSON of strangers is: the one that is lost may be the one meant.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._flattened = set[int]()  # mappings that aliases name again hold by then what was merged into them

    def compose_document(self) -> Any:
        node = super().compose_document()
        if _written_size(node, {}, set()) > _MAX_YAML_NODES:
            message = f"aliases (*name) make it larger than {_MAX_YAML_NODES:,} values, or hold themselves"
            raise yaml.composer.ComposerError(None, None, message, node.start_mark)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuse doubled keys before those of merged mappings (`<<`) are written beside a mapping's own."""
        seen = set[tuple[str, str]]()
        for key, _ in node.value if id(node) not in self._flattened else ():
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    message = f'the key "{key.value}" stands twice in one object'
                    raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
                seen.add((key.tag, key.value))
        self._flattened.add(id(node))
        super().flatten_mapping(node)


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
        It is none, or there are several; with line and column where that is known.
    """
    documents = read_yaml_documents(text, path)
    if len(documents) > 1:
        message = f"{path} holds {len(documents)} documents; allowed: one"
        raise Malformed(f"{message}.", [(path, message)])
    return documents[0] if documents else None


def read_yaml_documents(text: str, path: str) -> list[Any]:
    """All documents of a text in YAML or JSON, as `read_yaml` reads one."""
    try:
        return list(yaml.load_all(text, Loader=_StrictLoader))  # a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read")
        raise Malformed(f"{path}: no YAML: {problem}{where}.", [(path, f"{problem}{where}")]) from None
    except (RecursionError, ValueError) as error:
        raise Malformed(f"{path}: it cannot be read.", [(path, str(error)[:200])]) from None
