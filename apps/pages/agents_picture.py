"""Load factors as bars, and an agent's pipeline as a picture: processed here against drained to the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from apps.pages.agents_flow import OperatorFlow, QueryFlow
from apps.ui.numbers import bytes_size, percent, rate, ratio

__all__ = ["Stage", "factor_bars", "factor_text", "pipeline_picture"]

_BAR, _GAP = 36, 5  # of a load factor in the list
_LEFT, _RIGHT = 104, 196  # of the picture
_ROOM = 700  # between them, so that up to six operators fit into a page
_BLOCKS, _LINKS = (96, 130), (24, 66)  # least and most width
_TALLEST = 58.0
_LETTER = 6.4  # width that an operator's name has in its block, a letter


@dataclass(frozen=True)
class Stage:
    """An operator as the agent is told to run it; `factor` is None where it may not run at a source."""

    name: str
    factor: float | None
    flow: OperatorFlow | None


def factor_text(factor: float) -> str:
    """1, 0.62 or 0."""
    return "1" if factor >= 0.9995 else ratio(factor)


def factor_bars(name: str, factors: Sequence[tuple[str, float]], *, reported: bool = True) -> SafeString:
    """One bar per operator: the share processed here; dashed while the agent does not report."""
    width = max(len(factors) * (_BAR + _GAP) - _GAP, 1)
    parts = []
    for place, (_, factor) in enumerate(factors):
        x = place * (_BAR + _GAP)
        middle = x + _BAR / 2
        text = factor_text(factor) if reported else "\N{EN DASH}"
        parts.append(f'<text x="{middle:g}" y="11" text-anchor="middle" class="{"tx" if factor else ""}">{text}</text>')
        if reported:
            parts.append(f'<rect x="{x}" y="15" width="{_BAR}" height="6" rx="1.5" fill="var(--c-drain)"/>')
            own = f'<rect x="{x}" y="15" width="{_BAR * factor:.1f}" height="6" rx="1.5" fill="var(--c-estimate)"/>'
            parts.append(own if factor else "")
        else:
            dashes = 'fill="none" stroke="var(--line-control)" stroke-dasharray="2 2"'
            parts.append(f'<rect x="{x + 0.5}" y="15.5" width="{_BAR - 1}" height="5" rx="1.5" {dashes}/>')
    said = ", ".join(f"{operator} {factor_text(factor)}" for operator, factor in factors)
    label = f"{name} load factors: {said}" if reported else f"{name} does not report; its load factors were {said}"
    return format_html(
        '<svg class="fig" width="{0}" height="22" viewBox="0 0 {0} 22" role="img" aria-label="{1}">{2}</svg>',
        width,
        label,
        mark_safe("".join(parts)),
    )


def pipeline_picture(agent: str, cluster: str, stages: Sequence[Stage], flow: QueryFlow | None) -> SafeString:
    """Blocks from left to right, as wide links as records flow; what is drained falls to the cluster."""
    own = [stage for stage in stages if stage.factor is not None]
    block, link = _widths(len(own))
    end = _LEFT + len(own) * (block + link) - link
    width = end + _RIGHT
    most = max((stage.flow.in_eps for stage in own if stage.flow), default=0.0)
    parts = [_lead(flow)]
    for place, stage in enumerate(own):
        x = _LEFT + place * (block + link)
        came = stage.flow.in_eps if stage.flow else 0.0
        parts.append(_link(x - link if place else x - 26, x, came, most))
        parts.append(_block(x, block, stage))
        parts.append(_drain(x + block / 2, stage, most))
    parts.append(_tail(own, end, most))
    parts.append(_cluster(cluster, end, flow))
    label = _label(agent, own, flow)
    return format_html(
        '<svg class="fig" viewBox="0 0 {} 216" role="img" aria-label="{}" style="{}">{}</svg>',
        width,
        label,
        f"min-width:{width}px;max-width:{round(width * 1.2)}px",
        mark_safe("".join(parts)),
    )


def _widths(count: int) -> tuple[float, float]:
    """Of a block and of the link after it: less of each the more operators there are, links first."""
    links = max(count - 1, 1)
    link = min(_LINKS[1], max(_LINKS[0], (_ROOM - count * _BLOCKS[1]) / links))
    return min(_BLOCKS[1], max(_BLOCKS[0], (_ROOM - links * link) / max(count, 1))), link


def _text(x: float, y: float, text: object, css: str = "", anchor: str = "") -> str:
    end = f' text-anchor="{anchor}"' if anchor else ""
    name = f' class="{css}"' if css else ""
    return f'<text{name} x="{x:g}" y="{y:g}"{end}>{escape(str(text))}</text>'


def _lead(flow: QueryFlow | None) -> str:
    if flow is None:
        return _text(0, 66, "nothing yet", "tb")
    return _text(0, 66, f"{rate(flow.in_eps)} in", "tb") + _text(0, 81, bytes_size(flow.in_bytes_s, "/s"))


def _link(x0: float, x1: float, eps: float, most: float) -> str:
    if not most or not eps:
        return f'<path d="M{x0:g} 41H{x1:g}" stroke="var(--line-control)" stroke-dasharray="2 3"/>'
    height = max(1.5, _TALLEST * eps / most)
    return f'<rect x="{x0:g}" y="40" width="{x1 - x0:g}" height="{height:.1f}" fill="var(--c-fill)" opacity=".55"/>'


def _block(x: float, width: float, stage: Stage) -> str:
    share = stage.flow.share if stage.flow and stage.flow.share is not None else stage.factor or 0.0
    room = width - 16
    letters = int(room / _LETTER) + 1
    name = stage.name if len(stage.name) <= letters else f"{stage.name[: letters - 1]}…"
    drained = "all here" if share >= 0.9995 else "all drained" if share < 0.0005 else f"{percent(1 - share)} drained"
    came = rate(stage.flow.in_eps) if stage.flow else ""
    paint = 'rx="6" fill="var(--surface)" stroke="var(--line-control)"'
    return (
        f'<rect x="{x:g}" y="26" width="{width:g}" height="92" {paint}/>'
        + _text(x + 8, 44, name, "tb")
        + f'<rect x="{x + 8:g}" y="54" width="{room:.1f}" height="12" rx="2" fill="var(--c-drain)"/>'
        + f'<rect x="{x + 8:g}" y="54" width="{room * share:.1f}" height="12" rx="2" fill="var(--c-estimate)"/>'
        + _text(x + 8, 82, f"{stage.factor or 0:.2f}", "tb")
        + _text(x + 8, 98, drained)
        + _text(x + width - 8, 82, came, "t2", "end")
    )


def _drain(middle: float, stage: Stage, most: float) -> str:
    """From a block down to the cluster."""
    if stage.flow is None or not stage.flow.drained_eps or not most:
        return ""
    width = max(2.0, 0.7 * _TALLEST * stage.flow.drained_eps / most)
    bar = f'<rect x="{middle - width / 2:.1f}" y="118" width="{width:.1f}" height="52" fill="var(--c-drain)"/>'
    return bar + _text(middle + width / 2 + 6, 140, rate(stage.flow.drained_eps), "t2")


def _tail(own: Sequence[Stage], end: float, most: float) -> str:
    """What comes out of the last operator goes to the cluster too."""
    last = own[-1].flow if own else None
    if last is None or not last.out_eps or not most:
        return ""
    height = max(1.5, _TALLEST * min(1.0, last.out_eps / most))
    path = f"M{end:g} 40h{24 + height:.1f}v130h-{height:.1f}V{40 + height:.1f}H{end:g}z"
    return f'<path d="{path}" fill="var(--c-fill)" opacity=".55"/>'


def _cluster(cluster: str, end: float, flow: QueryFlow | None) -> str:
    wide = end + 92 - _LEFT
    gets = (
        f"Cluster {cluster} gets {rate(flow.sent_eps)}, {bytes_size(flow.sent_bytes_s, '/s')}"
        if flow is not None
        else f"Cluster {cluster} has got nothing yet"
    )
    paint = 'rx="4" fill="var(--sunken)" stroke="var(--line-strong)"'
    box = f'<rect x="{_LEFT - 12}" y="170" width="{wide:g}" height="26" {paint}/>'
    share = _text(end + 100, 182, f"{percent(_saved(flow))} of bytes", "tb")
    saved = share + _text(end + 100, 196, "stay at the agent")
    return box + _text(_LEFT - 2, 187, gets, "t2") + (saved if flow is not None and flow.in_bytes_s else "")


def _saved(flow: QueryFlow | None) -> float | None:
    return 1 - flow.sent_bytes_s / flow.in_bytes_s if flow is not None and flow.in_bytes_s else None


def _label(agent: str, own: Sequence[Stage], flow: QueryFlow | None) -> str:
    said = ", ".join(f"{stage.name} runs for {percent(_ran(stage))} of its records" for stage in own)
    if flow is None:
        return f"Pipeline on {agent}, which has not sent statistics yet: {said}."
    return f"Pipeline on {agent}: {said}. The cluster gets {rate(flow.sent_eps)} of {rate(flow.in_eps)}."


def _ran(stage: Stage) -> float:
    return stage.flow.share if stage.flow and stage.flow.share is not None else stage.factor or 0.0
