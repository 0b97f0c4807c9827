"""Addresses of the admission pages."""

from __future__ import annotations

from django.urls import path

from apps.pages import admission_actions, admission_detail, admission_new, admissions

_REQUEST = "c/<str:slug>/admission/<uuid:pk>/"

urlpatterns = [
    path("c/<str:slug>/admission/", admissions.AdmissionsPage.as_view(), name="admissions"),
    path("c/<str:slug>/admission/new/", admission_new.AdmissionNew.as_view(), name="admission-new"),
    path("c/<str:slug>/admission/new/plan/", admission_new.PlanPart.as_view(), name="admission-plan"),
    path(_REQUEST, admission_detail.AdmissionPage.as_view(), name="admission"),
    path(f"{_REQUEST}preview/", admission_actions.PreviewAgain.as_view(), name="admission-preview"),
    path(f"{_REQUEST}apply/", admission_actions.Apply.as_view(), name="admission-apply"),
    path(f"{_REQUEST}withdraw/", admission_actions.Withdraw.as_view(), name="admission-withdraw"),
    path(f"{_REQUEST}review/", admission_actions.AskReview.as_view(), name="admission-review"),
    path(f"{_REQUEST}approve/", admission_actions.Approve.as_view(), name="admission-approve"),
    path(f"{_REQUEST}decline/", admission_actions.Decline.as_view(), name="admission-decline"),
    path(f"{_REQUEST}override/", admission_actions.Override.as_view(), name="admission-override"),
]
