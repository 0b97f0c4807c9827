"""Examples in docstrings do what they say."""

from __future__ import annotations

import pytest

from tests.examples import modules_with_examples, run_examples


@pytest.mark.parametrize("name", modules_with_examples("engine", "apps", "agent", "spark_jobs"))
def test_examples_in_docstrings_run(name: str) -> None:
    run_examples(name)
