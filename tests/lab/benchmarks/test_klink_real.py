"""Recordings that the benchmark gives to real agents, and what it sees of them; how fast it is, is not asked here."""

import numpy as np

from engine.klink.settings import POLICIES
from lab.benchmarks import klink, klink_real
from lab.benchmarks.klink_real import BEGIN_US, LOADS, QUERIES, ReplayedSource, recordings, watch_agent


def test_recordings_are_deterministic_and_never_late():
    for load in LOADS:
        first, again, other = (recordings(load, 20, seed) for seed in (1, 1, 2))
        assert all((a.records_us == b.records_us).all() for a, b in zip(first, again, strict=True))
        assert any(len(a.records_us) != len(b.records_us) for a, b in zip(first, other, strict=True))
        assert all((np.diff(entry.records_us) >= 0).all() for entry in first)
        delays_us = [entry.marks_us - 1_000_000 * np.arange(len(entry.marks_us)) for entry in first]
        assert min(map(min, delays_us)) >= 0
        assert max(map(max, delays_us)) <= 1_000_000
    assert {recording.period_s for recording in recordings("mixed", 2, 1)} == {2, 5, 10}


def test_recording_is_replayed_as_time_passes():
    recording = recordings("alike", 5, seed=1)[0]
    source, given, marks = ReplayedSource(recording, 0), [], []
    for now_s in np.arange(0.0, 6.5, 0.05):
        now_us = BEGIN_US + int(1e6 * now_s)
        for batch in source.poll(now_us, 700):
            stamps = batch.column(batch.schema.names.index("ts")).cast("int64").to_numpy() - BEGIN_US
            assert (stamps < 1e6 * now_s).all()
            assert not marks or (stamps >= marks[-1] - BEGIN_US).all()
            given.append(stamps)
        marks.append(source.watermark_us())
    assert len(np.concatenate(given)) <= len(recording.records_us)
    assert (np.concatenate(given) == recording.records_us[: sum(map(len, given))]).all()
    assert marks == sorted(marks)
    assert marks[-1] == BEGIN_US + 5_000_000


def test_unloaded_agent_sweeps_every_window_without_loss():
    seen = watch_agent(recordings("alike", 7, seed=1, times=0.1), "klink", 1.0, 0.0, 5.9)
    assert seen.windows == 2 * QUERIES  # the ends at 2 and at 4 s; watermarks come a second later at most
    assert seen.overflow == 0
    assert 0 < seen.arrived_s < seen.mean_s <= seen.p99_s
    assert 0 < seen.picks < seen.scheduling < 1


def test_benchmark_with_real_agents_runs(capsys, monkeypatch):
    monkeypatch.setattr(klink_real, "QUERIES", 5)  # of every period and every rate there is one
    monkeypatch.setattr(klink_real, "_RATE", 1_200.0)
    assert klink.main(["--quick", "--parts", "real"]) in (0, 1)
    printed = capsys.readouterr().out
    assert all(printed.count(f"    {policy} ") == 1 for policy in POLICIES)
    assert "records/s" in printed
