"""Pipelines over a tree of nodes: sources, stream processors between, and the root that completes every query.

The operator problem of the Jarvis paper (section IV): each stream is cut at every node on its way to the root, so that
as few bytes as possible travel and no node takes longer for what it runs than it would take to send it on and run it
further up. Finite nodes and links serve all streams at once, which is why streams cannot be cut one by one
(lab/jarvis/tree_search.py solves it; docs/models/jarvis.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement, pairwise
from math import inf
from typing import Annotated, Any, ClassVar

from engine.errors import Fault
from engine.jarvis.partition import Frontier, Sizes, list_faults
from engine.kinds import Number, String
from engine.records import ItemCount, Record, Words

__all__ = ["NodeLoad", "StreamCut", "Tree", "TreeDocument", "TreeNode", "TreeStream"]

TIE = 1e-12  # relative, of times that are compared
_COUNT = Number(least=0, whole=True)
_NonNegative = Annotated[float, Number(least=0)]


@dataclass(frozen=True, kw_only=True)
class NodeDocument(Record):
    """A node of a tree document."""

    TITLE: ClassVar[str] = "a node of the tree"

    id: Annotated[str, String()]
    parent: Annotated[Annotated[str, String()] | None, Words("where it sends to; null for the root")] = None
    cores: Annotated[_NonNegative, Words("CPU seconds per second for these streams; of the root above 0")]
    ingress_bytes_s: Annotated[
        Annotated[float, Number(above=0)] | None, Words("what its links take in all; null: no limit")
    ] = None


@dataclass(frozen=True, kw_only=True)
class StreamDocument(Record):
    """A stream of a tree document."""

    TITLE: ClassVar[str] = "a stream"

    node: Annotated[str, String(), Words("the source, a node without children")]
    relay: Annotated[
        tuple[_NonNegative, ...], ItemCount(least=1), Words("as for partition, of all operators of the query")
    ]
    cost: tuple[_NonNegative, ...]
    sizes: Sizes
    n_records: Annotated[float, Number(above=0), Words("records that enter in an epoch")]
    at_source: Annotated[
        int | None, _COUNT, Words("leading operators that may run at a source, by rules 1 to 4; without it all")
    ] = None
    between: Annotated[
        int | None, _COUNT, Words("those that may run between source and root, by rules 1 to 3; without it at_source")
    ] = None

    def find_faults(self) -> Iterator[Fault]:
        """Lists of other lengths than the operators ask for, and more operators than there are."""
        yield from list_faults(self.relay, self.cost, self.sizes)
        for name, number in (("at_source", self.at_source), ("between", self.between)):
            if number is not None and number > len(self.relay):
                message = f"{name} is {number}; allowed: at most {len(self.relay)}, as relay has"
                yield Fault(name, message)


@dataclass(frozen=True, kw_only=True)
class TreeDocument(Record):
    """A tree of nodes and its streams."""

    TITLE: ClassVar[str] = "a tree of nodes"

    nodes: Annotated[tuple[NodeDocument, ...], ItemCount(least=1)]
    streams: tuple[StreamDocument, ...]
    epoch_s: Annotated[float, Number(above=0), Words("1")] = 1.0

    def find_faults(self) -> Iterator[Fault]:
        """Nodes whose parents make no tree, and streams that enter elsewhere than at a source."""
        faults: list[Fault] = []
        _parents(self.nodes, faults)
        yield from faults
        sources = {node.id for node in self.nodes} - {node.parent for node in self.nodes}
        for i, stream in enumerate(self.streams):
            if stream.node not in sources:
                yield Fault(f"streams[{i}].node", f"node is {stream.node!r}; allowed: a node without children")


@dataclass(frozen=True, slots=True)
class TreeNode:
    """Node of a tree, on which operators may run."""

    id: str
    parent: int | None
    cores: float
    ingress_bytes_s: float


@dataclass(frozen=True, slots=True)
class TreeStream:
    """Stream of one source into one query."""

    path: tuple[int, ...]  #: nodes from the source to the root
    frontier: Frontier
    n_records: float
    at_source: int
    between: int

    @property
    def operators(self) -> int:
        """M."""
        return self.frontier.operators

    def choices(self) -> Iterator[StreamCut]:
        """Every way to cut it along its path."""
        hops = len(self.path) - 1
        for cuts in combinations_with_replacement(range(max(self.at_source, self.between) + 1), hops):
            if hops == 0 or (cuts[0] <= self.at_source and all(c <= self.between or c == cuts[0] for c in cuts)):
                yield self._choice(cuts)

    def _choice(self, cuts: tuple[int, ...]) -> StreamCut:
        cpu_s, sent = self.frontier.cpu_s, self.frontier.sent
        ends = [0, *cuts, self.operators]
        work = [self.n_records * (cpu_s[b] - cpu_s[a]) for a, b in pairwise(ends)]
        incoming = [0.0, *(self.n_records * sent[cut] for cut in cuts)]
        return StreamCut(cuts, sum(incoming), tuple(work), tuple(incoming))


@dataclass(frozen=True, slots=True)
class StreamCut:
    """A stream cut at each node of its path but the root."""

    cuts: tuple[int, ...]  #: leading operators that have run when it leaves the node
    sent_bytes: float  #: per epoch, over all hops
    work_s: tuple[float, ...]  #: per epoch, at each node of the path
    incoming_bytes: tuple[float, ...]  #: per epoch, into each node of the path


class NodeLoad:
    """Load of nodes in an epoch, kept up as streams are cut."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.work_s = [0.0] * len(tree.nodes)
        self.incoming_bytes = [0.0] * len(tree.nodes)

    def add(self, stream: TreeStream, choice: StreamCut, sign: float = 1.0) -> None:
        """Count a stream's choice, or with -1 no longer."""
        for node, work_s, incoming in zip(stream.path, choice.work_s, choice.incoming_bytes, strict=True):
            self.work_s[node] += sign * work_s
            self.incoming_bytes[node] += sign * incoming

    def local_s(self, node: int) -> float:
        """Seconds that a node takes for what it runs of an epoch (T_local)."""
        work_s, cores = self.work_s[node], self.tree.nodes[node].cores
        if work_s <= TIE:
            return 0.0
        return work_s / cores if cores else inf

    def remote_s(self) -> list[float]:
        """Per node the seconds from leaving it until the root is done: transfers and work further up (T_remote)."""
        seconds = [0.0] * len(self.tree.nodes)
        for node in self.tree.downwards:
            parent = self.tree.nodes[node].parent
            if parent is not None:
                transfer_s = self.incoming_bytes[parent] / self.tree.nodes[parent].ingress_bytes_s
                seconds[node] = transfer_s + self.local_s(parent) + seconds[parent]
        return seconds

    def late(self) -> Iterator[tuple[int, float, float]]:
        """Nodes that take longer for what they run than they may: node, seconds, seconds allowed."""
        remote_s = self.remote_s()
        for node in self.tree.downwards[1:]:
            local_s, allowed_s = self.local_s(node), min(remote_s[node], self.tree.epoch_s)
            if local_s > allowed_s * (1 + TIE):
                yield node, local_s, allowed_s


