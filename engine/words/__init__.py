"""Numbers with their nouns and units, and lists of names, as every message writes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "STATE_WORDS",
    "bound_words",
    "counted",
    "duration_words",
    "listed",
    "load_words",
    "mix_text",
    "money_words",
    "number_words",
    "percent_words",
    "seconds_words",
    "server_words",
    "size_words",
    "state_words",
    "statistic_text",
    "statistic_words",
    "step_words",
    "time_unit",
]

_UNBROKEN = "\u00a0"
_SYMBOLS = {"EUR": "€", "USD": "$", "GBP": "£", "JPY": "¥", "CNY": "¥", "INR": "₹", "KRW": "₩", "CHF": "CHF"}
_MAX_EXTRA_DIGITS = 6
_MAX_DIGITS = 9

_MINUTES_FROM_S = 120.0  #: what is whole minutes; a time of 60 s has a bound beside it that is in seconds
_ROUNDED_FROM_S = 600.0  #: a span is told to the minute
_MICROSECONDS_BELOW_S = 1e-4
_MILLISECONDS_BELOW_S = 0.0995  #: what rounds to 0.1 s is written in seconds


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    Examples
    --------
    >>> counted(1, "gap"), counted(2000, "gap"), counted(2, "query", "queries")
    ('1 gap', '2,000 gaps', '2 queries')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names in a row, `most` of them at the most, the last being the number of those left out.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c", "d", "e", "f"])
    ('a', 'a and b', 'a, b and 4 more')
    """
    shown = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return " and ".join((", ".join(shown[:-1]), shown[-1]) if len(shown) > 1 else shown)


def mix_text(counts: Mapping[str, int]) -> str:
    """New nodes by type.

    Examples
    --------
    >>> mix_text({"small": 2, "medium": 0, "large": 1}), mix_text({})
    ('2 small and 1 large', 'no new node')
    """
    return listed([f"{count} {name}" for name, count in counts.items() if count], len(counts)) or "no new node"


def duration_words(seconds: float) -> str:
    """A span: below 10 min as `seconds_words` writes it, above to the minute, from 48 h to the hour.

    Examples
    --------
    >>> [duration_words(s).replace("\\u00a0", " ") for s in (0.0, 0.25, 60.0, 187.0, 300.0)]
    ['0 s', '0.25 s', '60 s', '187 s', '5 min']
    >>> [duration_words(s).replace("\\u00a0", " ") for s in (1330.0, 12000.0, 187200.0)]
    ['22 min', '3 h 20 min', '2 days 4 h']
    """
    if seconds < _ROUNDED_FROM_S:
        return seconds_words(seconds)[0]
    minutes = round(seconds / 60.0)
    if minutes < 60:
        return f"{minutes}\u00a0min"
    if minutes < 48 * 60:
        return f"{minutes // 60}\u00a0h" + (f" {minutes % 60}\u00a0min" if minutes % 60 else "")
    hours = round(minutes / 60)
    return f"{hours // 24}\u00a0days" + (f" {hours % 24}\u00a0h" if hours % 24 else "")


def step_words(step_s: float) -> str:
    """Width of counts in words.

    Examples
    --------
    >>> [step_words(step_s).replace("\u00a0", " ") for step_s in (300.0, 7200.0, 2.5, 0.001)]
    ['5 min', '2 h', '2.5 s', '1 ms']
    """
    unit_s, unit = time_unit(step_s)
    return f"{step_s / unit_s:.3g}{_UNBROKEN}{unit}"


