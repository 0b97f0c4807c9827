"""Addresses of the pages."""

from __future__ import annotations

from django.urls import include, path

from apps.pages.fleet import views
from apps.pages.fleet import views as fleet_rows
from apps.pages.fleet import views as fleet_views
from apps.pages.help import views as help_views
from apps.pages.help import views as helppage
from apps.pages.help import views as search
from apps.pages.jobs import views as jobs_views
from apps.pages.overview import views as overview_views
from apps.pages.people import views as people_views

app_name = "pages"

urlpatterns = [
    path("", overview_views.Home.as_view(), name="home"),
    path("clusters/new/", views.ClusterNew.as_view(), name="cluster-new"),
    path("c/<str:slug>/", overview_views.Overview.as_view(), name="overview"),
    path("c/<str:slug>/estimate/", overview_views.EstimateNow.as_view(), name="estimate-now"),
    path("c/<str:slug>/settings/", views.ClusterEdit.as_view(), name="cluster-edit"),
    path("c/<str:slug>/settings/delete/", views.ClusterDelete.as_view(), name="cluster-delete"),
    path("c/<str:slug>/search/", search.SearchPage.as_view(), name="search"),
    # fleet
    path("c/<str:slug>/fleet/", fleet_views.FleetPage.as_view(), name="fleet"),
    path("c/<str:slug>/fleet/import/", fleet_views.FleetImport.as_view(), name="fleet-import"),
    path("c/<str:slug>/fleet/new/node/", fleet_rows.NodeNew.as_view(), name="node-new"),
    path("c/<str:slug>/fleet/nodes/<str:name>/", fleet_views.NodePage.as_view(), name="node"),
    path("c/<str:slug>/fleet/nodes/<str:name>/edit/", fleet_rows.NodeEdit.as_view(), name="node-edit"),
    path("c/<str:slug>/fleet/nodes/<str:name>/state/", fleet_views.NodeStateChange.as_view(), name="node-state"),
    path("c/<str:slug>/fleet/nodes/<str:name>/delete/", fleet_rows.NodeDelete.as_view(), name="node-delete"),
    path("c/<str:slug>/fleet/pools/", fleet_views.PoolsPage.as_view(), name="pools"),
    path("c/<str:slug>/fleet/new/pool/", fleet_rows.PoolNew.as_view(), name="pool-new"),
    path("c/<str:slug>/fleet/pools/<int:pk>/", fleet_rows.PoolEdit.as_view(), name="pool-edit"),
    path("c/<str:slug>/fleet/pools/<int:pk>/delete/", fleet_rows.PoolDelete.as_view(), name="pool-delete"),
    path("c/<str:slug>/fleet/pools/<int:pk>/plan/", fleet_rows.PoolPlan.as_view(), name="pool-plan"),
    path("c/<str:slug>/fleet/links/", fleet_views.LinksPage.as_view(), name="links"),
    path("c/<str:slug>/fleet/new/link/", fleet_rows.LinkNew.as_view(), name="link-new"),
    path("c/<str:slug>/fleet/links/<int:pk>/", fleet_rows.LinkEdit.as_view(), name="link-edit"),
    path("c/<str:slug>/fleet/links/<int:pk>/delete/", fleet_rows.LinkDelete.as_view(), name="link-delete"),
    path("", include("apps.pages.queries.urls")),
    path("", include("apps.pages.admission.urls")),
    path("", include("apps.pages.placement.urls")),
    path("", include("apps.pages.plans.urls")),
    path("", include("apps.pages.forecasts.urls")),
    path("", include("apps.pages.provisioning.urls")),
    path("", include("apps.pages.reports.urls")),
    path("", include("apps.pages.urls_imports")),
    path("", include("apps.pages.sources.urls")),
    path("", include("apps.pages.live.urls")),
    path("", include("apps.pages.accuracy.urls")),
    path("", include("apps.pages.backtests.urls")),
    # jobs
    path("jobs/", jobs_views.JobsPage.as_view(), name="jobs"),
    path("jobs/menu/", jobs_views.JobsMenu.as_view(), name="jobs-menu"),
    path("jobs/<uuid:pk>/", jobs_views.JobPage.as_view(), name="job"),
    path("jobs/<uuid:pk>/progress/", jobs_views.JobProgress.as_view(), name="job-progress"),
    path("jobs/<uuid:pk>/cancel/", jobs_views.JobCancelView.as_view(), name="job-cancel"),
    # people and help
    path("settings/people/", people_views.PeoplePage.as_view(), name="people"),
    path("settings/people/<int:pk>/", people_views.PersonChange.as_view(), name="person-change"),
    path("help/", helppage.HelpPage.as_view(), name="help"),
    path("help/docs/<path:path>", help_views.GuidePage.as_view(), name="guide"),
    path("help/api/", helppage.ApiPage.as_view(), name="api"),
]
