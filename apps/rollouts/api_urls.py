"""Addresses of refinement's REST resources, under /api/v1/."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path, re_path

from apps.rollouts.api import ConfigViewSet, PolicyView, RolloutViewSet
from apps.rollouts.schedule.api import AgentScheduleView, ReplayView, ScheduleView

_CLUSTER = r"^clusters/(?P<slug>[A-Za-z0-9._-]+)"
_CONFIG = rf"{_CLUSTER}/configs/(?P<number>[0-9]{{1,9}})"
_ROLLOUT = rf"{_CLUSTER}/rollouts/(?P<number>[0-9]{{1,9}})"

urlpatterns: list[URLPattern | URLResolver] = [
    re_path(rf"{_CLUSTER}/configs$", ConfigViewSet.as_view({"get": "list", "post": "create"}), name="configs"),
    re_path(rf"{_CLUSTER}/configs/check$", ConfigViewSet.as_view({"post": "check"}), name="config-check"),
    re_path(rf"{_CONFIG}$", ConfigViewSet.as_view({"get": "retrieve"}), name="config"),
    re_path(rf"{_CONFIG}/start$", ConfigViewSet.as_view({"post": "start"}), name="config-start"),
    re_path(rf"{_CLUSTER}/rollouts$", RolloutViewSet.as_view({"get": "list"}), name="rollouts"),
    re_path(rf"{_ROLLOUT}$", RolloutViewSet.as_view({"get": "retrieve"}), name="rollout"),
    re_path(rf"{_ROLLOUT}/pause$", RolloutViewSet.as_view({"post": "pause"}), name="rollout-pause"),
    re_path(rf"{_ROLLOUT}/resume$", RolloutViewSet.as_view({"post": "resume"}), name="rollout-resume"),
    re_path(rf"{_ROLLOUT}/roll-back$", RolloutViewSet.as_view({"post": "roll_back"}), name="rollout-roll-back"),
    re_path(rf"{_ROLLOUT}/canaries$", RolloutViewSet.as_view({"post": "canaries"}), name="rollout-canaries"),
    re_path(
        rf"{_CLUSTER}/rollout-policy$",
        PolicyView.as_view({"get": "retrieve", "patch": "partial_update"}),
        name="rollout-policy",
    ),
    re_path(rf"{_CLUSTER}/schedule$", ScheduleView.as_view(), name="schedule"),
    re_path(rf"{_CLUSTER}/schedule/replay$", ReplayView.as_view(), name="schedule-replay"),
    path("agents/<uuid:pk>/schedule", AgentScheduleView.as_view(), name="agent-schedule"),
]
