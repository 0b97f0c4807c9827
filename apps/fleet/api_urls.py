from apps.core.api import Router
from apps.fleet.api import ClusterViewSet, LinkViewSet, NodeViewSet, PoolViewSet

router = Router()
router.register("clusters", ClusterViewSet, basename="cluster")
router.register("node-pools", PoolViewSet, basename="node-pool")
router.register("nodes", NodeViewSet, basename="node")
router.register("links", LinkViewSet, basename="link")
urlpatterns = router.urls
