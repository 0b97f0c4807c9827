"""Search for the cuts of a tree's streams: exact for small fleets, greedy for large ones, always the same answer.

The problem is NP-hard (appendix A of the Jarvis paper): what one source keeps back from a shared node shortens the time
that all others are measured against. All at the root is always allowed, so there is always an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import comb, inf, prod
from typing import Annotated, Any

from engine.__main__ import EngineCommand
from engine.__main__ import main as run_commands
from engine.command_options import CommandOptions
from engine.kinds import Number
from engine.records import Words
from lab.jarvis.tree import TIE, NodeLoad, StreamCut, Tree, TreeStream

__all__ = [
    "MAX_EXACT_COMBINATIONS",
    "TreePlan",
    "combinations",
    "command",
    "cut_exactly",
    "cut_greedily",
    "cut_streams",
    "main",
    "options_of",
]

MAX_EXACT_COMBINATIONS = 1_000_000  # combinations: most are cut off, so that it takes less than a second as a rule
_NAME = "partition-tree"
CAPS = 12  # limits of a source's time that the greedy search tries
PASSES = 4  # over all choices; most find nothing more in the second


@dataclass(frozen=True)
class TreePlan:
    """A choice for every stream of a tree, in its order."""

    choices: tuple[StreamCut, ...]
    exact: bool  #: nothing sends less

    @property
    def sent_bytes(self) -> float:
        """Per epoch, over all hops."""
        return sum(choice.sent_bytes for choice in self.choices)

    def load(self, tree: Tree) -> NodeLoad:
        """Load that the plan gives to nodes."""
        load = NodeLoad(tree)
        for stream, choice in zip(tree.streams, self.choices, strict=True):
            load.add(stream, choice)
        return load


def cut_streams(tree: Tree, *, exact_most: int = MAX_EXACT_COMBINATIONS) -> TreePlan:
    """The plan that sends least, sought exactly where there are at most `exact_most` combinations."""
    return cut_exactly(tree) if combinations(tree) <= exact_most else cut_greedily(tree)


def combinations(tree: Tree) -> int:
    """Number of plans; plans that only swap the cuts of equal streams count once."""
    sizes = [(len(options), len(members)) for options, members in _alike(tree)]
    return prod(comb(options + members - 1, members) for options, members in sizes)


def cut_exactly(tree: Tree) -> TreePlan:
    """The plan that sends least, by branch and bound from the greedy one."""
    greedy = cut_greedily(tree)
    best, least = list(greedy.choices), greedy.sent_bytes
    order: list[tuple[int, Sequence[StreamCut], bool]] = [
        (member, options, member != members[0]) for options, members in _alike(tree) for member in members
    ]
    floor = [0.0] * (len(order) + 1)  # what the streams from here on send at least
    for i in range(len(order) - 1, -1, -1):
        floor[i] = floor[i + 1] + min(choice.sent_bytes for choice in order[i][1])
    load, chosen = NodeLoad(tree), [0] * len(order)

    def descend(i: int, sent: float) -> None:
        nonlocal best, least
        if sent + floor[i] >= least * (1 - TIE):
            return
        if i == len(order):
            if next(load.late(), None) is None:
                least = sent
                for at, (member, options, _) in enumerate(order):
                    best[member] = options[chosen[at]]
            return
        member, options, alike = order[i]
        for k in range(chosen[i - 1] if alike else 0, len(options)):
            chosen[i] = k
            load.add(tree.streams[member], options[k])
            descend(i + 1, sent + options[k].sent_bytes)
            load.add(tree.streams[member], options[k], -1.0)

    descend(0, 0.0)
    return TreePlan(tuple(best), exact=True)


def cut_greedily(tree: Tree) -> TreePlan:
    """A good plan: from all at the root, whatever saves most is taken, for several limits of a source's time.

    The slowest source that runs anything sets the time that the root must be left to take, so each of a few such
    limits is tried, and moves by what they save, and by what they save for the time that they take away from the root.
    """
    options = [options_of(tree, stream) for stream in tree.streams]
    nothing = [min(choices, key=lambda option: option.cuts) for choices in options]  # all at the root
    best = nothing
    for cap_s in _caps(tree, options):
        for by_slack in (False, True):
            plan = _climb(tree, nothing, _moves(tree, options, nothing, cap_s, by_slack=by_slack))
            if _sent(plan) < _sent(best) * (1 - TIE):
                best = plan
    best = _climb(tree, best, _moves(tree, options, best, inf, by_slack=False))
    return TreePlan(tuple(best), exact=False)


def _sent(choices: Iterable[StreamCut]) -> float:
    return sum(choice.sent_bytes for choice in choices)


def _climb(tree: Tree, start: Sequence[StreamCut], moves: Iterable[tuple[float, int, StreamCut]]) -> list[StreamCut]:
    climber, ordered = _Climber(tree, start), sorted(moves, key=lambda move: -move[0])
    for _ in range(PASSES):
        if not sum([climber.take(i, choice) for _, i, choice in ordered]):
            break
    return climber.chosen


class _Climber:
    """Choices that only ever give sources more to do, so that the slowest below each node is known without a look."""

    def __init__(self, tree: Tree, chosen: Sequence[StreamCut]) -> None:
        self.chosen = list(chosen)
        self._tree = tree
        self._load = NodeLoad(tree)
        self._slowest_s = [0.0] * len(tree.nodes)  # of the sources below a node
        for stream, choice in zip(tree.streams, chosen, strict=True):
            self._load.add(stream, choice)
        for stream in tree.streams:
            above, local_s = stream.path[1:2], self._load.local_s(stream.path[0])
            for node in above:
                self._slowest_s[node] = max(self._slowest_s[node], local_s)

    def take(self, i: int, choice: StreamCut) -> bool:
        """Give a stream this choice if it sends less and all nodes stay in time."""
        old, stream, load = self.chosen[i], self._tree.streams[i], self._load
        if choice.sent_bytes >= old.sent_bytes * (1 - TIE) or choice.work_s[0] < old.work_s[0]:
            return False
        above = stream.path[1]
        slowest_s = self._slowest_s[above]
        load.add(stream, old, -1.0)
        load.add(stream, choice)
        self._slowest_s[above] = max(slowest_s, load.local_s(stream.path[0]))
        if self._in_time():
            self.chosen[i] = choice
            return True
        self._slowest_s[above] = slowest_s
        load.add(stream, choice, -1.0)
        load.add(stream, old)
        return False

    def _in_time(self) -> bool:
        load, nodes, epoch_s = self._load, self._tree.nodes, self._tree.epoch_s
        below_s: dict[int | None, float] = {None: 0.0}  # time from leaving a child of the node until the root is done
        for node in self._tree.inner:
            parent, local_s = nodes[node].parent, load.local_s(node)
            remote_s = below_s[parent]
            if parent is not None and local_s > min(remote_s, epoch_s) * (1 + TIE):
                return False
            below_s[node] = load.incoming_bytes[node] / nodes[node].ingress_bytes_s + local_s + remote_s
            if self._slowest_s[node] > min(below_s[node], epoch_s) * (1 + TIE):
                return False
        return True


def _moves(
    tree: Tree, options: Sequence[Sequence[StreamCut]], chosen: Sequence[StreamCut], cap_s: float, *, by_slack: bool
) -> Iterator[tuple[float, int, StreamCut]]:
    """Choices that save something, with how much they are worth."""
    for i, (stream, choices) in enumerate(zip(tree.streams, options, strict=True)):
        for choice in choices:
            saved = chosen[i].sent_bytes - choice.sent_bytes
            if saved > 0 and _alone_s(tree, stream, choice) <= cap_s * (1 + TIE):
                lost_s = _taken_s(tree, stream, chosen[i]) - _taken_s(tree, stream, choice)
                yield (saved / max(lost_s, TIE) if by_slack else saved), i, choice


def _alone_s(tree: Tree, stream: TreeStream, choice: StreamCut) -> float:
    """Seconds of the source for this choice, had it nothing else to do."""
    cores = tree.nodes[stream.path[0]].cores
    return choice.work_s[0] / cores if choice.work_s[0] and cores else 0.0


def _taken_s(tree: Tree, stream: TreeStream, choice: StreamCut) -> float:
    """Seconds of nodes above the source that this choice takes."""
    hops = list(zip(stream.path, choice.work_s, choice.incoming_bytes, strict=True))[1:]
    return sum(
        work_s / (tree.nodes[node].cores or inf) + incoming / tree.nodes[node].ingress_bytes_s
        for node, work_s, incoming in hops
    )


def _caps(tree: Tree, options: Sequence[Sequence[StreamCut]]) -> list[float]:
    times = {
        _alone_s(tree, stream, choice)
        for stream, choices in zip(tree.streams, options, strict=True)
        for choice in choices
    }
    listed = sorted(times)
    if len(listed) <= CAPS:
        return listed
    return [listed[round(i * (len(listed) - 1) / (CAPS - 1))] for i in range(CAPS)]


def options_of(tree: Tree, stream: TreeStream) -> list[StreamCut]:
    """A stream's choices that keep every node within its epoch by themselves, those that send least first."""

    def fits(choice: StreamCut) -> bool:
        between = zip(stream.path[:-1], choice.work_s, strict=False)
        return all(work_s <= tree.nodes[node].cores * tree.epoch_s * (1 + TIE) for node, work_s in between)

    return sorted(filter(fits, stream.choices()), key=lambda option: (option.sent_bytes, option.cuts))


