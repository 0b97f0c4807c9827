"""Addresses of the webhook that API servers call. A token may be a part of them: API servers send no header."""

from __future__ import annotations

from django.urls import path

from apps.kubernetes.api import AdmissionWebhook

_HOOK = "webhooks/kubernetes/admission"

urlpatterns = [
    path(_HOOK, AdmissionWebhook.as_view(), name="kubernetes-admission"),
    path(f"{_HOOK}/<str:slug>", AdmissionWebhook.as_view(), name="kubernetes-admission-cluster"),
    path(f"{_HOOK}/<str:slug>/<str:token>", AdmissionWebhook.as_view(), name="kubernetes-admission-token"),
]
