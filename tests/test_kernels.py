"""The plug-in compiles what the chosen tests need, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels import compiling_code

TESTS = Path(__file__).resolve().parent


@pytest.mark.parametrize("chosen", ["agent", "apps/core/test_layout", "docs", "spark/live"])
def test_nothing_is_compiled_for_tests_without_kernels(chosen: str) -> None:
    assert compiling_code([TESTS / chosen]) == ""


@pytest.mark.parametrize("chosen", ["engine/placement", "apps/pages", "e2e"])
def test_the_simulator_is_not_compiled_for_tests_that_do_not_simulate(chosen: str) -> None:
    code = compiling_code([TESTS / chosen])
    assert "warm_up" in code
    assert "simulate(" not in code


@pytest.mark.parametrize("chosen", ["", "engine", "engine/simulation/test_run", "lab/benchmarks"])
def test_the_simulator_is_compiled_for_tests_that_simulate(chosen: str) -> None:
    assert "simulate(" in compiling_code([TESTS / "agent", TESTS / chosen])
