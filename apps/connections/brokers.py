"""Questions to a Kafka by its own protocol: committed offsets of consumer groups, ends of partitions, who is gone.

Every address that is connected to is checked, also those that brokers name themselves.
"""

from __future__ import annotations

import json
import logging
import re
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from socket import AI_NUMERICHOST, SOCK_STREAM, create_connection, getaddrinfo
from socket import socket as Socket  # noqa: N812 - a class; the library calls a method by its name
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import (
    AuthorizationError,
    KafkaConfigurationError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kafka.net import KafkaNetSocket
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.structs import TopicPartition

from apps.connections.broker_addresses import BrokerAddress
from apps.connections.transport import (
    ALLOWED_ADDRESSES,
    MAX_ANSWER_BYTES,
    MAX_DURATION_S,
    EngineAway,
    EngineClient,
    EngineRefused,
    PathMissing,
    is_allowed,
    ssl_context,
)
from apps.core.addresses import PrivateAddress, UnknownHost, resolve_host
from apps.core.errors import Fault

__all__ = ["MAX_GROUPS", "MAX_TOPICS", "BrokerClient"]

MAX_GROUPS = 1000  #: that are asked about where a connection names none
MAX_TOPICS = 1000  #: whose ends are told, those that a group commits to first
_CONNECT_S, _ANSWER_S = 5.0, 8.0
_REFUSALS = (AuthorizationError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError)
_LATEST, _EARLIEST = -1, -2  # of ListOffsets

# It writes its settings, with the password, at the level of debugging; its faults are told by a connection's state.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

T = TypeVar("T")


class _CheckedSocket(KafkaNetSocket):  # type: ignore[misc]  # the library has no types
    """Connects to addresses that may be asked alone, whoever names the host."""

    SCHEMES = ("checked",)

    def dns_lookup(self, host: str, port: int, raise_error: bool = False) -> list[Any]:
        """The one address that was checked; none where the name leads nowhere."""
        try:
            address = resolve_host(host, port, is_allowed(host))
        except UnknownHost:
            return []
        except PrivateAddress as error:
            raise EngineRefused("private_address", f"{error}; allowed: {ALLOWED_ADDRESSES}") from None
        return getaddrinfo(address, port, type=SOCK_STREAM, flags=AI_NUMERICHOST)

    def socket(self, *arguments: Any) -> Socket:
        """A socket, which is closed where it does not connect."""
        self._made: Socket = super().socket(*arguments)
        return self._made

    async def connect(self, *arguments: Any, **options: Any) -> Socket:
        """Connect, as the library does."""
        try:
            return await super().connect(*arguments, **options)  # type: ignore[no-any-return]
        except BaseException:
            self._made.close()
            raise


class _Connections(KafkaConnectionManager):  # type: ignore[misc]
    """Connections to brokers that end at the first refusal: the library keeps trying until its time is over."""

    refusal: Exception | None = None

    def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """The connection to a broker, or the refusal of before."""
        if self.refusal is not None:
            raise self.refusal
        connection = super().get_connection(*arguments, **options)
        connection.init_future.add_errback(self._note)
        return connection

    def _note(self, fault: Exception) -> None:
        if isinstance(fault, (EngineRefused, *_REFUSALS)):
            self.refusal = fault


class BrokerClient(EngineClient):
    """Client of a Kafka, used as that of any engine: the answer to the empty path is what its groups have.

    `groups`: names of those that are wanted; all that there are unless given.
    """

    def __init__(
        self, url: str, *, token: str = "", verify_tls: bool = True, ca_pem: str = "", groups: Sequence[str] = ()
    ) -> None:
        super().__init__(url)  # of the counters and the readers of text and JSON; nothing is asked over HTTP
        faults: list[Fault] = []
        address = BrokerAddress.parse(url, "url", faults)
        if address is None:
            raise EngineRefused("wrong_answer", "; ".join(fault.message for fault in faults))
        self.host = ", ".join(f"{host}:{port}" for host, port in address.servers)
        self._address, self._password, self._groups = address, token, tuple(groups)
        self._context = ssl_context(verify_tls, ca_pem)

    def _get(self, path: str, params: object = None) -> tuple[bytes, str]:
        if path:
            raise PathMissing(f"{self.host} is a Kafka: it has no {path[:200]}")
        began = time.monotonic()
        self.requests += 1
        try:
            self._try_servers()
            answer = self._ask(began + MAX_DURATION_S)
        finally:
            self.seconds += time.monotonic() - began
        body = json.dumps(answer).encode()
        self.bytes += len(body)
        return body, "application/json"

    def _try_servers(self) -> None:
        """Reach one server, so that a fault has its cause: the library keeps trying and tells none."""
        faults: list[Exception] = []
        for host, port in self._address.servers:
            try:
                address = resolve_host(host, port, is_allowed(host))
                with create_connection((address, port), _CONNECT_S) as plain:
                    if self._address.has_tls:
                        self._context.wrap_socket(plain, server_hostname=host).close()
                return
            except PrivateAddress as error:
                raise EngineRefused("private_address", f"{error}; allowed: {ALLOWED_ADDRESSES}") from None
            except UnknownHost as error:
                faults.append(EngineAway(str(error)))
            except ssl.SSLCertVerificationError as error:
                message = f"the certificate of {host} is not trusted: {error.verify_message}"
                faults.append(EngineRefused("tls", message))
            except ssl.SSLError as error:
                faults.append(EngineRefused("tls", f"{host} speaks no TLS that fits: {error.reason or error}"))
            except OSError as error:
                faults.append(EngineAway(f"{host}:{port} does not answer: {error.strerror or error}"))
        raise next((fault for fault in faults if isinstance(fault, EngineRefused)), faults[-1])

    def _ask(self, until: float) -> dict[str, Any]:
        made: list[KafkaNetClient] = []

        def make(**settings: Any) -> KafkaNetClient:
            net = NetworkSelector(**settings)
            made.append(KafkaNetClient(net, _Connections(net, **settings), **settings))
            return made[0]

        try:
            admin = KafkaAdminClient(kafka_client=make, proxy_url="checked://", **self._settings())
            try:
                return _GroupQuestions(admin, until).answer(self._groups)
            finally:
                admin.close()
        except (EngineAway, EngineRefused):
            raise
        except _REFUSALS as error:
            who = f"the user {self._address.user!r}" if self._address.user else "one without a user"
            raise EngineRefused("unauthorised", f"{self.host} refuses {who}: {_words(error)}") from None
        except KafkaConfigurationError as error:
            raise EngineRefused("wrong_answer", f"{self.host} cannot be asked: {error}") from None
        except KafkaError as error:
            raise EngineAway(f"{self.host} does not answer as a Kafka: {_words(error)}{self._hint()}") from None
        except Exception as error:
            message = f"{self.host} answers what is no Kafka's: {type(error).__name__}"
            raise EngineRefused("wrong_answer", message) from None
        finally:
            for client in made:  # the library leaves its thread behind where it cannot begin
                client.close()
                client._net.close()

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap_servers": [f"{f'[{h}]' if ':' in h else h}:{port}" for h, port in self._address.servers],
            "client_id": "sluice",
            "bootstrap_timeout_ms": int(_ANSWER_S * 1000),
            "request_timeout_ms": int(_ANSWER_S * 1000),
            "reconnect_backoff_max_ms": 1000,
            "receive_message_max_bytes": MAX_ANSWER_BYTES,
            "security_protocol": self._address.protocol,
        }
        if self._address.has_tls:
            settings["ssl_context"] = self._context
        if self._address.mechanism:
            settings |= {
                "sasl_mechanism": self._address.mechanism,
                "sasl_plain_username": self._address.user,
                "sasl_plain_password": self._password,
            }
        return settings

    def _hint(self) -> str:
        if self._address.has_tls and self._address.mechanism:
            return ""
        missing = [] if self._address.has_tls else ["TLS (kafka+ssl://)"]
        missing += [] if self._address.mechanism else ["a user (SASL)"]
        return f"; it may want {' or '.join(missing)}"


