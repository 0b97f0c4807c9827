"""Enrolment: the id and secret that the console gives an agent."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from agent import VERSION
from agent.settings import AgentSettings
from agent.uplink.client import Client, ConsoleUnreachable
from engine.backoff import Backoff
from engine.files import replace_file

__all__ = ["EnrolmentRefused", "Identity", "enrol", "known_identity", "wait_for_enrolment"]

log = logging.getLogger(__name__)

_FILE = "identity.json"
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.5, 15.0
_DEFAULT_CPS = 2.5e9  # where the processor's clock rate is unknown


class EnrolmentRefused(Exception):
    """The console does not want this agent, and trying again would not change that."""


@dataclass(frozen=True)
class Identity:
    """Id and secret of this agent at the console."""

    agent: str
    secret: str
    cluster: str
    heartbeat_s: float = 2.0


def known_identity(settings: AgentSettings) -> Identity | None:
    """The identity of an earlier enrolment, or the settings' own."""
    if settings.secret:
        return Identity(settings.agent, settings.secret, "")
    try:
        return Identity(**json.loads((settings.state_dir / _FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def wait_for_enrolment(settings: AgentSettings, stopping: threading.Event) -> Identity | None:
    """The agent's identity; enrols at the first start, with retries while there is no answer. None when stopped before.

    Raises
    ------
    Refused
        There is no token, or the console does not take it.
    """
    backoff = Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S)
    while not stopping.is_set():
        if (identity := known_identity(settings)) is not None:
            return identity
        try:
            return enrol(settings)
        except ConsoleUnreachable as away:
            pause_s = backoff.next_s()
            log.warning("not enrolled yet: %s; trying again in %.0f s", away, pause_s)
            stopping.wait(pause_s)
    return None


def enrol(settings: AgentSettings) -> Identity:
    """Enrol with the settings' token and store the identity. One that is known already shows its present secret.

    Raises
    ------
    Away
        Nobody answers, or the console is busy.
    Refused
        There is no token, or the console does not take it.
    """
    client = Client(settings.url, ca_file=settings.ca_file)
    facts = {"host": socket.gethostname(), "version": VERSION, "cores": os.cpu_count() or 1, "capacity_cps": _cps()}
    known = known_identity(settings)
    shown = {"old_secret": known.secret} if known is not None else {}
    try:
        answer = client.enrol({"token": _token(settings), "name": settings.name, **shown, **facts})
    finally:
        client.close()
    if answer.status == 429 or answer.status >= 500:
        raise ConsoleUnreachable(answer.message)
    if answer.status != 201:
        raise EnrolmentRefused(f"{settings.url} does not enrol {settings.name!r}: {answer.message}")
    says = answer.document
    try:
        identity = Identity(says["agent"], says["secret"], says["cluster"], float(says.get("heartbeat_s", 2.0)))
    except (KeyError, TypeError, ValueError):
        raise EnrolmentRefused(f"{settings.url} answers as no console does: {sorted(says)}") from None
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(settings.state_dir / _FILE, json.dumps(asdict(identity)).encode())
    log.info("enrolled as %r in cluster %r", settings.name, identity.cluster)
    return identity


def _token(settings: AgentSettings) -> str:
    if settings.token:
        return settings.token
    if settings.token_file is None:
        raise EnrolmentRefused(
            "token is missing: make one on the console's page Sources and give it as token or token_file"
        )
    try:
        token = Path(settings.token_file).read_text().strip()
    except OSError as error:
        raise EnrolmentRefused(f"token_file is {str(settings.token_file)!r}: {error.strerror}") from None
    if not token:
        raise EnrolmentRefused(f"token_file is {str(settings.token_file)!r}: it is empty")
    return token


def _cps() -> float:
    """Cycles per second of one core."""
    try:
        clock = psutil.cpu_freq()
    except (OSError, RuntimeError, NotImplementedError):
        clock = None
    mhz = (clock.max or clock.current) if clock else 0.0
    return mhz * 1e6 if mhz > 0 else _DEFAULT_CPS
