"""Bytes of checkpoints: when a copy is small beside what was sent since the last one."""

from __future__ import annotations

import random

import pytest

from engine.jarvis.checkpoints import checkpoint_bytes


def replayed(open_bytes, window_epochs, drained_bytes, window_bytes, share, windows=400):
    """Epoch by epoch, as an agent does."""
    since = total = 0.0
    for epoch in range(windows * window_epochs):
        lasted = (epoch + 1) % window_epochs
        since += drained_bytes + (0.0 if lasted else window_bytes)
        if lasted and open_bytes(lasted) <= share * since:
            total, since = total + open_bytes(lasted), 0.0
    return total / (windows * window_epochs)


def test_checkpoints_are_those_of_an_agent_epoch_by_epoch():
    draw = random.Random(5)
    for _ in range(200):
        rows, keys = draw.lognormvariate(4, 2), draw.lognormvariate(6, 2)

        def open_bytes(lasted, rows=rows, keys=keys):
            return 1250 + 90 * keys * (1 - (1 + rows / keys / 8) ** (-8 * lasted))

        window_epochs, share = draw.randrange(2, 40), draw.choice([0.05, 0.1, 0.3])
        drained = draw.lognormvariate(8, 2)
        case = {"window_epochs": window_epochs, "drained_bytes": drained, "window_bytes": open_bytes(window_epochs)}
        data = drained + case["window_bytes"] / window_epochs
        ours, wanted = checkpoint_bytes(open_bytes, share=share, **case), replayed(open_bytes, share=share, **case)
        assert ours == pytest.approx(wanted, rel=0.05, abs=0.01 * data), case


def test_no_window_stays_open_where_each_epoch_ends_one():
    for epochs in (1, 1.0):
        assert checkpoint_bytes(lambda _: 1.0, window_epochs=epochs, drained_bytes=9e9, window_bytes=1, share=1) == 0
    assert checkpoint_bytes(lambda _: 1.0, window_epochs=5, drained_bytes=9e9, window_bytes=1, share=0) == 0


def test_a_window_of_years_is_gone_through_at_once():
    size = checkpoint_bytes(
        lambda e: min(1e6, 90.0 * e), window_epochs=1e12, drained_bytes=1e5, window_bytes=1, share=0.1
    )
    assert size == pytest.approx(1e4, rel=0.01)


def test_rows_of_no_bytes_make_no_copies_of_any():
    case = {"window_epochs": 60, "drained_bytes": 1e5, "window_bytes": 0.0, "share": 0.1}
    assert checkpoint_bytes(lambda _: 0.0, **case) == 0.0
