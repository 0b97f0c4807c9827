"""Files of the benchmark of forecasts are read as a load history is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lab.benchmarks.forecast import counts_of_file


def steps_file(folder: Path, step_s: int, days: int = 2) -> Path:
    """Counts of so many seconds over days, 20 events/s."""
    begin = datetime(2026, 6, 1, tzinfo=UTC)
    times = [(begin + timedelta(seconds=step_s * i)).isoformat() for i in range(days * 86_400 // step_s)]
    file = folder / "steps.csv"
    file.write_text("time,count\n" + "".join(f"{at},{20 * step_s}\n" for at in times))
    return file


@pytest.mark.parametrize(("step_s", "bucket_s"), [(15, 60), (15, 300), (300, 300), (300, 900), (300, 3600)])
def test_counts_of_short_steps_are_added_up_to_buckets(tmp_path: Path, step_s: int, bucket_s: int) -> None:
    counts = counts_of_file(steps_file(tmp_path, step_s), bucket_s)
    assert counts.tolist() == pytest.approx([20.0 * bucket_s] * (2 * 86_400 // bucket_s))


def test_counts_are_not_cut_finer_than_they_were_made(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="its counts last 300 s each"):
        counts_of_file(steps_file(tmp_path, 300), 60)
