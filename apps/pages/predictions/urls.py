"""Addresses of the pages of the prediction model."""

from __future__ import annotations

from django.urls import path

from apps.pages.predictions import views

_MODEL = "c/<str:slug>/accuracy/model/"

urlpatterns = [
    path(_MODEL, views.ModelPage.as_view(), name="prediction-model"),
    path(f"{_MODEL}fine-tune/", views.ModelTune.as_view(), name="prediction-model-tune"),
    path(f"{_MODEL}<int:pk>/put-in-force/", views.ModelPutInForce.as_view(), name="prediction-model-use"),
]
