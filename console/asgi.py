"""HTTP and WebSockets for uvicorn: `uvicorn console.asgi:application`."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

# ruff: noqa: E402 - the order matters: apps are loaded before what imports their models
import django

django.setup(set_prefix=False)

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.urls import path
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from apps.accounts.middleware import caller_refusal
from apps.core.bodies import BodyLimit, CountedHandler
from apps.core.consumers import ChangesConsumer, SocketUserMiddleware
from apps.core.transactions import log_work_in_transactions
from apps.telemetry.configs import AgentConsumer
from console.env import ENV

log_work_in_transactions()
pages = AllowedHostsOriginValidator(SocketUserMiddleware(ChangesConsumer.as_asgi()))
agents = AgentConsumer.as_asgi()  # no browser: it has a secret instead of a session, and no origin
websocket = URLRouter([path("ws/", pages), path("ws/agents/", agents)])
http = BodyLimit(CountedHandler(), caller_refusal)
routed = ProtocolTypeRouter({"http": http, "websocket": websocket})
# where a request comes from is believed of the proxies that are configured alone: uvicorn itself, which would believe
# anybody on loopback, is started with --no-proxy-headers
application = ProxyHeadersMiddleware(routed, trusted_hosts=ENV.trusted_proxies) if ENV.trusted_proxies else routed
