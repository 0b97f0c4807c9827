"""Creating, changing and deleting a cluster."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.core.errors import Conflict
from apps.fleet.services import cluster_create, cluster_delete, cluster_update
from apps.pages.base import ClusterPage, Page, done, try_service
from apps.pages.forms import ClusterForm
from apps.ui.feedback import toast

__all__ = ["EXAMPLE", "ClusterDelete", "ClusterEdit", "ClusterNew"]

#: Body of the example call.
EXAMPLE = {"slug": "eu-1", "name": "EU 1", "environment": "prod", "subinterval_s": 1, "horizon_s": 3600}


class ClusterNew(Page):
    """`/clusters/new/`"""

    template_name = "pages/fleet/cluster_form.html"
    scope = "operate"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.page({"form": ClusterForm(initial={"time_zone": request.user.time_zone}), "example": EXAMPLE})

    def post(self, request: HttpRequest) -> HttpResponse:
        form = ClusterForm(request.POST)
        if form.is_valid():
            cluster, ok = try_service(form, lambda: cluster_create(**form.cleaned_data))
            if ok:
                return done(request, f"{cluster.name} is registered. Add its nodes next.", "pages:fleet", cluster.slug)
        return self.page({"form": form, "example": EXAMPLE}, 422)


class ClusterEdit(ClusterPage):
    """`/c/<slug>/settings/`"""

    template_name = "pages/fleet/cluster_form.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.page({"form": ClusterForm(instance=self.cluster), "editing": True})

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = ClusterForm(request.POST, instance=self.cluster)
        if form.is_valid():
            _, ok = try_service(form, lambda: cluster_update(cluster=self.cluster, **form.cleaned_data))
            if ok:
                return done(request, f"{self.cluster.name}: settings saved.", "pages:cluster-edit", slug)
            self.cluster.refresh_from_db()
        return self.page({"form": form, "editing": True}, 422)


class ClusterDelete(ClusterPage):
    """POST: delete the cluster with everything in it; its name has to be typed."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        if request.POST.get("confirm", "").strip() != slug:
            raise Conflict(f"To delete the cluster, type its address part {slug!r}.")
        cluster_delete(cluster=self.cluster)
        request.session.pop("cluster", None)
        toast(request, f"{self.cluster.name} is deleted.")
        return redirect("pages:home")
