"""Kept estimate of a deployment, from which its changes are estimated without the rest of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

import numpy as np

from engine.arrays import FloatArray
from engine.document.deployment import Deployment
from engine.estimation.answer import Alarm
from engine.estimation.cluster_places import ReplicaName, replica_names
from engine.estimation.estimate import Estimate, Progress, alarm_of, estimate, own_mace
from engine.estimation.excerpt import ClusterDifference, ClusterSurroundings, Excerpt
from engine.estimation.flow import Flow
from engine.estimation.loads import UnkeptLoads, has_few_sources, loads_of
from engine.estimation.mace import Mace, drain_times, mace
from engine.estimation.probes import ProbedDeployment, probe_deployment
from engine.estimation.propagation import (
    BeyondExcerpt,
    ChangedFlow,
    FlowBase,
    changed_flow,
    flow_base,
    spread_flow,
)
from engine.estimation.reports import REALISED
from engine.solvers import solving

__all__ = ["EstimateBase"]


@dataclass(frozen=True, eq=False)
class EstimateBase:
    """An estimate of what runs, realised, with the times of all replicas.

    Attributes
    ----------
    estimate : Estimate
        Its `mace` is `judged`: that of the deployment in which every query puts something out.
    mace_every : int
        Subintervals that make one of Mace's.
    worst_s : mapping of str to float
        Largest Mace of every server on the deployment's own subintervals, without probes.
    made_at : datetime, optional
        When it was computed from nothing, where whoever keeps it says so.
    moves : int
        Changes by which it was brought up to date since.
    """

    estimate: Estimate
    mace_every: int
    worst_s: Mapping[str, float]
    made_at: datetime | None = None
    moves: int = 0

    @classmethod
    def of(cls, deployment: Deployment, mace_every: int = 1, progress: Progress | None = None) -> EstimateBase:
        """Base of a placed deployment; `progress` as of `estimate`."""
        solving()
        found = estimate(deployment, mace_every=mace_every, keep_times=True, progress=progress)
        return cls.from_estimate(found, mace_every)

    @classmethod
    def from_estimate(cls, found: Estimate, mace_every: int = 1) -> EstimateBase:
        """Base of an estimate of the whole, made with `keep_times` and with intervals."""
        deployment = found.deployment
        judged = replace(found.judged, loads=UnkeptLoads())
        kept = replace(found, coarse=judged.deployment, mace=judged, judged=judged)
        return cls(kept, mace_every, _worst_s(own_mace(deployment, found.mace)))

    @cached_property
    def _flow(self) -> FlowBase:
        return FlowBase(self.estimate.probed.deployment, self.estimate.flow)

    @cached_property
    def _unburdened(self) -> FlowBase:
        """The same with nothing waiting where the horizon begins."""
        if self.estimate.unburdened is None:
            return self._flow
        return FlowBase(self.estimate.probed.deployment.without_backlogs(), self.estimate.unburdened)

    @property
    def flows(self) -> tuple[FlowBase, FlowBase]:
        """Flow with the times of all replicas, and the same with nothing waiting where the horizon begins."""
        return self._flow, self._unburdened

    @cached_property
    def coarse_flow(self) -> FlowBase:
        """Flow at Mace's width."""
        return flow_base(self.estimate.probed.deployment.coarsened(self.mace_every))

    def changed(self, after: Deployment, *, counted_from: int = 0, concerned: Collection[str] = ()) -> Estimate:
        """Estimate of the queries of a changed deployment whose estimate may differ, on the mean path.

        Parameters
        ----------
        after : Deployment
            The changed deployment, placed; of the same subintervals.
        counted_from : int
            First subinterval (from 0) whose events count in the figures of queries.
        concerned : collection of str
            Queries that are looked at in any case, as those with another objective.

        Returns
        -------
        Estimate
            Its queries are those concerned; all others have the report that they had. Servers that `judged` lacks are
            as they were; `alarm` is of the whole deployment. Numbers are those of `estimate` of the whole, to the last
            bit.
        """
        solving()
        near = self._change_near(after, counted_from, concerned)
        if near is not None:
            return near.estimate
        change = self._change(after, counted_from, concerned)
        return replace(change.estimate, alarm=self._alarm(after, change))

    @cached_property
    def surroundings(self) -> ClusterSurroundings:
        """Whom each operator shares servers and streams with."""
        return ClusterSurroundings(self.estimate.deployment, self._flow.cluster, self.mace_every)

    def _change_near(self, after: Deployment, counted_from: int, concerned: Collection[str]) -> _Change | None:
        """Findings about a change by an excerpt around it; None where that would be most of the cluster."""
        around = self.surroundings
        difference = around.difference(after)
        if difference is None:
            return None
        servers = {*difference.servers}
        known = self.estimate.deployment.operator_index
        left = (self.estimate.deployment.operators[known[name]] for name in difference.gone)
        nodes = {part.node for operator in (*difference.joined, *left) for part in operator.replicas}
        while (found := around.around(difference, servers, concerned)) is not None:
            joined = {operator.id for operator in difference.joined}
            part = after.restricted(found.operators - difference.gone | joined, with_sources=False, nodes=nodes)
            if part.oldest_backlog_s is not None and probe_deployment(part).probes:
                return None  # a probe is nothing that waits, and the age of the whole is not that of a part
            asked = found.queries | difference.queries
            try:
                change = self._excerpt(found, nodes)._change(
                    part, counted_from, {*concerned} & asked, within=found.servers | difference.servers
                )
            except BeyondExcerpt as beyond:
                servers.update(beyond.servers)
                continue
            if self._is_probed_beyond(change.probed, part):
                return None
            missed = around.missed(found, difference, change.flowed)
            if not missed:
                alarm = self._alarm_near(after, difference, change)
                return change._replace(estimate=replace(change.estimate, alarm=alarm))
            servers |= missed
        return None

    def _is_probed_beyond(self, probed: ProbedDeployment, part: Deployment) -> bool:
        """Whether a probe is of what others share: a source that comes to them as well."""
        replaced = {was.id for was, now in zip(part.sources, probed.deployment.sources, strict=False) if was is not now}
        replaced |= self._probed_sources & {source.id for source in part.sources}
        inside = {operator.id for operator in part.operators}
        return any(not inside.issuperset(self.surroundings.readers.get(name, ())) for name in replaced)

    @cached_property
    def _probed_sources(self) -> frozenset[str]:
        """Sources that stand in for silent ones."""
        was, now = self.estimate.deployment.sources, self.estimate.probed.deployment.sources
        return frozenset(a.id for a, b in zip(was, now, strict=False) if a is not b)

    def _excerpt(self, found: Excerpt, nodes: Collection[str]) -> EstimateBase:
        """The base of some of the operators, as far as changes are computed from it; some nodes may be without any."""
        was, names = self.estimate, found.operators
        probed = was.probed.deployment.restricted(names, with_sources=False, nodes=nodes)
        probes = {query: probe for query, probe in was.probed.probes.items() if query in probed.query_index}
        coarse = probed.coarsened(self.mace_every)
        rows = [self._judged_row[server.name] for server in coarse.servers]
        m = was.judged
        judged = Mace(
            coarse, UnkeptLoads(), m.load[rows], m.ce[rows], m.worst_s[rows], m.total_s, None, m.start[rows], m.lead
        )
        estimate_of = replace(
            was,
            deployment=was.deployment.restricted(names, with_sources=False),
            probed=ProbedDeployment(probed, probes),
            coarse=coarse,
            mace=judged,
            queries={},
            judged=judged,
        )
        base = EstimateBase(estimate_of, self.mace_every, self.worst_s)
        vars(base)["_flow"] = self._flow.of_part(probed)
        if was.unburdened is not None:
            vars(base)["_unburdened"] = self._unburdened.of_part(probed.without_backlogs())
        return base

    @cached_property
    def _judged_row(self) -> dict[str, int]:
        return {server.name: i for i, server in enumerate(self.estimate.judged.deployment.servers)}

    def _alarm_near(self, after: Deployment, difference: ClusterDifference, change: _Change) -> Alarm:
        """Alarm of the whole, where an excerpt was computed."""
        flowed, readers = change.flowed, self.surroundings.readers
        joined = {entry.source for operator in difference.joined for entry in operator.inputs}
        left = difference.gone - {operator.id for operator in difference.joined}

        def is_sink(name: str) -> bool:
            return name not in joined and all(reader in difference.gone for reader in readers.get(name, ()))

        found = flowed.times
        flow_s = max((times.latency_s for (name, _), times in found.items() if is_sink(name)), default=0.0)
        for latency_s, name in self._latest:
            if name not in found and name[0] not in left and is_sink(name[0]):
                flow_s = max(flow_s, latency_s)
                break
        for name in self._read_by(difference.gone):  # it may end what had readers
            if name not in found and name[0] not in left and is_sink(name[0]):
                flow_s = max(flow_s, self._flow.latencies_s.get(name, 0.0))
        there = {server.name for server in after.servers}
        worst_s = max((change.worst_s.get(name, 0.0) for name in flowed.servers), default=0.0)
        for found_s, server in self._worst_first:
            if server not in flowed.servers and server in there:
                worst_s = max(worst_s, found_s)
                break
        return alarm_of(after, flow_s, worst_s)

    def _read_by(self, names: Collection[str]) -> list[ReplicaName]:
        """Replicas of what some operators read."""
        running, index = self.estimate.deployment.operators, self.estimate.deployment.operator_index
        read = {entry.source for name in names for entry in running[index[name]].inputs} & index.keys()
        return [(name, b) for name in sorted(read) for b in range(len(running[index[name]].replicas))]

    @cached_property
    def _latest(self) -> list[tuple[float, ReplicaName]]:
        """Largest latencies of all sinks, the largest first."""
        sinks = self._flow.deployment.graph.sink[self._flow.deployment.layout.rep_operator].tolist()
        known = self._flow.latencies_s
        named = zip(replica_names(self._flow.deployment), sinks, strict=True)
        return sorted(((known.get(name, 0.0), name) for name, is_sink in named if is_sink), reverse=True)

    @cached_property
    def _worst_first(self) -> list[tuple[float, str]]:
        return sorted(((found_s, name) for name, found_s in self.worst_s.items()), reverse=True)

    def _alarm(self, after: Deployment, change: _Change) -> Alarm:
        flow_s = self._largest_flow_s(change.probed.deployment, change.flowed)
        return alarm_of(after, flow_s, max(change.worst_s.values(), default=0.0))

    def moved(self, after: Deployment) -> EstimateBase:
        """Base of a changed deployment, of the same subintervals: equal to one made from nothing, to the last bit."""
        solving()
        was = {objective.query: objective for objective in self.estimate.deployment.objectives}
        judged_anew = [found.query for found in after.objectives if was.pop(found.query, None) != found]
        concerned = {*judged_anew, *was} & {*after.queries}
        near = None if self.estimate.probed.probes else self._change_near(after, 0, concerned)
        if near is not None and not near.probed.probes:
            return self._moved_near(after, near)
        change = self._change(after, 0, concerned)
        found, probed = change.estimate, change.probed
        flows = [self._flow.moved(probed.deployment, change.flowed)]
        if change.unburdened:
            flows.append(self._unburdened.moved(probed.deployment.without_backlogs(), change.unburdened))
        estimate = replace(found, alarm=self._alarm(after, change))
        return self._moved_to(after, probed, estimate, found.judged, change.worst_s, flows)

    def _moved_near(self, after: Deployment, change: _Change) -> EstimateBase:
        """`moved` by an excerpt in which, as in all else, nothing is probed."""
        found, servers = change.estimate, change.flowed.servers
        flows = [self._flow.joined(after, change.flowed)]
        if change.unburdened:
            flows.append(self._unburdened.joined(after.without_backlogs(), change.unburdened))
        judged = self._judged(after.coarsened(self.mace_every), found.judged, servers)
        worst_s = self._joined_worst_s(after, servers, change.worst_s)
        return self._moved_to(after, ProbedDeployment(after), found, judged, worst_s, flows)

    def _moved_to(
        self,
        after: Deployment,
        probed: ProbedDeployment,
        found: Estimate,
        judged: Mace,
        worst_s: Mapping[str, float],
        flows: Sequence[FlowBase],
    ) -> EstimateBase:
        """Base of what was found of a change, and of the rest as it is; `flows` are as times are kept."""
        known = self.estimate.queries | found.realised().queries
        moved = Estimate(
            after,
            probed,
            judged.deployment,
            judged,
            flows[0].flow,
            found.resolution_s,
            found.alarm,
            {query: known[query] for query in probed.deployment.queries},
            judged,
            flows[1].flow if len(flows) > 1 else None,
            REALISED,
        )
        base = EstimateBase(moved, self.mace_every, worst_s, self.made_at, self.moves + 1)
        vars(base).update(zip(("_flow", "_unburdened"), flows, strict=False))
        return base

    @property
    def whole(self) -> Estimate:
        """The estimate with the loads of everything, as it was made: all but Flow by its plain definition is known."""
        found = self.estimate
        if found.probed.deployment is found.deployment:
            kept = replace(found.judged, loads=loads_of(found.judged.deployment))
        else:
            kept = mace(found.deployment.coarsened(self.mace_every))  # probes are nobody's load
        flowed = _with_latency(found.flow, found.probed.deployment)
        return replace(found, coarse=kept.deployment, mace=kept, flow=flowed)

    def differences(self, before: EstimateBase) -> tuple[frozenset[str], frozenset[str]]:
        """Queries and servers whose figures differ from those of the base that this one was moved from, or are new."""
        was, now = before.estimate, self.estimate
        queries = {query for query, report in now.queries.items() if was.queries.get(query) is not report}
        servers = {server.name for server in now.judged.deployment.servers}
        if was.probed.deployment is was.deployment and now.probed.deployment is now.deployment:
            servers -= _equal_servers(was.judged, now.judged)
        return frozenset(queries), frozenset(servers)

    def shifted(self, after: Deployment) -> EstimateBase:
        """Base of a changed deployment from which changes are estimated, as a stress that somebody joins.

        It has no reports of queries, and holds no more than what differs.
        """
        found, probed, flowed, unburdened, worst_s = self._change(after, 0, None)
        estimate = replace(found, deployment=after, probed=probed, coarse=found.judged.deployment, mace=found.judged)
        shifted = EstimateBase(estimate, self.mace_every, worst_s)
        flows = {"_flow": self._flow.overlaid(probed.deployment, flowed)}
        if unburdened is not None:
            flows["_unburdened"] = self._unburdened.overlaid(probed.deployment.without_backlogs(), unburdened)
        vars(shifted).update(flows)
        return shifted

    def _change(
        self,
        after: Deployment,
        counted_from: int,
        concerned: Collection[str] | None,
        within: Collection[str] | None = None,
    ) -> _Change:
        """Findings about a change, the alarm that of before; of no query where `concerned` is None.

        Of an excerpt `within` are the servers that are whole.
        """
        was = self.estimate
        probed = probe_deployment(after)
        coarse = probed.deployment.coarsened(self.mace_every)
        known, width = was.judged.deployment, coarse.subintervals
        anew = has_few_sources(coarse.source_count, width) != has_few_sources(known.source_count, width)
        if concerned is None:
            flowed, unburdened = self._spreads(probed, anew)
        else:
            flowed, unburdened = self._flows(probed, concerned, anew, within)
        part = ProbedDeployment(flowed.deployment, probed.probes)
        mace_part = mace(part.deployment.coarsened(self.mace_every))
        judged = self._judged(coarse, mace_part, flowed.servers)
        worst_s = self._moved_worst_s(after, flowed)
        estimated = Estimate(
            part.deployment,
            part,
            mace_part.deployment,
            mace_part,
            flowed.flow,
            was.resolution_s,
            was.alarm,
            {},
            mace_part,
            unburdened.flow if unburdened else None,
            counted_from=counted_from,
        )
        changed = replace(estimated, queries=estimated.reports(flowed.queries), judged=judged)
        return _Change(changed, probed, flowed, unburdened, worst_s)

    def _flows(
        self, probed: ProbedDeployment, concerned: Collection[str], anew: bool, within: Collection[str] | None
    ) -> tuple[ChangedFlow, ChangedFlow | None]:
        """Flow of what is concerned, and the same with nothing waiting; of the same queries."""
        flowed = changed_flow(self._flow, probed.deployment, concerned=concerned, anew=anew, within=within)
        if probed.deployment.oldest_backlog_s is None:
            return flowed, None
        bare = probed.deployment.without_backlogs()
        unburdened = changed_flow(self._unburdened, bare, concerned=flowed.queries, anew=anew, within=within)
        if unburdened.queries != flowed.queries:
            flowed = changed_flow(self._flow, probed.deployment, concerned=unburdened.queries, anew=anew, within=within)
        return flowed, unburdened

    def _spreads(self, probed: ProbedDeployment, anew: bool) -> tuple[ChangedFlow, ChangedFlow | None]:
        """Flow of the servers that differ, and the same with nothing waiting."""
        flowed = spread_flow(self._flow, probed.deployment, anew=anew)
        if probed.deployment.oldest_backlog_s is None:
            return flowed, None
        return flowed, spread_flow(self._unburdened, probed.deployment.without_backlogs(), anew=anew)

    def _judged(self, coarse: Deployment, part: Mace, servers: Collection[str]) -> Mace:
        """Mace of the whole: rows of the servers that were computed, and of the others as they were."""
        was = self.estimate.judged
        known = {server.name: i for i, server in enumerate(was.deployment.servers)}
        computed = {server.name: i for i, server in enumerate(part.deployment.servers) if server.name in servers}
        names = [server.name for server in coarse.servers]
        here = np.array([computed.get(name, -1) for name in names], dtype=np.int64)
        there = np.array([-1 if name in servers else known.get(name, -1) for name in names], dtype=np.int64)

        def rows(new: FloatArray, old: FloatArray) -> FloatArray:
            chosen = np.zeros((len(names), *new.shape[1:]))  # a server that nothing is on has nothing
            chosen[there >= 0] = old[there[there >= 0]]
            chosen[here >= 0] = new[here[here >= 0]]
            return chosen

        ce = rows(part.ce, was.ce)
        return Mace(
            coarse,
            UnkeptLoads(),
            rows(part.load, was.load),
            ce,
            rows(part.worst_s, was.worst_s),
            _drain_s(ce, coarse).max(axis=0, initial=0.0),
            None,
            rows(part.start, was.start),
            part.lead,
        )

    def _largest_flow_s(self, after: Deployment, flowed: ChangedFlow) -> float:
        """Largest latency of the horizon at all sinks."""
        latency_s = self._flow.overlaid(after, flowed).latencies_s
        sinks = after.graph.sink[after.layout.rep_operator].tolist()
        names = (name for name, is_sink in zip(replica_names(after), sinks, strict=True) if is_sink)
        return max((latency_s[name] for name in names), default=0.0)

    def _moved_worst_s(self, after: Deployment, flowed: ChangedFlow) -> dict[str, float]:
        """`worst_s` of a changed deployment."""
        kept = {operator.id for operator in flowed.deployment.operators}
        return self._joined_worst_s(after, flowed.servers, _worst_s(mace(after.restricted(kept))))

    def _joined_worst_s(
        self, after: Deployment, servers: Collection[str], computed: Mapping[str, float]
    ) -> dict[str, float]:
        """Of some servers as computed, of the others as it was; 0 where nothing is."""
        return {
            server.name: (computed if server.name in servers else self.worst_s).get(server.name, 0.0)
            for server in after.servers
        }