@dataclass(frozen=True)
class Tree:
    """Nodes and the streams that enter at sources."""

    nodes: tuple[TreeNode, ...]
    streams: tuple[TreeStream, ...]
    epoch_s: float = 1.0

    @cached_property
    def downwards(self) -> tuple[int, ...]:
        """Indices of all nodes, the root first, each after its parent."""
        parents = [node.parent for node in self.nodes]
        depth = [len(_path(parents, i)) for i in range(len(parents))]
        return tuple(sorted(range(len(self.nodes)), key=depth.__getitem__))

    @cached_property
    def inner(self) -> tuple[int, ...]:
        """Those of `downwards` that have children."""
        parents = {node.parent for node in self.nodes}
        return tuple(node for node in self.downwards if node in parents)

    @classmethod
    def parse(cls, document: Any) -> Tree:
        """Read a `TreeDocument`.

        Raises
        ------
        DocumentError
            With every fault: fields, names given twice or unknown, no root or several, circles, lengths.
        """
        read = TreeDocument.parse(document)
        parents = _parents(read.nodes, [])
        nodes = tuple(
            TreeNode(node.id, parent, node.cores, node.ingress_bytes_s or inf)
            for node, parent in zip(read.nodes, parents, strict=True)
        )
        index = {node.id: i for i, node in enumerate(nodes)}
        streams = tuple(_stream(row, _path(parents, index[row.node])) for row in read.streams)
        return cls(nodes, streams, read.epoch_s)


def _path(parents: Sequence[int | None], node: int) -> tuple[int, ...]:
    path = [node]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    return tuple(path)


def _parents(nodes: Sequence[NodeDocument], faults: list[Fault]) -> list[int | None]:
    index: dict[str, int] = {}
    for i, node in enumerate(nodes):
        if index.setdefault(node.id, i) != i:
            faults.append(Fault(f"nodes[{i}].id", f"id is {node.id!r} as of nodes[{index[node.id]}]; allowed: another"))
    parents: list[int | None] = []
    for i, node in enumerate(nodes):
        parent = node.parent
        parents.append(index.get(parent) if parent is not None else None)
        if parent is not None and parent not in index:
            faults.append(Fault(f"nodes[{i}].parent", f"parent is {parent!r}; allowed: the id of a node"))
    roots = [node.id for node in nodes if node.parent is None]
    if len(roots) != 1:
        faults.append(Fault("nodes", f"roots are {', '.join(roots) or 'none'}; allowed: one node without a parent"))
    elif not nodes[index[roots[0]]].cores:
        faults.append(Fault(f"nodes[{index[roots[0]]}].cores", "cores is 0; allowed: above 0 for the root"))
    if not faults:
        faults += _circles(nodes, parents)
    return parents


def _circles(nodes: Sequence[NodeDocument], parents: Sequence[int | None]) -> Iterator[Fault]:
    """Faults of nodes from which no way leads to the root."""
    rooted = {i for i, parent in enumerate(parents) if parent is None}
    for i in range(len(parents)):
        way: list[int] = []
        at: int | None = i
        while at is not None and at not in rooted and at not in way:
            way.append(at)
            at = parents[at]
        if at in rooted:
            rooted.update(way)
        else:
            yield Fault(f"nodes[{i}].parent", f"{nodes[i].id} never comes to the root; allowed: no circles")


def _stream(read: StreamDocument, path: tuple[int, ...]) -> TreeStream:
    frontier = Frontier.of(read.relay, read.cost, read.sizes)
    at_source = frontier.operators if read.at_source is None else read.at_source
    return TreeStream(path, frontier, read.n_records, at_source, at_source if read.between is None else read.between)
