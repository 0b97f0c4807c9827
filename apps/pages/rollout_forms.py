"""How carefully configurations get to agents, as people set it: canaries, waves, limits."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.pages.ranged import ranged
from apps.refinement.models import RolloutPolicy

__all__ = ["PolicyForm"]

#: Of each number: label, why, least, most, unit, and by what it is multiplied to be read.
_NUMBERS: dict[str, tuple[str, str, float, float, str, float]] = {
    "canary_count": ("Canaries, at least", "Agents that get a configuration first.", 1, 10_000, "agents", 1),
    "canary_share": ("Canaries, as a share", "Of all agents, where that is more.", 0, 100, "%", 100),
    "canary_epochs": ("Watch canaries for", "An epoch is a second.", 10, 600, "epochs", 1),
    "wave_epochs": ("Watch each wave for", "Then the next one begins.", 10, 600, "epochs", 1),
    "silent_epochs": ("Wait for an answer for", "An agent silent for longer holds up nobody.", 5, 3600, "epochs", 1),
    "overflow_pp": (
        "Records that overflow",
        "More than before, and than on the old one.",
        0,
        100,
        "points",
        1,
    ),
    "bytes_rel": ("Bytes sent for a record", "More by.", 0, 1000, "%", 100),
    "latency_rel": ("Delay of what is sent", "More by this share,", 0, 10_000, "%", 100),
    "latency_abs_s": ("and by", "Both have to be passed.", 0, 3600, "s", 1),
    "cpu_rel": ("CPU that saves no bytes", "More by.", 0, 1000, "%", 100),
    "propose_every_s": ("Take proposals every", "A newer one replaces one that waits.", 10, 604_800, "s", 1),
}
_WHOLE = {"canary_count", "canary_epochs", "wave_epochs", "silent_epochs"}
_CANARIES = ("canary_count", "canary_share", "canary_epochs", "wave_epochs", "silent_epochs")
_LIMITS = ("overflow_pp", "bytes_rel", "latency_rel", "latency_abs_s", "cpu_rel")


def _field(name: str) -> forms.Field:
    label, why, low, high, unit, _ = _NUMBERS[name]
    return ranged(label, why, low, high, unit, whole=name in _WHOLE)


class PolicyForm(forms.Form):
    """A cluster's policy."""

    waves = forms.CharField(
        label="Waves", help_text="Share of all agents after each, such as 30, 100; the last is 100.", max_length=80
    )
    automatic = forms.BooleanField(label="Start by itself what Spark proposes", required=False)

    def __init__(self, *args: Any, policy: RolloutPolicy, **kwargs: Any) -> None:
        shown = {name: round(getattr(policy, name) * scale, 6) for name, (*_, scale) in _NUMBERS.items()}
        waves = ", ".join(f"{100 * share:g}" for share in policy.waves)
        kwargs.setdefault("initial", {**shown, "waves": waves, "automatic": policy.automatic})
        super().__init__(*args, **kwargs)
        for name in _NUMBERS:
            self.fields[name] = _field(name)

    def clean_waves(self) -> list[float]:
        """Shares that grow and end with all."""
        said = "They have to grow and end with 100, such as 30, 100."
        try:
            shares = [float(part) / 100 for part in self.cleaned_data["waves"].replace("%", " ").split(",")]
        except ValueError:
            raise forms.ValidationError(said) from None
        grows = all(a < b for a, b in zip([0.0, *shares], shares, strict=False))
        if not grows or shares[-1] != 1.0 or len(shares) > 10:
            raise forms.ValidationError(said)
        return shares

    @property
    def values(self) -> dict[str, Any]:
        """As the service takes them."""
        found = {name: self.cleaned_data[name] for name in ("waves", "automatic")}
        for name, (*_, scale) in _NUMBERS.items():
            value = self.cleaned_data[name]
            found[name] = value if name in _WHOLE else round(value / scale, 9)
        return found

    def _rows(self, names: tuple[str, ...]) -> list[tuple[Any, str]]:
        return [(self[name], _NUMBERS[name][4]) for name in names]

    @property
    def canaries(self) -> list[tuple[Any, str]]:
        """(field, unit)."""
        return self._rows(_CANARIES)

    @property
    def limits(self) -> list[tuple[Any, str]]:
        """(field, unit) of what takes a configuration back."""
        return self._rows(_LIMITS)
