"""Addresses of the pages, room by room."""

from __future__ import annotations

from django.urls import path

from apps.pages import embeds, jobs, kubernetes, names, operation, people, search
from apps.pages import help as help_pages
from apps.pages.accuracy import views as accuracy
from apps.pages.admission import groups, replays
from apps.pages.admission import views as admission
from apps.pages.arrivals import views as arrivals
from apps.pages.backtests import views as backtests
from apps.pages.changes import views as changes
from apps.pages.changes import webhook as ledger_webhook
from apps.pages.connections import views as connections
from apps.pages.events import views as events
from apps.pages.fleet import evacuations
from apps.pages.fleet import views as fleet
from apps.pages.forecasts import views as forecasts
from apps.pages.incidents import channels
from apps.pages.incidents import views as incidents
from apps.pages.live import views as live
from apps.pages.microbatch import views as microbatch
from apps.pages.overview import views as overview
from apps.pages.placement import views as placement
from apps.pages.plans import views as plans
from apps.pages.policies import views as policies
from apps.pages.predictions import views as predictions
from apps.pages.provisioning import views as provisioning
from apps.pages.queries import imports
from apps.pages.queries import views as queries
from apps.pages.reports import views as reports
from apps.pages.resource_plans import views as resource_plans
from apps.pages.saved_views import views as saved_views
from apps.pages.sources import agent_views as agents
from apps.pages.sources import config_views as configs
from apps.pages.sources import schedule_views as schedule
from apps.pages.sources import state
from apps.pages.sources import views as sources

app_name = "pages"

_C = "c/<str:slug>/"  #: what belongs to a cluster
_EVACUATION = f"{_C}fleet/evacuations/<uuid:pk>/"

