"""SQL scripts for a running cluster, through its gateway: neither Flink's Python package nor its client is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

__all__ = ["SqlFailed", "submit_sql"]

_SET = re.compile(r"SET\s+'([^']+)'\s*=\s*'([^']*)'", re.IGNORECASE)
_END = re.compile(r";\s*(?:\n|$)")
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)


class SqlFailed(Exception):
    """Flink refused a statement; the message holds the statement and its words."""


def submit_sql(script: str, *, rest_port: int, gateway_port: int) -> Iterator[str]:
    """Run a script statement by statement; the id of each job once it has started, which goes on by itself.

    A statement ends with a semicolon at the end of a line. `SET 'name' = 'value'` sets an option for what follows.

    Raises
    ------
    SqlFailed
        Flink refused a statement; those before it have run, and their jobs go on.
    """
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=gateway_port, auto_convert=True))
    try:
        flink = gateway.jvm.org.apache.flink
        configuration = flink.configuration.Configuration()
        options = {
            "execution.target": "remote",
            "execution.attached": "false",
            "rest.address": "127.0.0.1",
            "rest.port": str(rest_port),
            "parallelism.default": "1",
        }
        for name, value in options.items():
            configuration.setString(name, value)
        settings = flink.table.api.EnvironmentSettings.newInstance().inStreamingMode()
        tables = flink.table.api.TableEnvironment.create(settings.withConfiguration(configuration).build())
        for statement in filter(None, (part.strip() for part in _END.split(_COMMENT.sub("", script)))):
            if match := _SET.fullmatch(statement):
                tables.getConfig().set(match[1], match[2])
                continue
            try:
                client = tables.executeSql(statement).getJobClient()
            except Py4JJavaError as error:
                raise SqlFailed(f"{statement}\n{_innermost(error)}") from error
            if client.isPresent():
                yield str(client.get().getJobID().toString())
    finally:
        gateway.close()


def _innermost(error: Py4JJavaError) -> str:
    """The last cause of a Java exception, which is the one that says what is wrong."""
    exception = error.java_exception
    while (cause := exception.getCause()) is not None:
        exception = cause
    return str(exception.toString())