class _Change(NamedTuple):
    """Findings about a change: `estimate` as `EstimateBase.changed` has it, `worst_s` as a base does."""

    estimate: Estimate
    probed: ProbedDeployment  # of the whole
    flowed: ChangedFlow
    unburdened: ChangedFlow | None
    worst_s: Mapping[str, float]


def _with_latency(found: Flow, deployment: Deployment) -> Flow:
    """Flow with the largest latency of all queries, which a change does not compute."""
    if len(found.latency_s):
        return found
    latency_s = np.zeros(deployment.subintervals)
    for by_slice in found.by_query.values():
        np.maximum(latency_s, by_slice.reshape(-1, found.slices).max(axis=1), out=latency_s)
    lead_s = np.zeros(max((len(by_slice) for by_slice in found.lead_by_query.values()), default=0))
    for by_slice in found.lead_by_query.values():
        np.maximum(lead_s, by_slice, out=lead_s)
    return replace(found, latency_s=latency_s, lead_latency_s=lead_s)


def _equal_servers(was: Mace, now: Mace) -> set[str]:
    """Servers of both with the same load and excess."""
    places = {server.name: i for i, server in enumerate(was.deployment.servers)}
    names = [server.name for server in now.deployment.servers]
    there = np.array([places.get(name, -1) for name in names], dtype=np.int64)
    here = np.flatnonzero(there >= 0)
    equal = np.ones(len(here), dtype=bool)
    for old, new in ((was.load, now.load), (was.ce, now.ce)):
        equal &= (old[there[here]] == new[here]).all(axis=1)
    return {names[i] for i in here[equal].tolist()}


def _worst_s(found: Mace) -> dict[str, float]:
    """Largest Mace of every server."""
    worst_s = _drain_s(found.ce, found.deployment).max(axis=1, initial=0.0)
    return {server.name: float(worst_s[i]) for i, server in enumerate(found.deployment.servers)}


def _drain_s(ce: FloatArray, deployment: Deployment) -> FloatArray:
    """Seconds to drain an excess, (n, d), as Mace's totals have them."""
    rows = deployment.capacities
    if len(rows) == 1:
        return np.asarray(ce * (1.0 / rows[0])[:, None])
    return drain_times(ce.T, rows, deployment.subinterval_s).T
