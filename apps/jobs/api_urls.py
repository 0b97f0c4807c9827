from apps.core.api import Router
from apps.jobs.api import JobViewSet

router = Router()
router.register("jobs", JobViewSet, basename="job")
urlpatterns = router.urls
