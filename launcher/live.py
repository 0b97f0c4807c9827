"""The live loop of one machine: the stream processor and the agents whose files lie in the var directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from launcher import java, processes
from launcher.output import Console
from launcher.places import var_dir
from launcher.runner import Runner, StartFailed

__all__ = ["start_live"]


def start_live(runner: Runner, console: Console, *, url: str, env: Mapping[str, str]) -> None:
    """Start what watches and what computes, without waiting: the console is of use before, and says what is not ready.

    Whatever is missing here leaves a console without live queries, never none.
    """
    env = {**env, "SLUICE_URL": url}
    found = java.find_java(var_dir())
    if found is None:
        console.failure("no Java 17 or later: the stream processor stays away; ./sluice doctor says how to mend it")
    elif (token := _stream_token(runner, console, env)) is not None:
        more = {"SLUICE_STREAM_TOKEN": token, "JAVA_HOME": str(found.home)}
        runner.launch(processes.stream({**env, **more}))
    for config in sorted((var_dir() / "agents").glob("*/agent.toml")):
        runner.launch(processes.agent(config, env))


def _stream_token(runner: Runner, console: Console, env: Mapping[str, str]) -> str | None:
    """The token the stream processor speaks with: one from outside, or one of this installation's own."""
    if given := os.environ.get("SLUICE_STREAM_TOKEN"):
        return given
    path = Path(var_dir() / "run" / "stream.token")
    try:
        runner.run_to_end(processes.manage("token", "stream_token", "--file", str(path), env=env))
        return path.read_text().strip()
    except (StartFailed, OSError) as failure:
        console.failure(f"{failure}\n  Going on without the stream processor.")
        return None
