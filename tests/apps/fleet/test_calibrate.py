"""The command that measures the machine it runs on."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command

from tests.apps.domain import make_cluster, node_named

pytestmark = pytest.mark.django_db


def test_a_dry_run_prints_and_stores_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("calibrate", "--dry-run", "--seconds", "0.05")
    printed = json.loads(capsys.readouterr().out)
    assert 1e7 < printed["capacity_cps"] < 2e10 and printed["cores"] >= 1 and printed["method"]


def test_a_measurement_is_stored_with_its_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = make_cluster()
    call_command("calibrate", "--cluster", "eu-1", "--node", "n1", "--seconds", "0.05")
    node = node_named(cluster, "n1")
    assert node.evidence == "measured" and node.calibrated_at is not None and node.capacity_cps > 1e7
    assert "eu-1/n1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "--dry-run"),
        (["--cluster", "no", "--node", "n1"], "There are: eu-1"),
        (["--cluster", "eu-1", "--node", "n7"], "no node 'n7'"),
        (["--cluster", "eu-1", "--node", "n1", "--seconds", "0"], "allowed: 0.05 to 60"),
    ],
)
def test_calibrate_refuses_unknown_nodes(arguments: list[str], word: str) -> None:
    make_cluster()
    with pytest.raises(CommandError, match=word):
        call_command("calibrate", *arguments)
