"""Words of an objective's state, by what decides it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["STATE_WORDS", "state_words"]

#: What was measured, and what an estimate alone expects; at risk is always a word of estimates.
STATE_WORDS: Mapping[str, str] = {
    "holds": "holds",
    "at_risk": "at risk",
    "breached": "breached",
    "unknown": "not known",
    "none": "no objective",
    "expected_holds": "holds by estimate",
    "expected_breached": "expected late",
}


def state_words(state: str, *, is_measured: bool) -> str:
    """`holds` of what was measured, `holds by estimate` of what was not.

    Examples
    --------
    >>> state_words("breached", is_measured=True), state_words("breached", is_measured=False)
    ('breached', 'expected late')
    >>> state_words("at_risk", is_measured=False)
    'at risk'
    """
    expected = "" if is_measured else STATE_WORDS.get(f"expected_{state}", "")
    return expected or STATE_WORDS.get(state, state.replace("_", " "))
