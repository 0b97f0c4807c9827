"""Servers of mail and webhooks for what alerts tell."""

from __future__ import annotations

from tests.apps.receivers import closed_port, hook, mailbox

__all__ = ["closed_port", "hook", "mailbox"]