def _alike(tree: Tree) -> list[tuple[list[StreamCut], list[int]]]:
    """Choices, and the streams that have them: those that could change places without anything else changing."""
    streams_at: dict[int, int] = {}
    for stream in tree.streams:
        streams_at[stream.path[0]] = streams_at.get(stream.path[0], 0) + 1
    groups: dict[object, list[int]] = {}
    for i, stream in enumerate(tree.streams):
        source = stream.path[0]
        place = (stream.path[1:], tree.nodes[source].cores) if streams_at[source] == 1 else stream.path
        key = (place, stream.frontier, stream.n_records, stream.at_source, stream.between)
        groups.setdefault(key, []).append(i)
    return [(options_of(tree, tree.streams[members[0]]), members) for members in groups.values()]


@dataclass(frozen=True, kw_only=True)
class _Options(CommandOptions):
    exact_most: Annotated[
        int, Number(least=1, whole=True), Words("combinations up to which the best plan is sought (1,000,000)")
    ] = MAX_EXACT_COMBINATIONS


def command(document: Any, options: _Options | None = None) -> dict[str, Any]:
    """Cut the streams of a `TreeDocument`; above so many combinations a good plan is sought."""
    tree = Tree.parse(document)
    plan = cut_streams(tree, exact_most=(options or _Options()).exact_most)
    load = plan.load(tree)
    remote_s = load.remote_s()
    return {
        "exact": plan.exact,
        "sent_bytes": plan.sent_bytes,
        "streams": [
            {
                "node": tree.nodes[stream.path[0]].id,
                "cuts": {tree.nodes[node].id: after for node, after in zip(stream.path[:-1], choice.cuts, strict=True)},
                "sent_bytes": choice.sent_bytes,
                "reason": _reason(tree, load, stream, choice),
            }
            for stream, choice in zip(tree.streams, plan.choices, strict=True)
        ],
        "nodes": [
            {
                "id": node.id,
                "local_s": load.local_s(i),
                "remote_s": remote_s[i] if node.parent is not None else None,
                "incoming_bytes": load.incoming_bytes[i],
            }
            for i, node in enumerate(tree.nodes)
        ],
    }