urlpatterns = [
    # -- overview
    path("", overview.Home.as_view(), name="home"),
    path(_C, overview.Overview.as_view(), name="overview"),
    path(f"{_C}estimate/", overview.EstimateNow.as_view(), name="estimate-now"),
    # -- a panel for pages elsewhere
    path(f"{_C}embed/", embeds.EmbedLinkPage.as_view(), name="embed-link"),
    path("embed/<str:token>/", embeds.EmbeddedPanel.as_view(), name="embedded-panel"),
    # -- changes
    path(f"{_C}changes/", changes.ChangesPage.as_view(), name="changes"),
    path(f"{_C}changes/compare/", changes.ComparisonPage.as_view(), name="changes-compare"),
    path("changes/", changes.LedgerPage.as_view(), name="ledger"),
    path("changes/webhook/", ledger_webhook.LedgerWebhookPage.as_view(), name="ledger-webhook"),
    path("changes/webhook/test/", ledger_webhook.LedgerWebhookTest.as_view(), name="ledger-webhook-test"),
    path("changes/webhook/retry/", ledger_webhook.LedgerWebhookRetry.as_view(), name="ledger-webhook-retry"),
    path("changes/webhook/remove/", ledger_webhook.LedgerWebhookRemove.as_view(), name="ledger-webhook-remove"),
    path("changes/<int:pk>/undo/", changes.ChangeUndo.as_view(), name="change-undo"),
    path("undo/<uuid:group>/", changes.GroupUndo.as_view(), name="group-undo"),
    # -- incidents
    path("incidents/menu/", incidents.IncidentsMenu.as_view(), name="incidents-menu"),
    path(f"{_C}incidents/", incidents.IncidentsPage.as_view(), name="incidents"),
    path(f"{_C}incidents/routing/", incidents.RoutingPage.as_view(), name="incident-routing"),
    path(f"{_C}incidents/channels/", channels.ChannelsPage.as_view(), name="incident-channels"),
    path(f"{_C}incidents/channels/new/", channels.ChannelCrud.create_view(), name="incident-channel-new"),
    path(f"{_C}incidents/channels/<int:pk>/", channels.ChannelCrud.change_view(), name="incident-channel"),
    path(f"{_C}incidents/channels/<int:pk>/test/", channels.ChannelTest.as_view(), name="incident-channel-test"),
    path(
        f"{_C}incidents/channels/<int:pk>/delete/", channels.ChannelCrud.delete_view(), name="incident-channel-delete"
    ),
    path(f"{_C}incidents/silences/<int:pk>/end/", channels.SilenceEnd.as_view(), name="incident-silence-end"),
    path(f"{_C}incidents/<int:pk>/", incidents.IncidentPage.as_view(), name="incident"),
    path(f"{_C}incidents/<int:pk>/done/", incidents.IncidentDone.as_view(), name="incident-done"),
    path(f"{_C}incidents/<int:pk>/acknowledge/", incidents.IncidentAcknowledge.as_view(), name="incident-acknowledge"),
    # -- fleet
    path("clusters/menu/", fleet.ClusterMenu.as_view(), name="cluster-menu"),
    path("clusters/new/", fleet.ClusterCrud.create_view(), name="cluster-new"),
    path(f"{_C}settings/", fleet.ClusterCrud.change_view(), name="cluster-edit"),
    path(f"{_C}settings/policy/", policies.ClusterPolicyPage.as_view(), name="policy"),
    path(f"{_C}settings/policy/<int:number>/", policies.PolicyVersionPage.as_view(), name="policy-version"),
    path(f"{_C}settings/policy/<int:number>/restore/", policies.PolicyRestore.as_view(), name="policy-restore"),
    path(f"{_C}settings/delete/", fleet.ClusterCrud.delete_view(), name="cluster-delete"),
    path(f"{_C}fleet/", fleet.FleetPage.as_view(), name="fleet"),
    path(f"{_C}fleet/change/", fleet.NodesChange.as_view(), name="nodes-change"),
    path(f"{_C}fleet/evacuations/", evacuations.EvacuationsPage.as_view(), name="evacuations"),
    path(f"{_C}fleet/evacuations/new/", evacuations.EvacuationNew.as_view(), name="evacuation-new"),
    path(f"{_EVACUATION}", evacuations.EvacuationPage.as_view(), name="evacuation"),
    path(f"{_EVACUATION}commands/", evacuations.Commands.as_view(), name="evacuation-commands"),
    path(f"{_EVACUATION}confirm/", evacuations.EvacuationConfirm.as_view(), name="evacuation-confirm"),
    path(f"{_EVACUATION}finish/", evacuations.EvacuationFinish.as_view(), name="evacuation-finish"),
    path(f"{_EVACUATION}stop/", evacuations.EvacuationStop.as_view(), name="evacuation-stop"),
    path(f"{_EVACUATION}delete/", evacuations.EvacuationDelete.as_view(), name="evacuation-delete"),
    path(f"{_C}fleet/import/", fleet.FleetImport.as_view(), name="fleet-import"),
    path(f"{_C}fleet/new/node/", fleet.NodeCrud.create_view(), name="node-new"),
    path(f"{_C}fleet/nodes/<str:name>/", fleet.NodePage.as_view(), name="node"),
    path(f"{_C}fleet/nodes/<str:name>/edit/", fleet.NodeCrud.change_view(), name="node-edit"),
    path(f"{_C}fleet/nodes/<str:name>/state/", fleet.NodeStateChange.as_view(), name="node-state"),
    path(f"{_C}fleet/nodes/<str:name>/delete/", fleet.NodeCrud.delete_view(), name="node-delete"),
    path(f"{_C}fleet/pools/", fleet.PoolsPage.as_view(), name="pools"),
    path(f"{_C}fleet/new/pool/", fleet.PoolCrud.create_view(), name="pool-new"),
    path(f"{_C}fleet/pools/<int:pk>/", fleet.PoolCrud.change_view(), name="pool-edit"),
    path(f"{_C}fleet/pools/<int:pk>/delete/", fleet.PoolCrud.delete_view(), name="pool-delete"),
    path(f"{_C}fleet/pools/<int:pk>/plan/", fleet.PoolPlan.as_view(), name="pool-plan"),
    path(f"{_C}fleet/links/", fleet.LinksPage.as_view(), name="links"),
    path(f"{_C}fleet/new/link/", fleet.LinkCrud.create_view(), name="link-new"),
    path(f"{_C}fleet/links/<int:pk>/", fleet.LinkCrud.change_view(), name="link-edit"),
    path(f"{_C}fleet/links/<int:pk>/delete/", fleet.LinkCrud.delete_view(), name="link-delete"),
    # -- queries
    path(f"{_C}queries/", queries.QueriesPage.as_view(), name="queries"),
    # a name begins with a letter or digit, so that no query can be called "-"
    path(f"{_C}queries/-/new/", queries.QueryNew.as_view(), name="query-new"),
    path(f"{_C}queries/-/example/", queries.QueryExample.as_view(), name="query-example"),
    path(f"{_C}queries/-/operator/", queries.OperatorRow.as_view(), name="query-operator-row"),
    path(f"{_C}queries/-/change/", queries.QueriesChange.as_view(), name="queries-change"),
    path(f"{_C}queries/<str:name>/", queries.PlanTab.as_view(), name="query"),
    path(f"{_C}queries/<str:name>/statistics/", queries.StatisticsTab.as_view(), name="query-statistics"),
    path(f"{_C}queries/<str:name>/backlog/", queries.QueryBacklog.as_view(), name="query-backlog"),
    path(f"{_C}queries/<str:name>/capacity/", queries.QueryCapacityLook.as_view(), name="query-capacity"),
    path(f"{_C}queries/<str:name>/placement/", queries.PlacementTab.as_view(), name="query-placement"),
    path(f"{_C}queries/<str:name>/remedies/", queries.RemediesTab.as_view(), name="query-remedies"),
    path(
        f"{_C}queries/<str:name>/remedies/preview/",
        queries.RemedyPreviewStart.as_view(),
        name="query-remedy-preview",
    ),
    path(f"{_C}queries/<str:name>/parallelism/", queries.ParallelismTab.as_view(), name="query-parallelism"),
    path(f"{_C}queries/<str:name>/versions/", queries.VersionsTab.as_view(), name="query-versions"),
    path(f"{_C}queries/<str:name>/versions/new/", queries.QueryVersionNew.as_view(), name="query-version-new"),
    path(f"{_C}queries/<str:name>/decisions/", queries.DecisionsTab.as_view(), name="query-decisions"),
    path(f"{_C}queries/<str:name>/estimates/", queries.EstimatesTab.as_view(), name="query-estimates"),
    path(f"{_C}queries/<str:name>/changes/", queries.ChangesTab.as_view(), name="query-changes"),
    path(f"{_C}queries/<str:name>/edit/", queries.QueryCrud.change_view(), name="query-edit"),
    path(f"{_C}queries/<str:name>/predict/", queries.QueryPredict.as_view(), name="query-predict"),
    path(f"{_C}queries/<str:name>/stop/", queries.QueryStop.as_view(), name="query-stop"),
    path(f"{_C}queries/<str:name>/delete/", queries.QueryCrud.delete_view(), name="query-delete"),
    path(f"{_C}import/", imports.DocumentImportPage.as_view(), name="import-new"),
    path(f"{_C}import/<uuid:pk>/", imports.ImportRunPage.as_view(), name="import"),
    # -- admission
    path(f"{_C}admission/", admission.AdmissionsPage.as_view(), name="admissions"),
    path(f"{_C}admission/replays/", replays.MonthReplayPage.as_view(), name="month-replay"),
    path(f"{_C}admission/groups/new/", groups.AdmissionGroupNew.as_view(), name="admission-group-new"),
    path(f"{_C}admission/groups/<uuid:pk>/", groups.AdmissionGroupPage.as_view(), name="admission-group"),
    path(
        f"{_C}admission/groups/<uuid:pk>/preview/", groups.AdmissionGroupAgain.as_view(), name="admission-group-preview"
    ),
    path(f"{_C}admission/groups/<uuid:pk>/apply/", groups.AdmissionGroupApply.as_view(), name="admission-group-apply"),
    path(
        f"{_C}admission/groups/<uuid:pk>/withdraw/",
        groups.AdmissionGroupWithdraw.as_view(),
        name="admission-group-withdraw",
    ),
    path(
        f"{_C}admission/groups/<uuid:pk>/review/",
        groups.AdmissionGroupRequestReview.as_view(),
        name="admission-group-review",
    ),
    path(
        f"{_C}admission/groups/<uuid:pk>/approve/",
        groups.AdmissionGroupApprove.as_view(),
        name="admission-group-approve",
    ),
    path(
        f"{_C}admission/groups/<uuid:pk>/decline/",
        groups.AdmissionGroupDecline.as_view(),
        name="admission-group-decline",
    ),
    path(
        f"{_C}admission/groups/<uuid:pk>/override/",
        groups.AdmissionGroupOverride.as_view(),
        name="admission-group-override",
    ),
    path(f"{_C}admission/new/", admission.AdmissionNew.as_view(), name="admission-new"),
    path(f"{_C}admission/new/plan/", admission.PlanPart.as_view(), name="admission-plan"),
    path(f"{_C}admission/<uuid:pk>/", admission.AdmissionPage.as_view(), name="admission"),
    path(f"{_C}admission/<uuid:pk>/preview/", admission.AdmissionPreviewAgain.as_view(), name="admission-preview"),
    path(f"{_C}admission/<uuid:pk>/parts/", admission.AdmissionComplete.as_view(), name="admission-parts"),
    path(f"{_C}admission/<uuid:pk>/trial/", admission.AdmissionTrialStart.as_view(), name="admission-trial"),
    path(f"{_C}admission/<uuid:pk>/trial/stop/", admission.AdmissionTrialStop.as_view(), name="admission-trial-stop"),
    path(f"{_C}admission/<uuid:pk>/apply/", admission.AdmissionApply.as_view(), name="admission-apply"),
    path(f"{_C}admission/<uuid:pk>/withdraw/", admission.AdmissionWithdraw.as_view(), name="admission-withdraw"),
    path(f"{_C}admission/<uuid:pk>/review/", admission.AdmissionRequestReview.as_view(), name="admission-review"),
    path(f"{_C}admission/<uuid:pk>/approve/", admission.AdmissionApprove.as_view(), name="admission-approve"),
    path(f"{_C}admission/<uuid:pk>/decline/", admission.AdmissionDecline.as_view(), name="admission-decline"),
    path(f"{_C}admission/<uuid:pk>/replay/", admission.AdmissionReplay.as_view(), name="admission-replay"),
    path(f"{_C}admission/<uuid:pk>/receipt/", admission.AdmissionReceipt.as_view(), name="admission-receipt"),
    path(f"{_C}admission/<uuid:pk>/override/", admission.AdmissionOverride.as_view(), name="admission-override"),
    # -- kubernetes
    path(f"{_C}admission/kubernetes/", kubernetes.KubernetesReviewsPage.as_view(), name="kubernetes-reviews"),
    # -- placement
    path(f"{_C}placement/", placement.PlacementPage.as_view(), name="placement"),
    path(f"{_C}placement/runs/", placement.PlacementRunsPage.as_view(), name="placement-runs"),
    path(f"{_C}placement/rule/", placement.PlacementRulePart.as_view(), name="placement-rule"),
    path(f"{_C}placement/<uuid:pk>/", placement.PlacementRunPage.as_view(), name="placement-run"),
    path(f"{_C}placement/<uuid:pk>/live/", placement.PlacementLivePart.as_view(), name="placement-live"),
    path(f"{_C}placement/<uuid:pk>/standing/", placement.PlacementStandingPart.as_view(), name="placement-standing"),
    path(f"{_C}placement/<uuid:pk>/stop/", placement.PlacementStop.as_view(), name="placement-stop"),
    path(f"{_C}placement/<uuid:pk>/apply/", placement.PlacementApply.as_view(), name="placement-apply"),
    path(f"{_C}placement/<uuid:pk>/abort/", placement.PlacementAbort.as_view(), name="placement-abort"),
    path(f"{_C}placement/<uuid:pk>/done/", placement.PlacementDone.as_view(), name="placement-done"),
    path(f"{_C}placement/<uuid:pk>/undo/", placement.PlacementUndo.as_view(), name="placement-undo"),
    path(f"{_C}placement/<uuid:pk>/again/", placement.PlacementSearchAgain.as_view(), name="placement-again"),
    path(f"{_C}placement/<uuid:pk>/delete/", placement.PlacementDelete.as_view(), name="placement-delete"),
    # -- plans
    path(f"{_C}queries/<str:name>/plans/", plans.PlansTab.as_view(), name="query-plans"),
    path(f"{_C}queries/<str:name>/plans/compare/", plans.PlansCompare.as_view(), name="query-plans-compare"),
    path(f"{_C}queries/<str:name>/plans/adopt/", plans.PlanAdopt.as_view(), name="query-plan-adopt"),
    # -- forecasts
    path(f"{_C}provisioning/forecast/", forecasts.ForecastPage.as_view(), name="forecast"),
    path(f"{_C}provisioning/forecast/new/", forecasts.ForecastNow.as_view(), name="forecast-now"),
    # -- provisioning
    path(f"{_C}provisioning/", provisioning.BenchPage.as_view(), name="provisioning"),
    path(f"{_C}provisioning/refine/", provisioning.BenchRefine.as_view(), name="provisioning-refine"),
    path(f"{_C}provisioning/find/", provisioning.WhatIfNow.as_view(), name="provisioning-find"),
    path(f"{_C}provisioning/nodes/", provisioning.PlannedNodes.as_view(), name="provisioning-nodes"),
    path(f"{_C}provisioning/scenarios/new/", provisioning.ScenarioSave.as_view(), name="scenario-new"),
    path(f"{_C}provisioning/scenarios/compare/", provisioning.ScenariosCompare.as_view(), name="scenarios-compare"),
    path(f"{_C}provisioning/scenarios/<int:pk>/", provisioning.ScenarioOpen.as_view(), name="scenario"),
    path(
        f"{_C}provisioning/scenarios/<int:pk>/delete/", provisioning.ScenarioCrud.delete_view(), name="scenario-delete"
    ),
    path(f"{_C}provisioning/what-ifs/", provisioning.WhatIfsPage.as_view(), name="what-ifs"),
    path(f"{_C}provisioning/what-ifs/<uuid:pk>/", provisioning.WhatIfPage.as_view(), name="what-if"),
    # -- microbatch
    path(f"{_C}provisioning/spark/", microbatch.SparkQueriesPage.as_view(), name="spark-queries"),
    path(f"{_C}provisioning/spark/new/", microbatch.SparkQueryNew.as_view(), name="spark-query-new"),
    path(f"{_C}provisioning/spark/<int:pk>/", microbatch.SparkQueryPage.as_view(), name="spark-query"),
    path(
        f"{_C}provisioning/spark/<int:pk>/progress/", microbatch.SparkQueryUpload.as_view(), name="spark-query-progress"
    ),
    path(f"{_C}provisioning/spark/<int:pk>/refit/", microbatch.SparkQueryRefit.as_view(), name="spark-query-refit"),
    path(f"{_C}provisioning/spark/<int:pk>/apply/", microbatch.SparkQueryApply.as_view(), name="spark-query-apply"),
    path(f"{_C}provisioning/spark/<int:pk>/edit/", microbatch.SparkQueryCrud.change_view(), name="spark-query-edit"),
    path(
        f"{_C}provisioning/spark/<int:pk>/delete/", microbatch.SparkQueryCrud.delete_view(), name="spark-query-delete"
    ),
    # -- resource plans
    path(f"{_C}provisioning/resource-plans/", resource_plans.ResourcePlansPage.as_view(), name="resource-plans"),
    path(f"{_C}provisioning/resource-plans/new/", resource_plans.ResourcePlanNew.as_view(), name="resource-plan-new"),
    path(
        f"{_C}provisioning/resource-plans/<uuid:pk>/", resource_plans.ResourcePlanPage.as_view(), name="resource-plan"
    ),
    path(
        f"{_C}provisioning/resource-plans/<uuid:pk>/apply/",
        resource_plans.ResourcePlanApply.as_view(),
        name="resource-plan-apply",
    ),
    path(
        f"{_C}provisioning/resource-plans/<uuid:pk>/delete/",
        resource_plans.ResourcePlanCrud.delete_view(),
        name="resource-plan-delete",
    ),
    # -- reports
    path(f"{_C}reports/", reports.ReportsPage.as_view(), name="reports"),
    path(f"{_C}reports/new/", reports.DefinitionCrud.create_view(), name="report-new"),
    path(f"{_C}reports/schedule/", reports.SchedulePreview.as_view(), name="report-schedule"),
    path(f"{_C}reports/definitions/<int:pk>/", reports.DefinitionCrud.change_view(), name="report-definition"),
    path(f"{_C}reports/definitions/<int:pk>/run/", reports.DefinitionRun.as_view(), name="report-run"),
    path(
        f"{_C}reports/definitions/<int:pk>/delete/",
        reports.DefinitionCrud.delete_view(),
        name="report-definition-delete",
    ),
    path(f"{_C}reports/webhooks/", reports.WebhooksPage.as_view(), name="report-webhooks"),
    path(f"{_C}reports/webhooks/<uuid:pk>/renew/", reports.WebhookRenew.as_view(), name="report-webhook-renew"),
    path(f"{_C}reports/webhooks/<uuid:pk>/delete/", reports.WebhookCrud.delete_view(), name="report-webhook-delete"),
    path(f"{_C}reports/<uuid:pk>/", reports.ReportPage.as_view(), name="report"),
    path(f"{_C}reports/<uuid:pk>/delete/", reports.ReportCrud.delete_view(), name="report-delete"),
    path(
        f"{_C}reports/<uuid:pk>/deliveries/<int:number>/send/", reports.DeliverySendAgain.as_view(), name="report-send"
    ),
    path(f"{_C}reports/<uuid:pk>/<str:form>/", reports.ReportFile.as_view(), name="report-file"),
    # -- arrivals
    path(f"{_C}arrivals/", arrivals.ArrivalsPage.as_view(), name="arrivals"),
    path(f"{_C}arrivals/new/", arrivals.ArrivalsUpload.as_view(), name="arrivals-new"),
    path(f"{_C}arrivals/new/columns/", arrivals.ArrivalsColumns.as_view(), name="arrivals-columns"),
    path(f"{_C}arrivals/new/generator/", arrivals.ArrivalsGenerator.as_view(), name="arrivals-generator"),
    path(f"{_C}arrivals/<int:pk>/", arrivals.ArrivalsDetail.as_view(), name="arrivals-detail"),
    path(f"{_C}arrivals/<int:pk>/fields/", arrivals.ArrivalsFields.as_view(), name="arrivals-fields"),
    path(f"{_C}arrivals/<int:pk>/owner/", arrivals.ArrivalsOwner.as_view(), name="arrivals-owner"),
    path(f"{_C}arrivals/<int:pk>/delete/", arrivals.ArrivalsCrud.delete_view(), name="arrivals-delete"),
    path(f"{_C}provisioning/forecast/histories/", arrivals.HistoriesPage.as_view(), name="histories"),
    path(f"{_C}provisioning/forecast/histories/new/", arrivals.HistoryUpload.as_view(), name="history-new"),
    path(f"{_C}provisioning/forecast/histories/columns/", arrivals.HistoryColumns.as_view(), name="history-columns"),
    path(
        f"{_C}provisioning/forecast/histories/generate/", arrivals.HistoryGenerator.as_view(), name="history-generator"
    ),
    path(f"{_C}provisioning/forecast/histories/<int:pk>/", arrivals.HistoryDetail.as_view(), name="history"),
    path(
        f"{_C}provisioning/forecast/histories/<int:pk>/delete/",
        arrivals.HistoryCrud.delete_view(),
        name="history-delete",
    ),
    # -- sources
    path(f"{_C}sources/", sources.SourcesPage.as_view(), name="sources"),
    path(f"{_C}sources/enrol/", sources.AgentEnrol.as_view(), name="agent-enrol"),
    path(f"{_C}sources/enrol/<int:pk>/revoke/", sources.TokenRevoke.as_view(), name="agent-enrol-revoke"),
    path(f"{_C}sources/agents/<str:name>/", agents.AgentPage.as_view(), name="agent"),
    path(f"{_C}sources/agents/<str:name>/budget/", agents.AgentBudget.as_view(), name="agent-budget"),
    path(f"{_C}sources/agents/<str:name>/budget/preview/", agents.BudgetPreview.as_view(), name="agent-budget-preview"),
    path(f"{_C}sources/agents/<str:name>/enable/", agents.AgentEnable.as_view(), name="agent-enable"),
    path(f"{_C}sources/agents/<str:name>/remove/", agents.AgentRemove.as_view(), name="agent-remove"),
    path(
        f"{_C}sources/agents/<str:name>/load-factors/<str:query>/", agents.AgentFactors.as_view(), name="agent-factors"
    ),
    path(
        f"{_C}sources/agents/<str:name>/load-factors/<str:query>/back/",
        agents.AgentGiveBack.as_view(),
        name="agent-give-back",
    ),
    path(f"{_C}sources/agents/<str:name>/method/<str:query>/", agents.AgentMethod.as_view(), name="agent-method"),
    path(f"{_C}sources/change/", agents.AgentsChange.as_view(), name="agents-change"),
    path(f"{_C}sources/schedule/", schedule.SchedulePage.as_view(), name="schedule"),
    path(f"{_C}sources/schedule/replay/", schedule.ScheduleReplay.as_view(), name="schedule-replay"),
    path(f"{_C}sources/schedule/switch/", schedule.ScheduleSwitchPage.as_view(), name="schedule-switch"),
    path(f"{_C}sources/configs/", configs.ConfigsPage.as_view(), name="configs"),
    path(f"{_C}sources/configs/new/", configs.ConfigNew.as_view(), name="config-new"),
    path(f"{_C}sources/configs/<int:number>/", configs.ConfigPage.as_view(), name="config"),
    path(f"{_C}sources/configs/<int:number>/start/", configs.ConfigStart.as_view(), name="config-start"),
    path(f"{_C}sources/rollouts/<int:pk>/<str:change>/", configs.RolloutChange.as_view(), name="rollout-change"),
    path(f"{_C}sources/state/", state.StatePage.as_view(), name="stream-state"),
    path(f"{_C}sources/state/read/", state.StateRead.as_view(), name="stream-state-read"),
    path(f"{_C}sources/history/", state.HistoryPage.as_view(), name="stream-history"),
    path(f"{_C}sources/history/run/", state.HistoryRun.as_view(), name="stream-history-run"),
    path(f"{_C}sources/rollout-policy/", configs.PolicyPage.as_view(), name="rollout-policy"),
    path(f"{_C}sources/new/source/", sources.SourceCrud.create_view(), name="source-new"),
    path(f"{_C}sources/collected/<str:source_id>/", sources.SourceCrud.change_view(), name="source"),
    path(f"{_C}sources/collected/<str:source_id>/delete/", sources.SourceCrud.delete_view(), name="source-delete"),
    path(f"{_C}sources/new/table/", sources.TableCrud.create_view(), name="static-table-new"),
    path(f"{_C}sources/tables/<str:name>/", sources.TableCrud.change_view(), name="static-table"),
    path(f"{_C}sources/tables/<str:name>/delete/", sources.TableCrud.delete_view(), name="static-table-delete"),
    # -- connections
    path(f"{_C}connections/", connections.ConnectionsPage.as_view(), name="connections"),
    path(f"{_C}connections/new/", connections.ConnectionNew.as_view(), name="connection-new"),
    path(f"{_C}connections/<int:pk>/", connections.ConnectionPage.as_view(), name="connection"),
    path(f"{_C}connections/<int:pk>/check/", connections.ConnectionCheck.as_view(), name="connection-check"),
    path(f"{_C}connections/<int:pk>/import/", connections.ConnectionImport.as_view(), name="connection-import"),
    path(f"{_C}connections/<int:pk>/refresh/", connections.ConnectionRefresh.as_view(), name="connection-refresh"),
    path(f"{_C}connections/<int:pk>/pause/", connections.ConnectionPause.as_view(), name="connection-pause"),
    path(f"{_C}connections/<int:pk>/resume/", connections.ConnectionResume.as_view(), name="connection-resume"),
    path(f"{_C}connections/<int:pk>/upload/", connections.ConnectionUpload.as_view(), name="connection-upload"),
    path(f"{_C}connections/<int:pk>/edit/", connections.ConnectionCrud.change_view(), name="connection-edit"),
    path(f"{_C}connections/<int:pk>/delete/", connections.ConnectionCrud.delete_view(), name="connection-delete"),
    # -- live
    path(f"{_C}queries/-/live/", live.LiveNew.as_view(), name="live-new"),
    path(f"{_C}queries/<str:name>/live/", live.LiveTab.as_view(), name="query-live"),
    path(f"{_C}queries/<str:name>/live/start/", live.LiveStart.as_view(), name="live-start"),
    path(f"{_C}queries/<str:name>/live/stop/", live.LiveStop.as_view(), name="live-stop"),
    path(f"{_C}queries/<str:name>/live/assign/", live.LiveAssign.as_view(), name="live-assign"),
    path(f"{_C}queries/<str:name>/live/rules/new/", live.AlertRuleCrud.create_view(), name="alert-rule-new"),
    path(f"{_C}queries/<str:name>/live/rules/<int:pk>/", live.AlertRuleCrud.change_view(), name="alert-rule"),
    path(
        f"{_C}queries/<str:name>/live/rules/<int:pk>/delete/",
        live.AlertRuleCrud.delete_view(),
        name="alert-rule-delete",
    ),
    path(
        f"{_C}queries/<str:name>/live/alerts/<int:pk>/acknowledge/",
        live.AlertAcknowledge.as_view(),
        name="alert-acknowledge",
    ),
    # -- accuracy
    path(f"{_C}accuracy/", accuracy.AccuracyPage.as_view(), name="accuracy"),
    path(f"{_C}accuracy/promises/", accuracy.PromisesPage.as_view(), name="promises"),
    path(f"{_C}accuracy/simulate/", accuracy.SimulateNow.as_view(), name="accuracy-simulate"),
    # -- predictions
    path(f"{_C}accuracy/model/", predictions.ModelPage.as_view(), name="prediction-model"),
    path(f"{_C}accuracy/model/fine-tune/", predictions.ModelTune.as_view(), name="prediction-model-tune"),
    path(
        f"{_C}accuracy/model/<int:pk>/put-in-force/", predictions.ModelPutInForce.as_view(), name="prediction-model-use"
    ),
    # -- backtests
    path(f"{_C}backtests/", backtests.BacktestsPage.as_view(), name="backtests"),
    path(f"{_C}backtests/new/", backtests.BacktestNow.as_view(), name="backtest-now"),
    path(f"{_C}backtests/<uuid:pk>/", backtests.BacktestPage.as_view(), name="backtest"),
    path(f"{_C}backtests/<uuid:pk>/delete/", backtests.BacktestCrud.delete_view(), name="backtest-delete"),
    # -- events
    path(f"{_C}events/", events.EventsPage.as_view(), name="events"),
    path(f"{_C}events/new/", events.EventCrud.create_view(), name="event-new"),
    path(f"{_C}events/<int:pk>/", events.EventPage.as_view(), name="event"),
    path(f"{_C}events/<int:pk>/ask/", events.EventAsk.as_view(), name="event-ask"),
    path(f"{_C}events/<int:pk>/checklist/", events.EventCheck.as_view(), name="event-check"),
    path(f"{_C}events/<int:pk>/change/", events.EventCrud.change_view(), name="event-edit"),
    path(f"{_C}events/<int:pk>/delete/", events.EventCrud.delete_view(), name="event-delete"),
    # -- jobs
    path("jobs/", jobs.JobsPage.as_view(), name="jobs"),
    path("jobs/menu/", jobs.JobsMenu.as_view(), name="jobs-menu"),
    path("jobs/<uuid:pk>/", jobs.JobPage.as_view(), name="job"),
    path("jobs/<uuid:pk>/progress/", jobs.JobProgress.as_view(), name="job-progress"),
    path("jobs/<uuid:pk>/cancel/", jobs.JobCancelView.as_view(), name="job-cancel"),
    # -- saved views
    path("views/", saved_views.SavedViewsPage.as_view(), name="saved-views"),
    path("views/new/", saved_views.SavedViewCrud.create_view(), name="saved-view-new"),
    path("views/default/", saved_views.SavedViewDefault.as_view(), name="saved-view-default"),
    path("views/<uuid:pk>/", saved_views.SavedViewCrud.change_view(), name="saved-view"),
    path("views/<uuid:pk>/delete/", saved_views.SavedViewCrud.delete_view(), name="saved-view-delete"),
    path("settings/operation/", operation.OperationPage.as_view(), name="operation"),
    # -- people
    path("settings/people/", people.PeoplePage.as_view(), name="people"),
    path("settings/people/<int:pk>/password/", people.PersonPassword.as_view(), name="person-password"),
    path("settings/people/<int:pk>/", people.PersonPage.as_view(), name="person"),
    path("settings/groups/", people.GroupsPage.as_view(), name="groups"),
    path("settings/groups/<int:pk>/", people.GroupPage.as_view(), name="group"),
    path("settings/groups/<int:pk>/delete/", people.GroupDelete.as_view(), name="group-delete"),
    path("settings/teams/", people.TeamsPage.as_view(), name="teams"),
    path("settings/teams/<int:pk>/", people.TeamPage.as_view(), name="team"),
    path("settings/teams/<int:pk>/delete/", people.TeamDelete.as_view(), name="team-delete"),
    path("settings/grants/", people.GrantNew.as_view(), name="grant-new"),
    path("settings/grants/<int:pk>/remove/", people.GrantRemove.as_view(), name="grant-remove"),
    # -- search
    path(f"{_C}search/", search.SearchPage.as_view(), name="search"),
    path(f"{_C}search/names/", names.NamesPart.as_view(), name="names"),
    path(f"{_C}search/suggestions/", search.SearchSuggestions.as_view(), name="search-suggestions"),
    # -- help
    path("help/", help_pages.HelpPage.as_view(), name="help"),
    path("help/docs/<path:path>", help_pages.GuidePage.as_view(), name="guide"),
    path("help/api/", help_pages.ApiPage.as_view(), name="api"),
]
