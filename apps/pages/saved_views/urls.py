"""Addresses of saved views."""

from __future__ import annotations

from django.urls import path

from apps.pages.saved_views import views

urlpatterns = [
    path("views/", views.SavedViewsPage.as_view(), name="saved-views"),
    path("views/new/", views.SavedViewCrud.create_view(), name="saved-view-new"),
    path("views/default/", views.SavedViewDefault.as_view(), name="saved-view-default"),
    path("views/<uuid:pk>/", views.SavedViewCrud.change_view(), name="saved-view"),
    path("views/<uuid:pk>/delete/", views.SavedViewCrud.delete_view(), name="saved-view-delete"),
]
