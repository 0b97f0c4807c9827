"""Who takes which frames of the stream processor: higher apps register when they are ready."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from agent.wire import Frame, FrameKind
from apps.core.errors import Impossible, Malformed
from apps.telemetry.choices import LiveState
from apps.telemetry.models import LiveQuery

__all__ = ["Receiver", "frames_receive", "receiver"]

Receiver = Callable[[Sequence[Frame]], None]
_receivers: dict[FrameKind, Receiver] = {}
_SENT = (FrameKind.RESULT, FrameKind.STATISTICS, FrameKind.REFINED, FrameKind.WATERMARKS)


def receiver(kind: FrameKind) -> Callable[[Receiver], Receiver]:
    """Register a function for frames of a kind: `@receiver(FrameKind.RESULT)`.

    It is given all frames of that kind of one post, in order. It is idempotent: what was stored before an answer got
    lost comes again.
    """

    def register(function: Receiver) -> Receiver:
        _receivers[kind] = function
        return function

    return register


def frames_receive(frames: Sequence[Frame]) -> dict[str, int]:
    """Hand frames to whoever takes them; returns how many of each kind.

    Raises
    ------
    Malformed
        A kind that the stream processor does not send.
    Impossible
        A kind that nobody takes.
    """
    by_kind: dict[FrameKind, list[Frame]] = defaultdict(list)
    for number, frame in enumerate(frames):
        if frame.kind not in _SENT:
            message = f"kind is {frame.kind.value!r}; allowed: {', '.join(_SENT)}"
            raise Malformed(f"frames[{number}]: {message}.", [(f"frames[{number}].kind", message)])
        by_kind[frame.kind].append(frame)
    missing = sorted(kind.value for kind in by_kind if kind not in _receivers)
    if missing:
        raise Impossible(f"Nobody takes frames of the kind {', '.join(missing)} here.")
    _note_running({frame.query for frame in by_kind[FrameKind.RESULT]})
    for kind, given in by_kind.items():
        if given:
            _receivers[kind](given)
    return {kind.value: len(given) for kind, given in by_kind.items() if given}


def _note_running(keys: set[str]) -> None:
    """A query that has a result runs."""
    if not keys:
        return
    starting = LiveQuery.objects.filter(state=LiveState.STARTING).select_related("query__cluster")
    for live in starting:
        if live.key in keys:
            LiveQuery.objects.filter(pk=live.pk, state=LiveState.STARTING).update(state=LiveState.RUNNING)
