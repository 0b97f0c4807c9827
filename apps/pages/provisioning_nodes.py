"""From the bench to the fleet: the nodes that a chosen size asks for, as planned nodes, after a look at them."""

from __future__ import annotations

from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.core.errors import Malformed, SluiceError
from apps.fleet.models import NodePool
from apps.fleet.planned import nodes_plan
from apps.pages.base import ClusterPage, done
from apps.pages.provisioning import Bench
from apps.pages.provisioning_inputs import inputs_query
from apps.planning.inputs import pool_of
from apps.ui.numbers import counted, money

__all__ = ["PlannedNodes"]


class PlannedNodes(ClusterPage):
    """`/c/<slug>/provisioning/nodes/`: what is missing or too many for the chosen number of nodes. POST plans it."""

    template_name = "pages/provisioning/nodes.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        bench = Bench(self)
        if not bench.snapshot.deployment.nodes:
            return redirect("pages:fleet", slug)
        return self.show(bench)

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        bench = Bench(self)
        change = _Change(bench)
        if change.pool is None or change.more <= 0:
            raise Malformed("There is nothing to plan: the nodes are there.", [("nodes", "no more than there are")])
        try:
            nodes = nodes_plan(pool=change.pool, count=change.more)
        except SluiceError as refusal:
            return self.show(bench, refusal)
        words = f"{counted(len(nodes), 'node')} of {change.pool.name} {'is' if len(nodes) == 1 else 'are'} planned."
        return done(request, f"{words} Activate them when they are there.", "pages:fleet", slug)

    def show(self, bench: Bench, refusal: SluiceError | None = None) -> HttpResponse:
        page = reverse("pages:provisioning", args=[self.slug]) + bench.query
        context: dict[str, Any] = {"bench": bench, "change": _Change(bench), "back": page, "refusal": refusal}
        return self.page(context, refusal.status if refusal else 200)


class _Change:
    """What a number of nodes asks of the fleet."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.cluster = bench, bench.cluster
        self.deployment = bench.snapshot.deployment
        self.now = len(self.deployment.nodes)

    @cached_property
    def nodes(self) -> int:
        """The number looked at."""
        inputs = self.bench.question.inputs
        if inputs.nodes is not None:
            return inputs.nodes
        return self.bench.answer.chosen.nodes if self.bench.answer is not None else self.now

    @property
    def more(self) -> int:
        return self.nodes - self.now

    @property
    def fewer(self) -> int:
        return -self.more

    @cached_property
    def pool(self) -> NodePool | None:
        name = self.bench.question.inputs.pool or pool_of(self.deployment, "")
        return self.cluster.pools.filter(name=name).first() or self.cluster.pools.first()

    @property
    def cost(self) -> str:
        """What they cost together, per hour."""
        price = self.pool.price_per_hour if self.pool is not None else None
        return "" if price is None else money(float(price) * abs(self.more), self.cluster.currency)

    @property
    def leaving(self) -> list[str]:
        """Nodes that could go, the last of their pool first to be named."""
        own = [node.id for node in self.deployment.nodes if self.pool is None or node.pool == self.pool.name]
        return own[self.more :] if self.more < 0 else []

    @property
    def bench_query(self) -> str:
        return inputs_query(self.bench.question.inputs, nodes=self.nodes)

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The inputs, to be sent along."""
        return parse_qsl(self.bench_query.removeprefix("?"))

    @property
    def rest_path(self) -> str:
        return f"/api/v1/node-pools/{self.pool.pk if self.pool else 0}/plan"

    @property
    def rest_body(self) -> dict[str, Any]:
        return {"count": self.more}