class _GroupQuestions:
    """Questions about groups within a time; what is not answered has its reason in place of a number."""

    def __init__(self, admin: KafkaAdminClient, until: float) -> None:
        self._admin, self._until = admin, until

    def answer(self, wanted: Sequence[str]) -> dict[str, Any]:
        """Answer as the connectors read it. Commits are asked before ends, so that none is beyond its end.

        Topics that no group commits to are told as well, as a job may read without one.
        """
        listed = {str(row["group_id"]): str(row.get("group_state") or "") for row in self._admin.list_groups()}
        names = list(wanted) if wanted else sorted(listed)[:MAX_GROUPS]
        known = [name for name in names if name in listed]
        commits, refused = self._in_parts(known, lambda part: self._admin.list_group_offsets(list(part)))
        committed = sorted({place.topic for places in commits.values() for place in places})
        topics = [*committed, *self._other_topics(committed)[: max(0, MAX_TOPICS - len(committed))]]
        described, untold = self._in_parts(topics, self._topics)
        places = [place for topic in topics for place in described.get(topic, ())]
        ends, unread = self._in_parts(places, lambda part: self._offsets(part, _LATEST))
        at_s = time.time()
        unread |= {place: untold[place.topic] for group in commits.values() for place in group if place.topic in untold}
        open_places = {
            place
            for group in commits.values()
            for topic in {place.topic for place in group}
            for place in described.get(topic, ())
            if _commit(group, place) is None
        }
        begins, _ = self._in_parts(sorted(open_places), lambda part: self._offsets(part, _EARLIEST))
        rows = [
            {
                "group": name,
                "state": listed[name],
                "error": refused.get(name),
                "partitions": [
                    {
                        "topic": place.topic,
                        "partition": place.partition,
                        "committed": _commit(commits.get(name, {}), place),
                        "begin": begins.get(place),
                        "end": ends.get(place),
                        "error": unread.get(place) or (None if place in ends else "the topic has no such partition"),
                    }
                    for place in _places_of(commits.get(name, {}), described)
                ],
            }
            for name in known
        ]
        unknown = [name for name in names if name not in listed]
        ends_by_topic: dict[str, dict[str, int]] = {}
        for place, end in ends.items():
            ends_by_topic.setdefault(place.topic, {})[str(place.partition)] = end
        return {
            "consumer_groups": rows,
            "unknown": unknown,
            "left_out": 0 if wanted else len(listed) - len(names),
            "at_s": at_s,
            "topics": ends_by_topic,
        }

    def _other_topics(self, committed: Sequence[str]) -> list[str]:
        """Topics besides those committed to, without Kafka's own; none where listing them is refused."""
        with suppress(KafkaError):
            return sorted(name for name in self._admin.list_topics() if name not in committed and name[:2] != "__")
        return []

    def _topics(self, names: Sequence[str]) -> dict[str, list[TopicPartition]]:
        rows = {str(row["name"]): row for row in self._admin.describe_topics(list(names))}
        return {
            name: [TopicPartition(name, int(part["partition_index"])) for part in rows[name].get("partitions", ())]
            for name in names
            if name in rows
        }

    def _offsets(self, places: Sequence[TopicPartition], which: int) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(places, which)
        answers = self._admin.list_partition_offsets(wanted, timeout_ms=2000)
        return {place: int(found.offset) for place, found in answers.items() if found.offset >= 0}

    def _in_parts(
        self, items: Iterable[T], ask: Callable[[Sequence[T]], dict[Any, Any]]
    ) -> tuple[dict[T, Any], dict[T, str]]:
        """Answers by item, and reasons of those that have none: after a fault each half is asked by itself."""
        answers: dict[T, Any] = {}
        reasons: dict[T, str] = {}
        parts = [list(items)]
        while parts:
            part = parts.pop()
            if not part:
                continue
            if time.monotonic() > self._until:
                reasons |= dict.fromkeys(part, f"not told within {MAX_DURATION_S:g} s")
                continue
            try:
                answers |= ask(part)
            except KafkaError as error:
                if len(part) == 1:
                    reasons[part[0]] = _words(error)
                else:
                    parts += [part[: len(part) // 2], part[len(part) // 2 :]]
        return answers, reasons


def _words(error: KafkaError) -> str:
    """A fault without the answer that the library quotes."""
    name = type(error).__name__.removesuffix("Error")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def _commit(commits: dict[TopicPartition, Any], place: TopicPartition) -> int | None:
    found = commits.get(place)
    return int(found.offset) if found is not None and found.offset >= 0 else None


def _places_of(commits: dict[TopicPartition, Any], described: dict[str, list[TopicPartition]]) -> list[TopicPartition]:
    """All partitions of topics that a group commits to; those that are gone as well."""
    topics = {place.topic for place in commits}
    return sorted({*commits, *(place for topic in topics for place in described.get(topic, ()))})
