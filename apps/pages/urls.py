"""Addresses of the pages."""

from __future__ import annotations

from django.urls import include, path

from apps.pages import clusters, fleet, fleet_rows, guides, helppage, jobs, overview, people, search

app_name = "pages"

urlpatterns = [
    path("", overview.Home.as_view(), name="home"),
    path("clusters/new/", clusters.ClusterNew.as_view(), name="cluster-new"),
    path("c/<str:slug>/", overview.Overview.as_view(), name="overview"),
    path("c/<str:slug>/estimate/", overview.EstimateNow.as_view(), name="estimate-now"),
    path("c/<str:slug>/settings/", clusters.ClusterEdit.as_view(), name="cluster-edit"),
    path("c/<str:slug>/settings/delete/", clusters.ClusterDelete.as_view(), name="cluster-delete"),
    path("c/<str:slug>/search/", search.SearchPage.as_view(), name="search"),
    # fleet
    path("c/<str:slug>/fleet/", fleet.FleetPage.as_view(), name="fleet"),
    path("c/<str:slug>/fleet/import/", fleet.FleetImport.as_view(), name="fleet-import"),
    path("c/<str:slug>/fleet/new/node/", fleet_rows.NodeNew.as_view(), name="node-new"),
    path("c/<str:slug>/fleet/nodes/<str:name>/", fleet.NodePage.as_view(), name="node"),
    path("c/<str:slug>/fleet/nodes/<str:name>/edit/", fleet_rows.NodeEdit.as_view(), name="node-edit"),
    path("c/<str:slug>/fleet/nodes/<str:name>/state/", fleet.NodeState.as_view(), name="node-state"),
    path("c/<str:slug>/fleet/nodes/<str:name>/delete/", fleet_rows.NodeDelete.as_view(), name="node-delete"),
    path("c/<str:slug>/fleet/pools/", fleet.PoolsPage.as_view(), name="pools"),
    path("c/<str:slug>/fleet/new/pool/", fleet_rows.PoolNew.as_view(), name="pool-new"),
    path("c/<str:slug>/fleet/pools/<int:pk>/", fleet_rows.PoolEdit.as_view(), name="pool-edit"),
    path("c/<str:slug>/fleet/pools/<int:pk>/delete/", fleet_rows.PoolDelete.as_view(), name="pool-delete"),
    path("c/<str:slug>/fleet/pools/<int:pk>/plan/", fleet_rows.PoolPlan.as_view(), name="pool-plan"),
    path("c/<str:slug>/fleet/links/", fleet.LinksPage.as_view(), name="links"),
    path("c/<str:slug>/fleet/new/link/", fleet_rows.LinkNew.as_view(), name="link-new"),
    path("c/<str:slug>/fleet/links/<int:pk>/", fleet_rows.LinkEdit.as_view(), name="link-edit"),
    path("c/<str:slug>/fleet/links/<int:pk>/delete/", fleet_rows.LinkDelete.as_view(), name="link-delete"),
    path("", include("apps.pages.urls_queries")),
    path("", include("apps.pages.urls_admission")),
    path("", include("apps.pages.urls_placement")),
    path("", include("apps.pages.urls_plans")),
    path("", include("apps.pages.urls_forecasts")),
    path("", include("apps.pages.urls_provisioning")),
    path("", include("apps.pages.urls_reports")),
    path("", include("apps.pages.urls_imports")),
    path("", include("apps.pages.urls_sources")),
    path("", include("apps.pages.urls_live")),
    path("", include("apps.pages.urls_accuracy")),
    path("", include("apps.pages.urls_backtests")),
    # jobs
    path("jobs/", jobs.JobsPage.as_view(), name="jobs"),
    path("jobs/menu/", jobs.JobsMenu.as_view(), name="jobs-menu"),
    path("jobs/<uuid:pk>/", jobs.JobPage.as_view(), name="job"),
    path("jobs/<uuid:pk>/progress/", jobs.JobProgress.as_view(), name="job-progress"),
    path("jobs/<uuid:pk>/cancel/", jobs.JobCancelView.as_view(), name="job-cancel"),
    # people and help
    path("settings/people/", people.PeoplePage.as_view(), name="people"),
    path("settings/people/<int:pk>/", people.PersonChange.as_view(), name="person-change"),
    path("help/", helppage.HelpPage.as_view(), name="help"),
    path("help/docs/<path:path>", guides.GuidePage.as_view(), name="guide"),
    path("help/api/", helppage.ApiPage.as_view(), name="api"),
]
