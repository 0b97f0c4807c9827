"""The panel of a rollout: its steps, how its agents do against the others, and what a person may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apps.refinement.choices import RolloutState
from apps.refinement.showing import Button, Figure, RolloutStep, RolloutView
from apps.ui.numbers import counted

__all__ = ["RolloutPanel"]

#: Of the view's tones: colour class, drawing.
_TONES = {
    "ok": ("ok", "ok"),
    "warning": ("watch", "watch"),
    "danger": ("bad", "bad"),
    "info": ("acc", "jobs"),
    "neutral": ("", "pause"),
}


@dataclass(frozen=True)
class RolloutPanel:
    """A rollout as the template draws it."""

    view: RolloutView

    @property
    def row(self) -> Any:
        return self.view.rollout

    @property
    def tone(self) -> str:
        return _TONES.get(self.view.tone, ("", "info"))[0]

    @property
    def drawing(self) -> str:
        return _TONES.get(self.view.tone, ("", "info"))[1]

    @property
    def steps(self) -> list[tuple[RolloutStep, str]]:
        """(step, share of it that is over in percent)."""
        return [(step, f"{100 * min(max(step.share, 0.0), 1.0):.0f}%") for step in self.view.steps]

    @property
    def figures(self) -> list[tuple[Figure, str]]:
        """(figure, colour class): colour is for what is beyond its limit, and for bytes that are saved."""
        return [(one, "bad" if one.worse else "watch" if one.unsure else _good(one)) for one in self.view.figures]

    @property
    def can_pause(self) -> bool:
        return Button.PAUSE in self.view.buttons

    @property
    def can_resume(self) -> bool:
        return Button.RESUME in self.view.buttons

    @property
    def can_stop(self) -> bool:
        return Button.STOP in self.view.buttons

    @property
    def can_roll_back(self) -> bool:
        return Button.ROLL_BACK in self.view.buttons

    @property
    def roll_back(self) -> str:
        """`Roll back 5 agents`."""
        return f"Roll back {counted(self.view.given, 'agent')}" if self.view.given else "Roll back"

    @property
    def parent(self) -> str:
        """What agents go back to."""
        before = self.row.config.parent
        return before.name if before is not None else "what they find by themselves"

    @property
    def is_over(self) -> bool:
        return self.row.state in (RolloutState.ROLLED_BACK, RolloutState.STOPPED, RolloutState.DONE)

    @property
    def is_back(self) -> bool:
        """Taken back, or on its way: its reasons are the news."""
        return self.row.state in (RolloutState.ROLLED_BACK, RolloutState.ROLLING_BACK)

    @property
    def reasons(self) -> list[str]:
        """What the guard says of it now, where no step says it already."""
        said = " ".join(step.words for step in self.view.steps)
        return [] if self.is_back else [one for one in self.view.reasons if one not in said]

    @property
    def waiting(self) -> str:
        """`c-119 waits until this one is over.`"""
        names = self.view.waiting
        if not names:
            return ""
        verb = "waits" if len(names) == 1 else "wait"
        return f"{' and '.join(names)} {verb} until this rollout is over."


def _good(figure: Figure) -> str:
    return "ok" if figure.key == "bytes" and figure.change is not None and figure.change < 0 else ""