def seconds_words(*values: float) -> tuple[str, ...]:
    """Seconds with two or three significant digits, or as many as it takes to tell different values apart, in the units
    of `time_unit`, as in the figures beside the sentence.

    Examples
    --------
    >>> [text.replace("\u00a0", " ") for text in seconds_words(0.0064, 0.0495, 0.32, 0.00002)]
    ['6.4 ms', '49.5 ms', '0.32 s', '20 µs']
    >>> [text.replace("\u00a0", " ") for text in seconds_words(8.213, 13.6, 10.0)]
    ['8.2 s', '13.6 s', '10 s']
    >>> [text.replace("\u00a0", " ") for text in seconds_words(10.004, 10.0)]
    ['10.004 s', '10 s']
    >>> [text.replace("\u00a0", " ") for text in seconds_words(3990.0, 9000.0, 1800.0)]
    ['3,990 s', '2.5 h', '30 min']
    """

    def written(seconds: float, extra: int) -> str:
        unit_s, unit = time_unit(seconds)
        return f"{_plain(seconds / unit_s, extra)}{_UNBROKEN}{unit}"

    return _distinct_texts(values, written)


def bound_words(value_s: float, bound_s: float, low_s: float | None = None, high_s: float | None = None) -> str:
    """A latency, with its interval where there is one, against its bound in s; what is over the bound says so.

    Examples
    --------
    >>> bound_words(5.2, 6.0, 4.1, 6.9).replace("\u00a0", " "), bound_words(3990.0, 60.0).replace("\u00a0", " ")
    ('5.2 s [4.1, 6.9] of its 6 s', '3,990 s, over its 60 s')
    >>> bound_words(0.089, 30.0, 0.048, 0.27).replace("\u00a0", " ")
    '89 ms [48 ms, 0.27 s] of its 30 s'
    """
    value, bound, *ends = seconds_words(value_s, bound_s, *(end_s for end_s in (low_s, high_s) if end_s is not None))
    if ends:
        unit = f"{_UNBROKEN}{value.rpartition(_UNBROKEN)[2]}"
        inside = ends if any(not end.endswith(unit) for end in ends) else [end.removesuffix(unit) for end in ends]
        value = f"{value} [{', '.join(inside)}]"
    return f"{value}, over its {bound}" if value_s > bound_s else f"{value} of its {bound}"


def time_unit(seconds: float) -> tuple[float, str]:
    """Length in s and sign of the unit in which a time is written, everywhere: it depends on nothing but the time, and
    what is no whole number of minutes stays in seconds up to two hours, as its bound is.

    Examples
    --------
    >>> [time_unit(seconds)[1] for seconds in (2e-5, 0.0495, 0.32, 66.0, 300.0, 3990.0, 3600.0, 9000.0, 259200.0)]
    ['µs', 'ms', 's', 's', 'min', 's', 'h', 'h', 'd']
    """
    size = round(abs(seconds), 6)
    if size >= 172_800.0:
        return 86_400.0, "d"
    if size >= 7200.0 or (size and size % 3600.0 == 0.0):
        return 3600.0, "h"
    if size >= _MINUTES_FROM_S and size % 60.0 == 0.0:
        return 60.0, "min"
    if 0.0 < abs(seconds) < _MICROSECONDS_BELOW_S:
        return 1e-6, "µs"
    if 0.0 < abs(seconds) < _MILLISECONDS_BELOW_S:
        return 1e-3, "ms"
    return 1.0, "s"


def number_words(*values: float) -> tuple[str, ...]:
    """Numbers with two or three significant digits, or as many as it takes to tell different values apart.

    Examples
    --------
    >>> number_words(1214.0), number_words(-0.4), number_words(3.04, 3.0)
    (('1,214',), ('−0.4',), ('3.04', '3'))
    """
    return _distinct_texts(values, _plain)


def load_words(*values: float) -> tuple[str, ...]:
    """Shares of capacity with two decimals, or as many as it takes to tell different values apart.

    Examples
    --------
    >>> load_words(0.8, 1.1), load_words(0.9991, 1.0012), load_words(0.0, 1250.0)
    (('0.80', '1.10'), ('0.999', '1.001'), ('0.00', '1,250.00'))
    """
    return _distinct_texts(values, lambda value, extra: f"{value:,.{2 + extra}f}")


