from django.urls import path

from apps.core.rest.api import Router
from apps.queries.api import ArrivalViewSet, ClusterDocumentView, QueryViewSet

router = Router()
router.register("queries", QueryViewSet, basename="query")
router.register("arrivals", ArrivalViewSet, basename="arrivals")
urlpatterns = [
    path("clusters/<str:slug>/document", ClusterDocumentView.as_view(), name="cluster-document"),
    *router.urls,
]
