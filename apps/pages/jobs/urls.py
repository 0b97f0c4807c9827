"""Addresses of the pages of background jobs."""

from __future__ import annotations

from django.urls import path

from apps.pages.jobs import views

_JOB = "jobs/<uuid:pk>/"

urlpatterns = [
    path("jobs/", views.JobsPage.as_view(), name="jobs"),
    path("jobs/menu/", views.JobsMenu.as_view(), name="jobs-menu"),
    path(_JOB, views.JobPage.as_view(), name="job"),
    path(f"{_JOB}progress/", views.JobProgress.as_view(), name="job-progress"),
    path(f"{_JOB}cancel/", views.JobCancelView.as_view(), name="job-cancel"),
]
