"""Addresses of the admission pages."""

from __future__ import annotations

from django.urls import path

from apps.pages.admission import views

_REQUEST = "c/<str:slug>/admission/<uuid:pk>/"

urlpatterns = [
    path("c/<str:slug>/admission/", views.AdmissionsPage.as_view(), name="admissions"),
    path("c/<str:slug>/admission/new/", views.AdmissionNew.as_view(), name="admission-new"),
    path("c/<str:slug>/admission/new/plan/", views.PlanPart.as_view(), name="admission-plan"),
    path(_REQUEST, views.AdmissionPage.as_view(), name="admission"),
    path(f"{_REQUEST}preview/", views.AdmissionPreviewAgain.as_view(), name="admission-preview"),
    path(f"{_REQUEST}trial/", views.AdmissionTrialStart.as_view(), name="admission-trial"),
    path(f"{_REQUEST}trial/stop/", views.AdmissionTrialStop.as_view(), name="admission-trial-stop"),
    path(f"{_REQUEST}apply/", views.AdmissionApply.as_view(), name="admission-apply"),
    path(f"{_REQUEST}withdraw/", views.AdmissionWithdraw.as_view(), name="admission-withdraw"),
    path(f"{_REQUEST}review/", views.AdmissionRequestReview.as_view(), name="admission-review"),
    path(f"{_REQUEST}approve/", views.AdmissionApprove.as_view(), name="admission-approve"),
    path(f"{_REQUEST}decline/", views.AdmissionDecline.as_view(), name="admission-decline"),
    path(f"{_REQUEST}override/", views.AdmissionOverride.as_view(), name="admission-override"),
]
