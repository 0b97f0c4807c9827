"""``spark`` of the command line: the functions of the micro-batch model, one call per document."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any, ClassVar

from engine.errors import DocumentError, Fault
from engine.kinds import Anything, Enumeration, Number, String
from engine.microbatch.model import coefficients, least_squares
from engine.microbatch.settings import MicroBatchProfile
from engine.microbatch.sizing import MicroBatchQuestion, size_microbatch
from engine.records import BAD, Record, Words

__all__ = ["command"]

_NOT_NEGATIVE = Number(least=0)
_Count = Annotated[int, Number(least=1, whole=True)]
_Positive = Annotated[float, Number(above=0)]
_Amount = Annotated[float, _NOT_NEGATIVE]


@dataclass(frozen=True)
class _Call(Record):
    """Arguments of a function; `answer` calls it."""

    def answer(self) -> Any:
        """Result of the function."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Coefficients(_Call):
    TITLE: ClassVar[str] = "batch_coeffs"

    cores: _Count
    p_in: _Count
    p_sh: _Count
    f0: _Amount
    t_task: _Amount
    c_in: _Amount
    c_sh: _Amount
    alpha: _Amount
    cv: _Amount = 0.0

    def answer(self) -> list[float]:
        return list(
            coefficients(
                cores=self.cores,
                input_partitions=self.p_in,
                shuffle_partitions=self.p_sh,
                f0_s=self.f0,
                t_task_s=self.t_task,
                c_in_s=self.c_in,
                c_sh_s=self.c_sh,
                alpha=self.alpha,
                cv=self.cv,
            )
        )


@dataclass(frozen=True, kw_only=True)
class _Quantile(_Call):
    F: _Amount
    k: _Amount
    kind: Annotated[str, String(), Words("mean; any other word means the quantile x")] = "mean"
    x: Annotated[float, Number(above=0, least=0), Words("level of the quantile, below 1")] = 0.99

    def find_faults(self) -> Iterator[Fault]:
        """A level that is none."""
        if not self.x < 1:
            yield Fault("x", f"x is {self.x:g}; allowed: a number above 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class _Latency(_Quantile):
    TITLE: ClassVar[str] = "latency"

    lam: _Positive
    T: _Amount
    sd_p: _Amount = 0.0

    def answer(self) -> float | None:
        """Latency with the paper's normal quantile, where `BatchModel.latency` has that of the sum itself."""
        if self.lam * self.k >= 1:
            return None
        interval_s = max(self.T, self.F / (1 - self.lam * self.k))
        batch_s = self.F + self.lam * interval_s * self.k
        if self.kind == "mean":
            return interval_s / 2 + batch_s
        if self.sd_p == 0:
            return self.x * interval_s + batch_s
        return interval_s / 2 + batch_s + NormalDist().inv_cdf(self.x) * math.sqrt(interval_s**2 / 12 + self.sd_p**2)


@dataclass(frozen=True, kw_only=True)
class _MaxRate(_Quantile):
    TITLE: ClassVar[str] = "lam_max"

    L: _Positive

    def answer(self) -> list[Any]:
        trigger_s = self.L / (1.5 if self.kind == "mean" else 1 + self.x)
        if trigger_s <= self.F:
            return [0.0, None]
        return [None if self.k <= 0 else (1 - self.F / trigger_s) / self.k, trigger_s]


@dataclass(frozen=True)
class _Fit(_Call):
    TITLE: ClassVar[str] = "fit"

    progress: tuple[Annotated[Any, Anything()], ...]

    def answer(self) -> list[float]:
        faults: list[Fault] = []
        points = []
        for number, batch in enumerate(self.progress):
            where = f"args.progress[{number}]"
            durations = batch.get("durationMs") if isinstance(batch, Mapping) else None
            if not isinstance(batch, Mapping) or not isinstance(durations, Mapping):
                faults.append(Fault(where, f"item {number} has no durationMs; allowed: a progress object"))
                continue
            values = [
                _NOT_NEGATIVE.read(part.get(name), place, name, faults)
                for part, name, place in (
                    (batch, "numInputRows", where),
                    (durations, "triggerExecution", f"{where}.durationMs"),
                )
            ]
            if BAD not in values and values[0] > 0:
                points.append((values[0], values[1] / 1000))
        if faults:
            raise DocumentError(faults, "progress")
        model = least_squares(points)
        return [model.fixed_s, model.per_row_s, model.sd_s, model.batches]


@dataclass(frozen=True)
class _Size(_Call):
    TITLE: ClassVar[str] = "size"

    profile: MicroBatchProfile
    question: MicroBatchQuestion

    def answer(self) -> Record:
        return size_microbatch(self.profile, self.question)


_CALLS: dict[str, type[_Call]] = {call.TITLE: call for call in (_Coefficients, _Latency, _MaxRate, _Fit, _Size)}


@dataclass(frozen=True)
class _Document(Record):
    TITLE: ClassVar[str] = "spark document"

    call: Annotated[str, Enumeration(tuple(_CALLS))]
    args: Annotated[Any, Anything()]


def command(document: Any) -> Any:
    """One of the functions ``batch_coeffs``, ``latency``, ``lam_max``, ``fit`` and ``size`` with its arguments."""
    asked = _Document.parse(document)
    faults: list[Fault] = []
    call = _CALLS[asked.call].read(asked.args, "", "args", faults)
    if call is None:
        raise DocumentError(faults, f"call {asked.call}")
    return call.answer()
