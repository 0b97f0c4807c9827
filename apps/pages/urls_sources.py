"""Addresses of the sources pages."""

from __future__ import annotations

from django.urls import path

from apps.pages import agents, sources, sources_edit

_SOURCES = "c/<str:slug>/sources/"
_AGENT = f"{_SOURCES}agents/<str:name>/"

urlpatterns = [
    path(_SOURCES, sources.SourcesPage.as_view(), name="sources"),
    path(f"{_SOURCES}enrol/", sources.Enrol.as_view(), name="agent-enrol"),
    path(f"{_SOURCES}enrol/<int:pk>/revoke/", sources.TokenRevoke.as_view(), name="agent-enrol-revoke"),
    path(_AGENT, agents.AgentPage.as_view(), name="agent"),
    path(f"{_AGENT}settings/", agents.AgentSettings.as_view(), name="agent-settings"),
    path(f"{_AGENT}enable/", agents.AgentEnable.as_view(), name="agent-enable"),
    path(f"{_AGENT}remove/", agents.AgentRemove.as_view(), name="agent-remove"),
    path(f"{_AGENT}load-factors/<str:query>/", agents.AgentFactors.as_view(), name="agent-factors"),
    path(f"{_SOURCES}new/source/", sources_edit.SourceNew.as_view(), name="source-new"),
    path(f"{_SOURCES}collected/<str:source_id>/", sources_edit.SourceEdit.as_view(), name="source"),
    path(f"{_SOURCES}collected/<str:source_id>/delete/", sources_edit.SourceDelete.as_view(), name="source-delete"),
    path(f"{_SOURCES}new/table/", sources_edit.TableNew.as_view(), name="static-table-new"),
    path(f"{_SOURCES}tables/<str:name>/", sources_edit.TableEdit.as_view(), name="static-table"),
    path(f"{_SOURCES}tables/<str:name>/delete/", sources_edit.TableDelete.as_view(), name="static-table-delete"),
]
