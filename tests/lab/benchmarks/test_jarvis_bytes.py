"""Bytes that an agent's runtime sends for probes, against those predicted."""

from __future__ import annotations

import numpy as np
import pytest

from agent.wire import FrameKind
from engine.jarvis.wire_bytes import Overhead
from lab.benchmarks.jarvis_bytes import ProbeLoad, planetlab_ms, predictions, send_probes


@pytest.mark.parametrize("load", [ProbeLoad(1, 5), ProbeLoad(4, 2)])
def test_default_overhead_is_what_the_agent_sends(load):
    sent, default = send_probes(load, load.records(planetlab_ms(None, hosts=200)), 0.5), Overhead()
    every_epoch = (sent.bytes[FrameKind.MARK] + sent.bytes[FrameKind.COUNTERS]) / sent.epochs
    assert every_epoch == pytest.approx(default.every_epoch(3), rel=0.03)
    assert sent.bytes[FrameKind.SWEEPS] / sent.frames[FrameKind.SWEEPS] == pytest.approx(default.window_bytes, rel=0.1)
    assert sent.frames[FrameKind.SWEEPS] == sent.epochs / 10
    beside = sent.bytes[FrameKind.RECORDS] - sent.counts[-1]["bytes_drained"]
    assert beside / sent.frames[FrameKind.RECORDS] == pytest.approx(default.frame_bytes, rel=0.1)


def drawn_anew(rtt_ms):
    """Every probe takes another time: quantiles have a bucket for each."""
    return rtt_ms * np.random.default_rng(2).lognormal(0, 1, rtt_ms.shape)


@pytest.mark.parametrize("latency", [lambda rtt_ms: rtt_ms, drawn_anew])
@pytest.mark.parametrize("load", [ProbeLoad(1, 5), ProbeLoad(6, 2), ProbeLoad(6, 5)])
def test_bytes_of_probes_are_predicted_within_5_percent(load, latency):
    rtt_ms = latency(planetlab_ms(None, hosts=200))
    records = load.records(rtt_ms)
    whole = send_probes(load, records, 1.0)
    model, proportional = predictions(load, whole)
    for factor in (0.0, 0.1, 0.5, 0.9):
        shares = {2: 1 - factor, 3: factor}
        sent = send_probes(load, records, factor).bytes_epoch
        assert model.sent(shares).total == pytest.approx(sent, rel=0.05), factor
        assert proportional.sent(shares).total < 0.95 * sent
    assert model.sent({3: 1.0}).total == pytest.approx(whole.bytes_epoch, rel=0.05)
