"""`./sluice lab`: it lists its names, and refuses others with those that are allowed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from lab.__main__ import BENCHMARKS, COMMANDS, DOCUMENTATION, EXPERIMENTS, TRAINING, main


def test_no_name_or_help_lists_all_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main([]), main(["--help"])) == (2, 0)
    printed = capsys.readouterr().out
    assert printed.count("usage: sluice lab NAME [options]") == 2
    listed = [", ".join(names) for names in (BENCHMARKS, TRAINING, EXPERIMENTS, DOCUMENTATION)]
    assert "benchmarks: {}\ntraining: {}\nexperiments: {}\ndocumentation: {}\n".format(*listed) in printed


def test_unknown_name_is_refused_with_what_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["corpse"]) == 2
    assert "'corpse' is no command of the laboratory; allowed: capacity, costream" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_name_leads_to_a_module_with_a_main(name: str) -> None:
    for module in COMMANDS[name]:
        found = importlib.util.find_spec(module)
        assert found is not None and found.origin is not None
        assert "\ndef main(arguments: Sequence[str]" in Path(found.origin).read_text()
