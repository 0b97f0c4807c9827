"""Jobs of the DataStream API, by kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["JOBS", "SOURCE", "StreamJob"]

_PAD_BYTES = 1000  # of an event, so that buffers of the network hold few of them and saturation is there at once
_WATERMARK_MS = 100
_SOURCES = ("arrivals", "arrivals2", "arrivals3")

SOURCE = Path(__file__).with_name("FlinkJobs.java")


@dataclass(frozen=True, slots=True)
class StreamJob:
    """A job: its kind, work of its operators in microseconds, and rates of its sources under the light load.

    Attributes
    ----------
    rates : tuple of int
        Events per second of each source; the first is the main stream.
    statistics : tuple of str
        Of its latencies, which are scored.
    note : str
        What no counter of Flink tells of it.
    """

    kind: str
    micros: tuple[int, ...]
    rates: tuple[int, ...] = (25,)
    keys: int = 100
    statistics: tuple[str, ...] = ("q0.99", "mean")
    settings: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def arguments(
        self, times: int, parallelism: int, *, work: str, out: Path, start_s: float, seconds: int
    ) -> list[str]:
        """Arguments that start it under a multiple of the light load for so many seconds from a moment on."""
        options = {
            "kind": self.kind,
            "name": self.kind,
            "out": str(out),
            "work": "cpu" if work == "compute" else work,
            "micros": ",".join(map(str, self.micros)),
            "parallelism": str(parallelism),
            "start": str(int(start_s * 1000)),
            "pad": str(_PAD_BYTES),
            "keys": str(self.keys),
            "delay": str(_WATERMARK_MS),
            "seed": str(times),
        }
        for name, rate in zip(_SOURCES, self.rates, strict=False):
            options[name] = ",".join([str(rate * times)] * seconds)
        return [f"{name}={value}" for name, value in options.items()]


_JOBS = (
    StreamJob("side-outputs", (2000, 500, 500)),
    StreamJob("async", (500,), note="ten lookups of 20 ms at once, in which no thread is busy, allow 500 events/s"),
    StreamJob(
        "union",
        (1000,),
        (25, 25, 25),
        settings={"execution.checkpointing.unaligned.enabled": "true", "execution.checkpointing.interval": "10s"},
    ),
    StreamJob("broadcast", (4000,), (25, 2)),
    StreamJob("pattern", (2000,), keys=20, note="events wait for the watermark, 100 ms and up to 200 ms"),
    StreamJob("timers", (2000,), note="events wait for a timer, up to 1 s, as the function's code says"),
    StreamJob("connected", (2000,), (25, 5)),
)
#: Iterations are not among them: Flink 2 has none in its DataStream API.
JOBS = {job.kind: job for job in _JOBS}
