"""Figures of this host, one record per interval: processor, memory, disk and network."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import psutil
import pyarrow as pa

from agent.collect import Collector, batch_of
from agent.collect.options import HostMetricsOptions

__all__ = ["HostMetrics"]


class HostMetrics(Collector):
    """Disk and network rates cover the time since the previous record; the first record has none yet and shows 0."""

    kind = "host_metrics"

    def __init__(self, name: str, schema: pa.Schema, time: str, options: HostMetricsOptions) -> None:
        super().__init__(name, schema)
        self._time = time
        self._interval_us = int(options.interval_s * 1e6)
        self._disk = options.disk
        self._host = options.host or socket.gethostname()
        self._next_us = 0
        self._seen_us = 0
        self._totals = self._counters()
        psutil.cpu_percent()  # the first call only begins its interval

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        self._seen_us = now_us
        if now_us < self._next_us:
            return []
        # on the grid of intervals, so that the number of records does not depend on when it is asked
        self._next_us = now_us - now_us % self._interval_us + self._interval_us
        self.state = "collecting"
        return self.given(batch_of(self.schema, {self._time: [now_us], **self._sample()}))

    def watermark_us(self) -> int:
        return self._seen_us

    def _sample(self) -> dict[str, list[Any]]:
        memory = psutil.virtual_memory()
        before, self._totals = self._totals, self._counters()
        grown = {name: [max(total - before[name], 0)] for name, total in self._totals.items()}
        return grown | {
            "host": [self._host],
            "cpu_percent": [psutil.cpu_percent()],
            "load_1": [psutil.getloadavg()[0]],
            "memory_percent": [memory.percent],
            "memory_used_bytes": [memory.used],
            "swap_percent": [psutil.swap_memory().percent],
            "disk_percent": [self._disk_percent()],
            "processes": [len(psutil.pids())],
        }

    def _disk_percent(self) -> float | None:
        try:
            percent = psutil.disk_usage(self._disk).percent
        except OSError as error:
            self.fault("disk", f"disk is {self._disk!r}: {error.strerror}")
            return None
        self.fault("disk", None)
        return percent

    @staticmethod
    def _counters() -> dict[str, int]:
        """Totals since the host started; a machine without disks or network (a container) has none."""
        disk, net = psutil.disk_io_counters(), psutil.net_io_counters()
        return {
            "disk_read_bytes": disk.read_bytes if disk else 0,
            "disk_write_bytes": disk.write_bytes if disk else 0,
            "net_in_bytes": net.bytes_recv if net else 0,
            "net_out_bytes": net.bytes_sent if net else 0,
        }
