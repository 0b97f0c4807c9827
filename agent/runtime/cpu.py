"""CPU budget: time granted, time used by the process, and the cost of each operator."""

from __future__ import annotations

import os
from pathlib import Path

from agent.runtime.interface import Clock

__all__ = ["CpuBudget", "OperatorCost", "quota_cores", "records_within"]

FORGETTING = 0.9  # of older observations, with each new one
UNKNOWN_CHUNK = 1000  # records of an operator's first run
WORTH_NS = 2_000_000  # a run of so long is worth its call, whose price is a few hundred microseconds
WORTH_RECORDS = 16_384  # as are so many records, however cheap they are
REPAID_SHARE = 0.1  # of an epoch's grant at most, for what was used too much before
REPAID_EPOCHS = 8  # over which that is spread
USUAL_EPOCHS = 8  # that overhead is averaged over: every few of them begin a segment of the spool
PACE_FORGETTING = 0.98  # of how fast operators ran, with each sub-epoch
TOLD_PACE_NS = 20_000_000  # on the clock; shorter runs say too little of the host's pace


def quota_cores(cgroups: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")) -> float:
    """Cores that this process may use: its control groups' least quota, or the CPUs it may run on."""
    quotas = [float(len(os.sched_getaffinity(0)))]
    try:
        lines = process.read_text().splitlines()
    except OSError:
        return quotas[0]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroups / controllers if controllers else cgroups
        if controllers and not root.is_dir():
            root = cgroups / "cpu"
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            quotas += _quota(folder)
            if folder == root:
                break
    return min(quotas)


def _quota(folder: Path) -> list[float]:
    """The quota set on one control group, version 2 or 1; nothing where none is."""
    try:
        if (v2 := folder / "cpu.max").is_file():
            most, period = v2.read_text().split()
        else:
            most, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return [] if most in ("max", "-1") else [int(most) / int(period)]
    except (OSError, ValueError):
        return []


class OperatorCost:
    """CPU time of a run as ``fixed + per_record * records``, from recent runs (least squares, older ones forgotten)."""

    def __init__(self) -> None:
        self._w = self._n = self._nn = self._t = self._nt = 0.0
        self._doubt = 1.0

    def observe(self, records: int, cpu_ns: int) -> None:
        sums = (1.0, records, records * records, cpu_ns, records * cpu_ns)
        old = (self._w, self._n, self._nn, self._t, self._nt)
        self._w, self._n, self._nn, self._t, self._nt = (FORGETTING * a + b for a, b in zip(old, sums, strict=True))
        self._doubt = 1.0

    def doubt(self) -> None:
        """It was thought too dear to run for a whole epoch: think less of that, or it never runs again."""
        self._doubt /= 2

    def records_within(self, cpu_ns: float) -> int:
        """Estimated number of records in a run of `cpu_ns`."""
        if not self._w:
            return UNKNOWN_CHUNK if cpu_ns > 0 else 0
        return records_within(cpu_ns, *self.believed())

    def believed(self) -> tuple[float, float]:
        """CPU time of a run and of each record in it, as far as that is not doubted; 0 while nothing is known."""
        fixed, per_record = self._line() if self._w else (0.0, 0.0)
        return self._doubt * fixed, self._doubt * per_record

    @property
    def known(self) -> bool:
        """It has run."""
        return self._w > 0

    @property
    def record_ns(self) -> float:
        """CPU time of a record among many; 0 while nothing is known."""
        return self._line()[1] if self._w else 0.0

    def run_ns(self, records: int) -> float:
        """Estimated CPU time of a run over so many records."""
        fixed, per_record = self._line() if self._w else (0.0, 0.0)
        return fixed + per_record * records if records else 0.0

    def worth_a_run(self) -> int:
        """Number of records that make a run worthwhile: 1 while the cost is still to be measured, many where the
        call itself is expensive.
        """
        if not self._w:
            return 1
        if self._line()[0] >= WORTH_NS:
            return WORTH_RECORDS
        return min(max(self.records_within(WORTH_NS), 1), WORTH_RECORDS)

    def _line(self) -> tuple[float, float]:
        spread = self._w * self._nn - self._n * self._n
        ratio = self._t / self._n
        if spread <= 1e-6 * self._w * self._nn:
            return 0.0, ratio
        slope = (self._w * self._nt - self._n * self._t) / spread
        fixed = (self._t - slope * self._n) / self._w
        if slope <= 0:
            return 0.0, ratio
        return (fixed, slope) if fixed > 0 else (0.0, ratio)


def records_within(cpu_ns: float, fixed_ns: float, record_ns: float) -> int:
    """Number of records that fit, given the cost of a run and of each record."""
    return int((cpu_ns - fixed_ns) / max(record_ns, 1e-3)) if cpu_ns > fixed_ns else 0


class CpuBudget:
    """CPU time that operators may still use in an epoch, granted evenly over it.

    Everything the process uses counts, in all threads: collecting, framing, sending, and what an epoch used too much
    is owed by the next ones: one epoch's grant at most, and of each a part, so that a single stall starves none.

    What the process takes beside operators comes and goes with what is collected and sent. An epoch is planned with
    what it takes on average, or a small budget's operators would be starved and idle by turns; what it takes more is
    owed. Only more than twice as much counts at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ns = clock.process_cpu_ns()
        self._closed_ns: int | None = None  # CPU time at which the epoch's operators had run
        self._owed_ns = self._due_ns = 0.0  # in all, and by this epoch
        self._tail_ns = 0.0
        self._overhead_ns: float | None = None  # beside operators, until they have run; None before the first epoch
        self._chance_ns = 0.0  # time on the clock in which operators of this epoch might have run
        self._ran_ns = self._took_ns = 0.0  # CPU time of operators lately, and time on the clock
        self.granted_ns = float("inf")  # whatever it took to start
        self.used_ns = 0.0

    def begin(self, granted_ns: float) -> None:
        """Begin an epoch; the use of the last one, up to now, is settled."""
        now_ns = self._clock.process_cpu_ns()
        self.used_ns = float(now_ns - self._began_ns)
        owed_ns = self._owed_ns + self.used_ns - self.granted_ns
        self._owed_ns = min(max(owed_ns, 0.0), granted_ns)
        self._due_ns = min(self._owed_ns / REPAID_EPOCHS, REPAID_SHARE * granted_ns)
        if self._closed_ns is not None:
            self._tail_ns += (now_ns - self._closed_ns - self._tail_ns) / USUAL_EPOCHS
        self._began_ns, self._closed_ns, self.granted_ns, self._chance_ns = now_ns, None, granted_ns, 0.0

    def left_ns(self, share: float, operators_ns: float) -> float:
        """Time left of the epoch's grant up to this `share` of it, after the use of its operators and of the rest of
        the process.
        """
        overhead_ns = self._overhead_by(operators_ns, share)
        return (self.granted_ns - self._due_ns - self._tail_ns) * share - overhead_ns - operators_ns

    def _overhead_by(self, operators_ns: float, share: float) -> float:
        """Overhead to expect up to this `share` of the epoch."""
        seen_ns = max(self._clock.process_cpu_ns() - self._began_ns - operators_ns, 0.0)
        usual_ns = seen_ns if self._overhead_ns is None else self._overhead_ns
        return max(usual_ns * share, seen_ns - usual_ns)

    def had_chance(self, chance_ns: float, took_ns: float, ran_ns: float) -> None:
        """There was `chance_ns` on the clock for operators; they ran for `took_ns` and got `ran_ns` of CPU time."""
        self._chance_ns += max(chance_ns, 0.0)
        self._took_ns = PACE_FORGETTING * self._took_ns + took_ns
        self._ran_ns = PACE_FORGETTING * self._ran_ns + ran_ns

    def close(self, operators_ns: float, epoch_ns: float) -> float:
        """The epoch's operators have run; the CPU time that they could have had.

        It is what was granted less what was owed, what everything else in the process takes and what closing an epoch
        takes. And it is at most what one thread gets in the time there was: on a host with more to do, or with a quota
        that is used up, that is less than the clock says.
        """
        self._closed_ns = self._clock.process_cpu_ns()
        free_ns = self.left_ns(1.0, operators_ns) + operators_ns
        overhead_ns = max(self._closed_ns - self._began_ns - operators_ns, 0.0)
        usual_ns = overhead_ns if self._overhead_ns is None else self._overhead_ns
        self._overhead_ns = usual_ns + (overhead_ns - usual_ns) / USUAL_EPOCHS
        pace = min(self._ran_ns / self._took_ns, 1.0) if self._took_ns > TOLD_PACE_NS else 1.0
        return max(min(free_ns, min(self._chance_ns, epoch_ns) * pace), 0.0)
