"""A proposal's nodes before and after it: strips of excess and operators as blocks, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Any

from django.core.paginator import Page, Paginator
from django.http import HttpRequest
from django.utils.safestring import SafeString

from apps.pages.context import url_of
from apps.pages.placement_blocks import Block, Letters, blocks_bar, scale_of
from apps.pages.placement_nodes import CoreLine, server_name
from apps.ui.numbers import MISSING, Quantity, ratio, seconds
from apps.ui.pictures import heat_strip

__all__ = ["Moment", "NodeChange", "NodesChanged"]

_HOT_S = 4.0

Replicas = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Moment:
    """A node before or after."""

    words: str
    strip: SafeString | str
    peak: Quantity
    peak_tone: str
    cores: Sequence[CoreLine]


@dataclass(frozen=True)
class NodeChange:
    """A node before and after."""

    name: str
    url: str
    note: str
    moments: Sequence[Moment]


class NodesChanged:
    """The nodes of a proposal. Only those of the asked page are drawn."""

    def __init__(self, request: HttpRequest, slug: str, proposal: Mapping[str, Any], *, per_page: int) -> None:
        self.request, self.slug, self.proposal, self.per_page = request, slug, proposal, per_page
        self.letters = Letters()

    @property
    def shows_all(self) -> bool:
        return self.request.GET.get("which") == "all" or not self.touched

    @cached_property
    def servers(self) -> dict[str, list[Mapping[str, Any]]]:
        """Cores by node."""
        found: dict[str, list[Mapping[str, Any]]] = {}
        for row in self.proposal["nodes"]:
            if row.get("node"):
                found.setdefault(row["node"], []).append(row)
        return found

    @cached_property
    def touched(self) -> list[str]:
        """Nodes that a move leaves or reaches."""
        moves = self.proposal["moves"]
        names = {part["node"] for move in moves for part in (*move["from"], *move["to"])}
        return [name for name in self._ranked if name in names]

    @cached_property
    def _ranked(self) -> list[str]:
        """The most excess first, before or after."""

        def worst(name: str) -> float:
            return max(max(row["before_mace_s"] or 0.0, row["after_mace_s"] or 0.0) for row in self.servers[name])

        return sorted(self.servers, key=lambda name: (-worst(name), name))

    @property
    def total(self) -> int:
        return len(self.servers)

    @cached_property
    def page(self) -> Page:
        rows = self._ranked if self.shows_all else self.touched
        return Paginator(rows, self.per_page).get_page(self.request.GET.get("nodes"))

    @cached_property
    def rows(self) -> list[NodeChange]:
        names = list(self.page)
        before = self._blocks(self._before, set(names), "gone")
        after = self._blocks(self.proposal["placement"], set(names), "come")
        scale = scale_of([*before.values(), *after.values()])
        return [self._row(name, before, after, scale) for name in names]

    def _row(
        self,
        name: str,
        before: Mapping[tuple[str, int], list[Block]],
        after: Mapping[tuple[str, int], list[Block]],
        scale: float,
    ) -> NodeChange:
        moments = [
            self._moment(name, "Before", before, scale),
            self._moment(name, "After", after, scale),
        ]
        url = url_of("pages:node", self.slug, name)
        return NodeChange(name, url, "" if name in self.touched else "stays as it is", moments)

    def _moment(self, name: str, words: str, blocks: Mapping[tuple[str, int], list[Block]], scale: float) -> Moment:
        key = words.lower()
        rows = self.servers[name]
        peak_s = max(row[f"{key}_mace_s"] or 0.0 for row in rows)
        series = [max(values) for values in zip_longest(*(row[f"excess_{key}"] for row in rows), fillvalue=0.0)]
        strip = heat_strip(series, f"{name} {key}: highest excess {seconds(peak_s)}") if series else MISSING
        cores = [self._core(name, core, row, key, blocks, scale) for core, row in enumerate(rows)]
        return Moment(words, strip, seconds(peak_s), "watch" if peak_s >= _HOT_S else "", cores)

    def _core(
        self,
        name: str,
        core: int,
        row: Mapping[str, Any],
        key: str,
        blocks: Mapping[tuple[str, int], list[Block]],
        scale: float,
    ) -> CoreLine:
        held = blocks.get((name, core), [])
        bar = blocks_bar(f"{server_name(name, core, len(self.servers[name]))} {key}", held, self.letters, scale)
        load = sum(block.load or 0.0 for block in held)
        return CoreLine(row["server"], bar, ratio(load), row["server"] == self._bottleneck(key))

    def _bottleneck(self, key: str) -> str:
        return self._bottlenecks[key]

    @cached_property
    def _bottlenecks(self) -> dict[str, str]:
        rows = [row for rows in self.servers.values() for row in rows]
        found = {}
        for key in ("before", "after"):
            worst = max(rows, key=lambda row, key=key: row[f"{key}_mace_s"] or 0.0, default=None)
            found[key] = worst["server"] if worst and (worst[f"{key}_mace_s"] or 0.0) > 0 else ""
        return found

    @cached_property
    def _before(self) -> dict[str, Replicas]:
        moved = {move["operator"]: move["from"] for move in self.proposal["moves"]}
        return {**self.proposal["placement"], **moved}

    def _blocks(
        self, placement: Mapping[str, Replicas], nodes: set[str], word: str
    ) -> dict[tuple[str, int], list[Block]]:
        """Blocks of the cores of some nodes."""
        found: dict[tuple[str, int], list[Block]] = {}
        for operator, replicas in placement.items():
            for part in replicas:
                if part["node"] in nodes:
                    found.setdefault((part["node"], part.get("core", 0)), []).append(self._block(operator, part, word))
        return found

    def _block(self, operator: str, part: Mapping[str, Any], word: str) -> Block:
        query, _, name = operator.partition("/")
        cycles = self.proposal.get("loads", {}).get(operator)
        capacity_cps = self.proposal.get("capacities", {}).get(part["node"])
        fraction = part.get("fraction", 1.0)
        load = cycles * fraction / capacity_cps if cycles is not None and capacity_cps else None
        other = self.proposal["placement"].get(operator, ()) if word == "gone" else self._before.get(operator, ())
        is_same = any(_place(part) == _place(one) for one in other)
        return Block(query, name or operator, load, fraction, "" if is_same else word)


def _place(part: Mapping[str, Any]) -> tuple[str, int]:
    return part["node"], part.get("core", 0)