def main(arguments: Sequence[str]) -> int:
    """Cut the streams of the documents in files, as `./sluice engine` runs a command of its own."""
    given = EngineCommand(
        "lab.jarvis.tree_search",
        "where streams are cut on their way through a tree of nodes: least bytes sent, nothing later than at the root",
        _Options,
    )
    return run_commands([_NAME, *arguments], {_NAME: given}, prog="sluice lab")


def _reason(tree: Tree, load: NodeLoad, stream: TreeStream, choice: StreamCut) -> str:
    """Reason against the next cut that would send less."""
    better = [other for other in options_of(tree, stream) if other.sent_bytes < choice.sent_bytes]
    if not better:
        return "nothing that may run on its way and fits an epoch sends less"
    nearest = min(better, key=lambda other: (_less_near(other, choice), sum(other.cuts), other.sent_bytes))
    load.add(stream, choice, -1.0)
    load.add(stream, nearest)
    node, local_s, allowed_s = next(load.late(), (None, 0.0, 0.0))
    load.add(stream, nearest, -1.0)
    load.add(stream, choice)
    cuts = ", ".join(
        f"{after} at {tree.nodes[at].id}" for at, after in zip(stream.path[:-1], nearest.cuts, strict=True)
    )
    saved = f"cut after {cuts} it would send {choice.sent_bytes - nearest.sent_bytes:,.0f} bytes less"
    if node is None:
        return saved
    whose = "of an epoch" if allowed_s >= tree.epoch_s else "to send that on and run it further up"
    return f"{saved}, but {tree.nodes[node].id} would take {local_s:.3g} s, longer than the {allowed_s:.3g} s {whose}"


def _less_near(other: StreamCut, choice: StreamCut) -> bool:
    """It runs less than the choice somewhere on the way."""
    return any(cut < chosen for cut, chosen in zip(other.cuts, choice.cuts, strict=True))
