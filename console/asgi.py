"""HTTP and WebSockets for uvicorn: `uvicorn console.asgi:application`."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

# ruff: noqa: E402 - the order matters: apps are loaded before what imports their models
from django.core.asgi import get_asgi_application

http = get_asgi_application()

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.urls import path

from apps.core.consumers import ChangesConsumer
from apps.core.middleware import BodyLimit
from apps.telemetry.push import AgentConsumer

pages = AllowedHostsOriginValidator(AuthMiddlewareStack(ChangesConsumer.as_asgi()))
agents = AgentConsumer.as_asgi()  # no browser: it has a secret instead of a session, and no origin
websocket = URLRouter([path("ws/", pages), path("ws/agents/", agents)])
application = ProtocolTypeRouter({"http": BodyLimit(http), "websocket": websocket})
