"""Address of the answers to Kubernetes."""

from __future__ import annotations

from django.urls import path

from apps.pages.kubernetes import views

urlpatterns = [
    path("c/<str:slug>/admission/kubernetes/", views.KubernetesReviewsPage.as_view(), name="kubernetes-reviews"),
]
