"""Weights on disk: what was saved is loaded; files that were changed, or are of another version, are refused."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.costream.weights import (
    CARD_FORMAT,
    WeightsError,
    load_weights,
    pack_weights,
    read_card,
    read_weights,
    save_weights,
)
from engine.errors import DocumentError
from tests.engine.costream.ensembles import make_arrays, make_card

ARRAYS = make_arrays()


def test_saved_weights_are_loaded_with_their_card(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    card = save_weights(path, ARRAYS, make_card())
    arrays, loaded = load_weights(path)
    assert loaded == card
    assert arrays.keys() == ARRAYS.keys()
    assert all((arrays[name] == original).all() for name, original in ARRAYS.items())


def test_same_parameters_give_the_same_bytes() -> None:
    assert pack_weights(ARRAYS, make_card()) == pack_weights(ARRAYS, make_card())


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    save_weights(path, ARRAYS, make_card())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(WeightsError, match="one of the two files was changed"):
        load_weights(path)


def test_card_of_another_format_is_refused() -> None:
    document = pack_weights(ARRAYS, make_card())[1].to_dict()
    with pytest.raises(WeightsError, match=f"has format 1; this version of Sluice reads format {CARD_FORMAT}"):
        read_card(document | {"format": 1})


def test_faults_of_a_card_are_told_at_once() -> None:
    document = pack_weights(ARRAYS, make_card())[1].to_dict()
    document |= {"depth": 99, "simulated": -1, "sha256": "abc"}
    document["ranges"]["host.colour"] = [0, 1]
    with pytest.raises(DocumentError) as refused:
        read_card(document)
    paths = {fault.path for fault in refused.value.faults}
    assert paths == {"depth", "simulated", "sha256", "ranges.host.colour"}


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("0.T.value", np.zeros((4, 3), dtype=np.float32), "of shape (4, 3); allowed: float32 of (4, 4)"),
        ("0.T.value", np.zeros((4, 4)), "is float64"),
        ("0.T.value", np.full((4, 4), np.nan, dtype=np.float32), "not finite"),
        ("0.T.column", np.full((4, 3), 200, dtype=np.uint8), "asks for column 200; allowed: below"),
        ("factors", np.zeros(5, dtype=np.float32), "has 0; allowed: above 0"),
        ("shrinkage", np.zeros(2, dtype=np.float32), "is 0 to 0; allowed: from less to more"),
    ],
)
def test_arrays_that_do_not_fit_are_named(name: str, array: np.ndarray, words: str) -> None:
    data, card = pack_weights(ARRAYS | {name: array}, make_card())
    with pytest.raises(WeightsError) as refused:
        read_weights(data, card)
    (fault,) = refused.value.faults
    assert fault.path == name
    assert words in fault.message


def test_weights_of_other_members_or_depth_are_refused() -> None:
    data, card = pack_weights(ARRAYS, make_card())
    for other in (replace(card, depth=3), replace(card, points=9), replace(card, members=2)):
        with pytest.raises(WeightsError, match="do not fit the model card"):
            read_weights(data, other)


def test_pickled_arrays_are_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, archive.open("0.T.value.npy", "w") as file:
        np.lib.format.write_array(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    data, card = pack_weights(ARRAYS, make_card())
    with pytest.raises(WeightsError, match="cannot be read"):
        _read_as(buffer.getvalue(), card)
    with pytest.raises(WeightsError, match="cannot be read"):
        _read_as(data[:100], card)


def _read_as(data: bytes, card: Any) -> None:
    import hashlib

    read_weights(data, replace(card, sha256=hashlib.sha256(data).hexdigest()))


def test_missing_or_broken_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    with pytest.raises(WeightsError, match=r"net\.npz cannot be read"):
        load_weights(path)
    save_weights(path, ARRAYS, make_card())
    path.with_suffix(".json").write_text("{")
    with pytest.raises(WeightsError, match=r"net\.json is not JSON"):
        load_weights(path)


def test_card_says_what_it_was_trained_on() -> None:
    card = make_card(simulated=36_000, observed=1, calibrated=2_000, calibrated_here=30)
    assert card.line == (
        "The fluid with a residual that was trained on 36,000 simulated traces (simulator 1, seed 7, parameters "
        "abababababab) and 0 real executions, its intervals calibrated on 2,000 others; fitted to 1 observed execution "
        "of this cluster, and calibrated on 30 more of it."
    )
    assert json.loads(json.dumps(card.to_dict()))["ranges"]["query.joins"] == [1, 1]
