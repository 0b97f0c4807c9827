"""Parts of documents read on their own."""

from __future__ import annotations

from typing import Any

from engine.costream.documents import OPERATORS, HostDocument, QueryDocument
from engine.errors import DocumentError, Fault
from engine.query_graph.graph import HostNode, OperatorNode, QueryGraph
from engine.records import RecordOf


def graph_of(document: Any) -> QueryGraph:
    return QueryDocument.parse(document).graph()


def hosts_of(documents: Any) -> tuple[HostNode, ...]:
    return tuple(HostDocument.parse(document).node() for document in documents)


def operator_of(document: Any) -> OperatorNode:
    faults: list[Fault] = []
    operator = RecordOf(OPERATORS, "type").read(document, "", "operator", faults)
    if faults:
        raise DocumentError(faults, "operator")
    return operator.node()  # type: ignore[no-any-return]
