"""Conformance cases of realised latencies, where they are at hand: functions, simulated systems and properties."""

from __future__ import annotations

import copy
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.document.deployment import Deployment
from engine.document.elements import Batch, Input
from engine.estimation.flow import flow
from engine.estimation.noise.dispersion import cost_noise, dispersion, dispersion_below_grid, largest_service
from engine.estimation.noise.path_kernel import noiseless_stage
from engine.estimation.noise.realisation import realise
from engine.estimation.noise.summary import RealisedQuery

ROOT = Path(__file__).resolve().parents[3]
CASES = Path(os.environ.get("SLUICE_CASES") or ROOT.parent / "shared" / "cases") / "uncertainty"
LOADED = {file.stem: json.loads(file.read_text()) for file in sorted(CASES.glob("*.json"))}

pytestmark = pytest.mark.skipif(not LOADED, reason="no conformance cases (SLUICE_CASES)")


def of_kind(kind: str) -> list[str]:
    return [name for name, case in LOADED.items() if case["kind"] == kind]


def realised(document: dict[str, Any]) -> dict[str, RealisedQuery]:
    deployment = Deployment.parse(document)
    return realise(deployment, flow(deployment, by_input=True))


def cost_numbers(entry: dict[str, Any]) -> list[float]:
    more = {name: entry[name] for name in ("cost_cv2", "cost_dispersion", "cost_dispersion_events") if name in entry}
    batches = tuple(Batch(**batch) for batch in entry.get("batches", []))
    noise = cost_noise(Input(entry["from"], entry["selectivity"], entry["cycles_per_event"], batches=batches, **more))
    errors = [noise.cost_error, noise.output_error, noise.freedom, noise.unsure]
    return [noise.cv2, noise.slow, noise.length, *errors]


def stage(x: list[float], before: list[float], room: float, late: float) -> list[float]:
    return noiseless_stage(np.array(x), np.array(before), np.full(len(x), room), np.full(len(x), late)).tolist()


FUNCTIONS = {
    "dispersion": dispersion,
    "below_grid": dispersion_below_grid,
    "cost_noise": cost_numbers,
    "largest": lambda mean, cv2, events, uniform: float(largest_service(mean, cv2, events, [uniform])[0]),
    "noiseless_stage": stage,
}


@pytest.mark.parametrize("name", of_kind("function"))
def test_function_has_the_expected_value(name: str) -> None:
    case = LOADED[name]
    found = FUNCTIONS[case["function"]](*case["arguments"])
    assert found == pytest.approx(case["expected"], rel=case["tolerance_relative"], abs=1e-12)


@pytest.mark.parametrize("name", of_kind("document"))
def test_realised_latencies_are_those_of_simulations(name: str) -> None:
    case = LOADED[name]
    queries = realised(case["input"])
    for query, expected in case["expected"].items():
        for statistic, quantiles in expected.items():
            found = queries[query].statistics[statistic]
            error = abs(math.log(found.estimate_s / quantiles["q50"]))
            assert error <= case["tolerance"]["log_error"][statistic], (query, statistic)
            assert found.low_s <= quantiles["q25"], (query, statistic)
            assert quantiles["q75"] <= found.high_s, (query, statistic)
            most = 3 * (quantiles["q95"] - quantiles["q05"]) / 2 + 0.35 * quantiles["q50"]
            assert (found.high_s - found.low_s) / 2 <= most, (query, statistic)


@pytest.mark.parametrize("name", of_kind("property"))
def test_property_holds(name: str) -> None:
    case = LOADED[name]
    found = realised(case["input"])["q"]
    if name == "absent-is-assumed":
        given = copy.deepcopy(case["input"])
        given["operators"][0]["inputs"][0]["cost_cv2"] = 1.0
        assert any("op<-s" in str(sentence) for sentence in found.assumed)
        assert found.statistics == realised(given)["q"].statistics
    else:
        narrower = realised(case["compare"])["q"]
        assert any(" s " in str(sentence) for sentence in found.assumed)
        assert found.under_s >= 60
        assert found.statistics["worst"].high_s > narrower.statistics["worst"].high_s