def money_words(amount: float, currency: str = "") -> str:
    """An amount with its currency before it, where it is known; cents are left out from ten thousand on.

    Examples
    --------
    >>> [money_words(*money).replace("\u00a0", " ") for money in ((13.164, "EUR"), (-0.5, "NOK"), (0.48,))]
    ['€ 13.16', '−NOK 0.50', '0.48']
    """
    text = f"{abs(amount):,.2f}" if abs(amount) < 10_000 else f"{abs(amount):,.0f}"
    sign = "−" if amount < 0 and text.strip("0.,") else ""
    return f"{sign}{_SYMBOLS.get(currency, currency)}{_UNBROKEN}{text}" if currency else f"{sign}{text}"


def percent_words(share: float) -> str:
    """A share as a percentage: whole from 10 % on, with two significant digits below. What is hardly there is "under
    0.1%", and what is less than a whole is never written as one.

    Examples
    --------
    >>> percent_words(0.943), percent_words(1.0), percent_words(0.9972), percent_words(4.0), percent_words(0.0042)
    ('94%', '100%', 'over 99%', '400%', '0.42%')
    >>> percent_words(0.0412), percent_words(0.00027), percent_words(123.4), percent_words(0.0)
    ('4.1%', 'under 0.1%', '12,340%', '0%')
    """
    if 0.0 < share < 0.001:
        return "under 0.1%"
    if 0.995 <= share < 1.0:
        return "over 99%"
    return f"{_plain(float(round(100 * share)) if abs(share) >= 0.1 else 100 * share, 0)}%"


def size_words(size_bytes: float) -> str:
    """Bytes in powers of two, as memory is counted.

    Examples
    --------
    >>> [size_words(size).replace("\u00a0", " ") for size in (900.0, 64 * 2.0**20, 1.5 * 2.0**30)]
    ['900 B', '64 MiB', '1.5 GiB']
    """
    power = min(max(int(math.log2(max(size_bytes, 1.0) / 0.9995)) // 10, 0), 4)
    return f"{_plain(size_bytes / 1024.0**power, 0)}{_UNBROKEN}{('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def server_words(server: str, *, begins: bool = False) -> str:
    """A server of a deployment as people call it: a node, one of its cores, or a link; `begins` a sentence or not.

    Examples
    --------
    >>> server_words("n1"), server_words("n1#2"), server_words("n1->n2")
    ('n1', 'core 2 of n1', 'the link from n1 to n2')
    >>> server_words("n1", begins=True), server_words("n1#2", begins=True)
    ('n1', 'Core 2 of n1')
    """
    node, _, core = server.rpartition("#")
    if node and core.isdecimal():
        return f"{'Core' if begins else 'core'} {core} of {node}"
    origin, _, target = server.partition("->")
    return f"{'The' if begins else 'the'} link from {origin} to {target}" if target else server


def statistic_words(statistic: str, *, begins: bool = False) -> str:
    """An objective's statistic; `begins` a sentence or not.

    Examples
    --------
    >>> [statistic_words(name) for name in ("worst", "mean", "q0.5", "q0.99", "q0.999")]
    ['worst case', 'mean', 'median', 'p99', 'p99.9']
    >>> statistic_words("worst", begins=True), statistic_words("q0.99", begins=True)
    ('Worst case', 'p99')
    """
    words = {"worst": "worst case", "q0.5": "median"}.get(statistic, statistic)
    if words.startswith("q"):
        return f"p{100 * float(words[1:]):.6g}"
    return words.capitalize() if begins else words


def statistic_text(statistic: str) -> str:
    """An objective's statistic where there is little room: worst, mean, median, p99."""
    return "worst" if statistic == "worst" else statistic_words(statistic)


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


def _distinct_texts(values: Sequence[float], written: Callable[[float, int], str]) -> tuple[str, ...]:
    """`values` as `written` with as many extra digits as it takes for different ones to look different."""
    for extra in range(_MAX_EXTRA_DIGITS):
        texts = tuple(written(value, extra) for value in values)
        if len(set(texts)) == len(set(values)):
            break
    return texts


def _plain(value: float, extra: int) -> str:
    digits = 1 if 1.0 <= abs(value) < 100.0 else 0
    if 0.0 < abs(value) < 1.0:
        digits = min(_MAX_DIGITS, 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits + extra}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text.replace("-", "−")
