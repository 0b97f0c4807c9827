"""The recipes for pipelines are YAML whose scripts a shell reads, and whose commands the client knows."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from client.cli import client_parser

RECIPES = sorted((Path(__file__).resolve().parents[2] / "docs" / "examples" / "ci").glob("*.yml"))
each_recipe = pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)


def scripts(node: Any) -> Iterator[str]:
    """Shell scripts of a recipe: `run` of GitHub's steps, `script` of GitLab's jobs."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "run":
                yield value
            elif key == "script":
                yield "\n".join(value)
            else:
                yield from scripts(value)
    elif isinstance(node, list):
        for value in node:
            yield from scripts(value)


@pytest.mark.process
@each_recipe
def test_recipe_has_a_script_that_a_shell_reads(path: Path) -> None:
    (script,) = scripts(yaml.safe_load(path.read_text()))
    found = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


@each_recipe
def test_recipe_calls_a_command_that_there_is(path: Path) -> None:
    (script,) = scripts(yaml.safe_load(path.read_text()))
    (line,) = [line for line in script.splitlines() if "/sluice admit" in line]
    words = shlex.split(line.partition(" > ")[0])
    options = client_parser(as_json=True).parse_args(words[1:])
    assert (options.cluster, options.timeout, options.json) == ("prod", 300.0, True)
