"""What an agent says to people: in its log, and where `./sluice agent status` is asked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent.config import AgentConfig
from agent.files import InUse, hold

__all__ = ["config_words", "running", "words"]


def running(folder: Path) -> bool:
    """Whether an agent holds the state folder now."""
    try:
        os.close(hold(folder))
    except InUse:
        return True
    except OSError:
        return False
    return False


def words(says: Mapping[str, Any], *, alive: bool) -> Iterator[str]:
    """The status file as lines for people."""
    age_s = time.time() - says["time"]
    state = f"runs, process {says['pid']}" if alive else f"does not run; this is how it was {age_s:,.0f} s ago"
    yield f"{says['name']} ({says['kind']} {says['version']}) {state}"
    if "console" in says:
        told = "tells of changes at once" if says["console"].get("push") == "connected" else says["console"]["fault"]
        yield f"  console     {says['console']['state']}  {says['url']}  {told}".rstrip()
    yield f"  uses        {says['cpu_cores']:.3f} of {says['budget_cores']:g} cores, {_mib(says['rss_bytes'])} MiB"
    spool = says["spool"]
    held = f"{_mib(spool['bytes'])} of {_mib(spool['limit_bytes'])} MiB, {spool['frames']:,} frames to send"
    yield f"  spool       {spool['state']}  {held}"
    if says["sender"]:
        yield f"  frames      {says['sender']['state']}  sent {says['sent_seq']:,}, taken {says['acked_seq']:,}"
    yield f"  config      version {says['config_version']}"
    for one in says["collectors"]:
        counts = f"{one['records']:,} records, {one['shed']:,} shed"
        yield f"  collector   {one['source']} ({one['kind']}) {one['state']}  {counts}"
        yield from (f"              {text}" for text in (*one.get("counted", ()), *one["faults"]))
    for one in says["queries"]:
        factors = " ".join(f"{factor:.3g}" for factor in one["load_factors"])
        yield f"  query       {one['query']} {one['state']}  load factors {factors}"
        if "adapting" in one:
            by = f" by {one['refined']['config']}" if one["refined"] else ""
            yield f"              {one['adapting']}{by}: {one['reason']}"
        yield from (f"              {text}" for text in one["faults"])
    yield from (f"  fault       {text}" for text in says["faults"])


def config_words(config: AgentConfig) -> str:
    """A configuration in a line of the log."""
    if config.relay is not None:
        return f"relay of {len(config.relay.children)} agents on {config.relay.listen[0]}:{config.relay.listen[1]}"
    sources = ", ".join(f"{source.name} ({source.kind})" for source in config.sources.values()) or "no sources"
    queries = ", ".join(query.query for query in config.queries) or "no queries"
    return f"{sources}; {queries}; {config.budget_cores:g} cores"


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:,.0f}"
