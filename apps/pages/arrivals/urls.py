"""Addresses of the pages of arrivals and load histories."""

from __future__ import annotations

from django.urls import path

from apps.pages.arrivals import views

_ARRIVALS = "c/<str:slug>/arrivals/"
_HISTORIES = "c/<str:slug>/provisioning/forecast/histories/"

urlpatterns = [
    path(_ARRIVALS, views.ArrivalsPage.as_view(), name="arrivals"),
    path(f"{_ARRIVALS}new/", views.ArrivalsUpload.as_view(), name="arrivals-new"),
    path(f"{_ARRIVALS}new/columns/", views.ArrivalsColumns.as_view(), name="arrivals-columns"),
    path(f"{_ARRIVALS}new/generator/", views.ArrivalsGenerator.as_view(), name="arrivals-generator"),
    path(f"{_ARRIVALS}<int:pk>/", views.ArrivalsDetail.as_view(), name="arrivals-detail"),
    path(f"{_ARRIVALS}<int:pk>/fields/", views.ArrivalsFields.as_view(), name="arrivals-fields"),
    path(f"{_ARRIVALS}<int:pk>/delete/", views.ArrivalsCrud.delete_view(), name="arrivals-delete"),
    path(_HISTORIES, views.HistoriesPage.as_view(), name="histories"),
    path(f"{_HISTORIES}new/", views.HistoryUpload.as_view(), name="history-new"),
    path(f"{_HISTORIES}columns/", views.HistoryColumns.as_view(), name="history-columns"),
    path(f"{_HISTORIES}generate/", views.HistoryGenerator.as_view(), name="history-generator"),
    path(f"{_HISTORIES}<int:pk>/", views.HistoryDetail.as_view(), name="history"),
    path(f"{_HISTORIES}<int:pk>/delete/", views.HistoryCrud.delete_view(), name="history-delete"),
]
