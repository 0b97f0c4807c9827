"""The benchmark of what the stream processor keeps and spends to learn operators."""

from __future__ import annotations

import pytest

from lab.benchmarks import learning


def test_the_benchmark_counts_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert learning.main(["--agents", "2", "--steps", "2"]) == 0
    printed = capsys.readouterr().out
    assert "load factors that stay: 24 rows" in printed
    assert "2 agents, 4 queries of 3 operators, 2 steps of 10 s" in printed
    assert "sweeping watermarks of 10 queries: 8,000 windows" in printed
