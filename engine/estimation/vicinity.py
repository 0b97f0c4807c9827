"""Vicinity of some queries: their servers with all that is on these, and what is above that, as a deployment.

Loads are by stimulus time, so that what others do to a query they do on its servers. There everything is computed; the
rest of a cluster hands on its events when it did before. A change of load within a vicinity costs what the vicinity
costs, whatever the size of the cluster, while `EstimateBase.changed` follows it to whoever it concerns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from engine.document.deployment import Deployment
from engine.estimation.base import EstimateBase
from engine.estimation.cluster_places import replica_names
from engine.estimation.estimate import Estimate
from engine.estimation.flow import flow
from engine.estimation.flow_kernel import FlowTimes
from engine.estimation.mace import Mace, mace
from engine.estimation.probes import probe_deployment
from engine.estimation.reports import QueryReport

__all__ = ["Vicinity"]


class Vicinity:
    """Vicinity of some queries in the kept estimate of a cluster, with nothing waiting where the horizon begins.

    Parameters
    ----------
    base : EstimateBase
        The kept estimate.
    queries : collection of str
        Queries whose reports are wanted.

    Attributes
    ----------
    servers : frozenset of str
        Servers and links that their events pass; all that is on them is in the deployment.
    deployment : Deployment
        The operators on these, and what is above them.

    Notes
    -----
    Times of replicas elsewhere are those of the base, so that what a change delays upstream of others, and then comes
    back to the servers of these queries, is left out. docs/models/capacity.md has figures of what that amounts to.
    """

    def __init__(self, base: EstimateBase, queries: Collection[str]) -> None:
        self._base, self.queries = base, frozenset(queries)
        self.servers = base.surroundings.servers_around(self.queries)
        names = base.surroundings.operators_on(self.servers)
        self.deployment = base.estimate.deployment.restricted(names, with_sources=False).without_backlogs()

    def mace(self, after: Deployment) -> Mace:
        """Mace of a changed vicinity at the width of the base's; right on `servers`."""
        return mace(after.coarsened(self._base.mace_every))

    def reports(self, after: Deployment) -> Mapping[str, QueryReport]:
        """Reports of the queries in a changed vicinity, with random costs and arrivals."""
        was = self._base.estimate
        probed = probe_deployment(after)
        flowed = flow(
            probed.deployment, slices=was.flow.slices, by_input=True, trace=True, given=self._held(probed.deployment)
        )
        judged = self.mace(probed.deployment)
        estimated = Estimate(after, probed, judged.deployment, judged, flowed, was.resolution_s, was.alarm, {}, judged)
        return replace(estimated, queries=estimated.reports(self.queries)).realised().queries

    def _held(self, deployment: Deployment) -> FlowTimes:
        """Times of replicas elsewhere, as the base has them."""
        unburdened = self._base.flows[1]
        servers = [deployment.servers[i].name for i in deployment.layout.rep_server]
        rows, known = [], []
        for i, (name, server) in enumerate(zip(replica_names(deployment), servers, strict=True)):
            if server not in self.servers:
                rows.append(i)
                known.append(unburdened.times_of(name))
        return unburdened.stacked(rows, known)
