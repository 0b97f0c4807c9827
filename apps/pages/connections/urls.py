"""Addresses of the pages of connections."""

from __future__ import annotations

from django.urls import path

from apps.pages.connections import views

_CONNECTIONS = "c/<str:slug>/connections/"
_CONNECTION = f"{_CONNECTIONS}<int:pk>/"

urlpatterns = [
    path(_CONNECTIONS, views.ConnectionsPage.as_view(), name="connections"),
    path(f"{_CONNECTIONS}new/", views.ConnectionNew.as_view(), name="connection-new"),
    path(_CONNECTION, views.ConnectionPage.as_view(), name="connection"),
    path(f"{_CONNECTION}check/", views.ConnectionCheck.as_view(), name="connection-check"),
    path(f"{_CONNECTION}import/", views.ConnectionImport.as_view(), name="connection-import"),
    path(f"{_CONNECTION}refresh/", views.ConnectionRefresh.as_view(), name="connection-refresh"),
    path(f"{_CONNECTION}pause/", views.ConnectionPause.as_view(), name="connection-pause"),
    path(f"{_CONNECTION}resume/", views.ConnectionResume.as_view(), name="connection-resume"),
    path(f"{_CONNECTION}upload/", views.ConnectionUpload.as_view(), name="connection-upload"),
    path(f"{_CONNECTION}edit/", views.ConnectionCrud.change_view(), name="connection-edit"),
    path(f"{_CONNECTION}delete/", views.ConnectionCrud.delete_view(), name="connection-delete"),
]
