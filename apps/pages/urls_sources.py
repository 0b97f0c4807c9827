"""Addresses of the sources pages."""

from __future__ import annotations

from django.urls import path

from apps.pages import (
    agents,
    agents_budget,
    agents_bulk,
    agents_factors,
    agents_method,
    configs,
    configs_new,
    rollouts,
    schedule,
    schedule_replay,
    schedule_switch,
    sources,
    sources_edit,
)

_SOURCES = "c/<str:slug>/sources/"
_AGENT = f"{_SOURCES}agents/<str:name>/"
_CONFIGS = f"{_SOURCES}configs/"
_SCHEDULE = f"{_SOURCES}schedule/"

urlpatterns = [
    path(_SOURCES, sources.SourcesPage.as_view(), name="sources"),
    path(f"{_SOURCES}enrol/", sources.Enrol.as_view(), name="agent-enrol"),
    path(f"{_SOURCES}enrol/<int:pk>/revoke/", sources.TokenRevoke.as_view(), name="agent-enrol-revoke"),
    path(_AGENT, agents.AgentPage.as_view(), name="agent"),
    path(f"{_AGENT}budget/", agents_budget.AgentBudget.as_view(), name="agent-budget"),
    path(f"{_AGENT}budget/preview/", agents_budget.BudgetPreview.as_view(), name="agent-budget-preview"),
    path(f"{_AGENT}enable/", agents.AgentEnable.as_view(), name="agent-enable"),
    path(f"{_AGENT}remove/", agents.AgentRemove.as_view(), name="agent-remove"),
    path(f"{_AGENT}load-factors/<str:query>/", agents_factors.AgentFactors.as_view(), name="agent-factors"),
    path(f"{_AGENT}load-factors/<str:query>/back/", agents_factors.AgentGiveBack.as_view(), name="agent-give-back"),
    path(f"{_AGENT}method/<str:query>/", agents_method.AgentMethod.as_view(), name="agent-method"),
    path(f"{_SOURCES}change/", agents_bulk.AgentsChange.as_view(), name="agents-change"),
    path(_SCHEDULE, schedule.SchedulePage.as_view(), name="schedule"),
    path(f"{_SCHEDULE}replay/", schedule_replay.ScheduleReplay.as_view(), name="schedule-replay"),
    path(f"{_SCHEDULE}switch/", schedule_switch.ScheduleSwitch.as_view(), name="schedule-switch"),
    path(_CONFIGS, configs.ConfigsPage.as_view(), name="configs"),
    path(f"{_CONFIGS}new/", configs_new.ConfigNew.as_view(), name="config-new"),
    path(f"{_CONFIGS}<int:number>/", configs.ConfigPage.as_view(), name="config"),
    path(f"{_CONFIGS}<int:number>/start/", configs.ConfigStart.as_view(), name="config-start"),
    path(f"{_SOURCES}rollouts/<int:pk>/<str:change>/", rollouts.RolloutChange.as_view(), name="rollout-change"),
    path(f"{_SOURCES}rollout-policy/", rollouts.PolicyPage.as_view(), name="rollout-policy"),
    path(f"{_SOURCES}new/source/", sources_edit.SourceNew.as_view(), name="source-new"),
    path(f"{_SOURCES}collected/<str:source_id>/", sources_edit.SourceEdit.as_view(), name="source"),
    path(f"{_SOURCES}collected/<str:source_id>/delete/", sources_edit.SourceDelete.as_view(), name="source-delete"),
    path(f"{_SOURCES}new/table/", sources_edit.TableNew.as_view(), name="static-table-new"),
    path(f"{_SOURCES}tables/<str:name>/", sources_edit.TableEdit.as_view(), name="static-table"),
    path(f"{_SOURCES}tables/<str:name>/delete/", sources_edit.TableDelete.as_view(), name="static-table-delete"),
]
