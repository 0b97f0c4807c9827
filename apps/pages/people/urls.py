"""Addresses of the pages of people who may sign in."""

from __future__ import annotations

from django.urls import path

from apps.pages.people import views

urlpatterns = [
    path("settings/people/", views.PeoplePage.as_view(), name="people"),
    path("settings/people/<int:pk>/password/", views.PersonPassword.as_view(), name="person-password"),
    path("settings/people/<int:pk>/", views.PersonChange.as_view(), name="person-change"),
]
