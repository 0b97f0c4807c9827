"""Addresses of the sources pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.sources import history, state, views
from apps.pages.sources.agents import views as agents_views
from apps.pages.sources.configs import views as configs_views
from apps.pages.sources.schedule import views as schedule_views

_SOURCES = "c/<str:slug>/sources/"
_AGENT = f"{_SOURCES}agents/<str:name>/"
_CONFIGS = f"{_SOURCES}configs/"
_STATE = f"{_SOURCES}state/"
_HISTORY = f"{_SOURCES}history/"
_SCHEDULE = f"{_SOURCES}schedule/"

urlpatterns = [
    path(_SOURCES, views.SourcesPage.as_view(), name="sources"),
    path(f"{_SOURCES}enrol/", views.AgentEnrol.as_view(), name="agent-enrol"),
    path(f"{_SOURCES}enrol/<int:pk>/revoke/", views.TokenRevoke.as_view(), name="agent-enrol-revoke"),
    path(_AGENT, agents_views.AgentPage.as_view(), name="agent"),
    path(f"{_AGENT}budget/", agents_views.AgentBudget.as_view(), name="agent-budget"),
    path(f"{_AGENT}budget/preview/", agents_views.BudgetPreview.as_view(), name="agent-budget-preview"),
    path(f"{_AGENT}enable/", agents_views.AgentEnable.as_view(), name="agent-enable"),
    path(f"{_AGENT}remove/", agents_views.AgentRemove.as_view(), name="agent-remove"),
    path(f"{_AGENT}load-factors/<str:query>/", agents_views.AgentFactors.as_view(), name="agent-factors"),
    path(f"{_AGENT}load-factors/<str:query>/back/", agents_views.AgentGiveBack.as_view(), name="agent-give-back"),
    path(f"{_AGENT}method/<str:query>/", agents_views.AgentMethod.as_view(), name="agent-method"),
    path(f"{_SOURCES}change/", agents_views.AgentsChange.as_view(), name="agents-change"),
    path(_SCHEDULE, schedule_views.SchedulePage.as_view(), name="schedule"),
    path(f"{_SCHEDULE}replay/", schedule_views.ScheduleReplay.as_view(), name="schedule-replay"),
    path(f"{_SCHEDULE}switch/", schedule_views.ScheduleSwitchPage.as_view(), name="schedule-switch"),
    path(_CONFIGS, configs_views.ConfigsPage.as_view(), name="configs"),
    path(f"{_CONFIGS}new/", configs_views.ConfigNew.as_view(), name="config-new"),
    path(f"{_CONFIGS}<int:number>/", configs_views.ConfigPage.as_view(), name="config"),
    path(f"{_CONFIGS}<int:number>/start/", configs_views.ConfigStart.as_view(), name="config-start"),
    path(f"{_SOURCES}rollouts/<int:pk>/<str:change>/", configs_views.RolloutChange.as_view(), name="rollout-change"),
    path(_STATE, state.StatePage.as_view(), name="stream-state"),
    path(f"{_STATE}read/", state.StateRead.as_view(), name="stream-state-read"),
    path(_HISTORY, history.HistoryPage.as_view(), name="stream-history"),
    path(f"{_HISTORY}run/", history.HistoryRun.as_view(), name="stream-history-run"),
    path(f"{_SOURCES}rollout-policy/", configs_views.PolicyPage.as_view(), name="rollout-policy"),
    path(f"{_SOURCES}new/source/", views.SourceCrud.create_view(), name="source-new"),
    path(f"{_SOURCES}collected/<str:source_id>/", views.SourceCrud.change_view(), name="source"),
    path(f"{_SOURCES}collected/<str:source_id>/delete/", views.SourceCrud.delete_view(), name="source-delete"),
    path(f"{_SOURCES}new/table/", views.TableCrud.create_view(), name="static-table-new"),
    path(f"{_SOURCES}tables/<str:name>/", views.TableCrud.change_view(), name="static-table"),
    path(f"{_SOURCES}tables/<str:name>/delete/", views.TableCrud.delete_view(), name="static-table-delete"),
]
