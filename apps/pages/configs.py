"""Configurations of agents: the list, one of them, and sending one on its way."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.http import HttpRequest, HttpResponse

from apps.core.errors import Conflict
from apps.pages.base import ClusterPage, done
from apps.pages.configs_table import configs_table
from apps.pages.configs_view import ConfigPanel, configs_sentence
from apps.pages.rollout_panel import RolloutPanel
from apps.pages.sources_tabs import source_tabs
from apps.refinement.models import RefinedConfig
from apps.refinement.selectors import config_detail, config_numbered, config_of_agents, configs_listed, rollout_view
from apps.refinement.services import rollout_start

__all__ = ["ConfigPage", "ConfigStart", "ConfigsPage"]


class ConfigsPage(ClusterPage):
    """`/c/<slug>/sources/configs/`"""

    template_name = "pages/configs/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        held = Counter(one.version for one in config_of_agents(self.cluster).values())
        table = configs_table(request, self.cluster, configs_listed(self.cluster), held)
        if table.wants_csv:
            return table.csv_response()
        sentence = configs_sentence(held)
        return self.page({"table": table, "sentence": sentence, "tabs": source_tabs(slug, "configs")})


class ConfigPage(ClusterPage):
    """`/c/<slug>/sources/configs/118/`"""

    template_name = "pages/configs/config.html"

    def get(self, request: HttpRequest, slug: str, number: int) -> HttpResponse:
        return self.shown(config_numbered(self.cluster, number))

    def shown(self, config: RefinedConfig, status: int = 200, **more: Any) -> HttpResponse:
        view = config_detail(config)
        states = config_of_agents(self.cluster)
        panel = ConfigPanel(view, sum(one.version == config.number for one in states.values()), len(states))
        rollout = RolloutPanel(rollout_view(view.rollout)) if view.rollout is not None else None
        return self.page({"config": config, "panel": panel, "rollout": rollout, **more}, status)


class ConfigStart(ConfigPage):
    """POST: send a configuration on its way, by force where its check refused it."""

    http_method_names = ["post"]
    scope = "operate"

    def post(self, request: HttpRequest, slug: str, number: int) -> HttpResponse:
        config = config_numbered(self.cluster, number)
        try:
            row = rollout_start(config=config, user=request.user, force=request.POST.get("force") == "yes")
        except Conflict as refusal:
            return self.shown(config, refusal.status, notice=refusal.message)
        waits = row.state == "waiting"
        text = f"{config.name} waits until the rollout before it is over." if waits else f"{config.name} is on its way."
        return done(request, text, "pages:sources", slug)
