from apps.accounts.api import TokenViewSet
from apps.core.api import Router

router = Router()
router.register("tokens", TokenViewSet, basename="token")
urlpatterns = router.urls
