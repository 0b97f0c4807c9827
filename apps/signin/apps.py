"""Sign-in as an app of Django."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig

__all__ = ["SignInConfig"]


class SignInConfig(AppConfig):
    """Has every session note where and when it began, however it begins."""

    name = "apps.signin"

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_in

        user_logged_in.connect(_note, dispatch_uid="apps.signin")


def _note(sender: object, request: Any, **_: object) -> None:
    from apps.signin.sessions import SignInWay, session_note

    session_note(request, SignInWay.PASSWORD)
