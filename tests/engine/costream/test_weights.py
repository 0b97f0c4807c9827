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

from engine.costream.network import initial_parameters
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
from tests.engine.costream.ensembles import make_card

MEMBERS = [initial_parameters("recommended", 8, seed) for seed in range(3)]


def test_saved_weights_are_loaded_with_their_card(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    card = save_weights(path, MEMBERS, make_card())
    members, loaded = load_weights(path)
    assert loaded == card
    assert [sorted(member) for member in members] == [sorted(member) for member in MEMBERS]
    for member, original in zip(members, MEMBERS, strict=True):
        assert all((member[name] == original[name]).all() for name in original)


def test_same_parameters_give_the_same_bytes() -> None:
    assert pack_weights(MEMBERS, make_card()) == pack_weights(MEMBERS, make_card())


def test_half_precision_is_read_as_single() -> None:
    halves = [{name: array.astype(np.float16) for name, array in member.items()} for member in MEMBERS]
    data, card = pack_weights(halves, make_card())
    assert {array.dtype for member in read_weights(data, card) for array in member.values()} == {np.dtype("float32")}


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.npz"
    save_weights(path, MEMBERS, make_card())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(WeightsError, match="one of the two files was changed"):
        load_weights(path)


def test_card_of_another_format_is_refused() -> None:
    document = pack_weights(MEMBERS, make_card())[1].to_dict()
    with pytest.raises(WeightsError, match=f"has format 2; this version of Sluice reads format {CARD_FORMAT}"):
        read_card(document | {"format": 2})


def test_faults_of_a_card_are_told_at_once() -> None:
    document = pack_weights(MEMBERS, make_card())[1].to_dict()
    document |= {"form": "newest", "simulated": -1, "sha256": "abc"}
    del document["interval_scale"]["Lp"]
    document["ranges"]["host.colour"] = [0, 1]
    with pytest.raises(DocumentError) as refused:
        read_card(document)
    paths = {fault.path for fault in refused.value.faults}
    assert paths == {"form", "simulated", "sha256", "interval_scale.Lp", "ranges.host.colour"}


def _with(name: str, array: np.ndarray | None) -> list[dict[str, Any]]:
    first = {key: value for key, value in MEMBERS[0].items() if key != name}
    return [first | ({} if array is None else {name: array}), *MEMBERS[1:]]


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((8, 3), dtype=np.float32), "of shape (8, 3); allowed: float32 or float16 of (8, 13)"),
        (np.zeros((8, 13)), "is float64"),
        (np.full((8, 13), np.nan, dtype=np.float32), "not finite"),
    ],
)
def test_parameters_that_do_not_fit_are_named(array: np.ndarray, words: str) -> None:
    data, card = pack_weights(_with("encoder.source.0.weight", array), make_card())
    with pytest.raises(WeightsError) as refused:
        read_weights(data, card)
    (fault,) = refused.value.faults
    assert fault.path == "0.encoder.source.0.weight"
    assert words in fault.message


def test_weights_of_the_other_form_or_width_are_refused() -> None:
    data, card = pack_weights(MEMBERS, make_card())
    for other in (replace(card, form="plain"), replace(card, hidden=16), replace(card, members=2)):
        with pytest.raises(WeightsError, match="do not fit the model card"):
            read_weights(data, other)


def test_pickled_arrays_are_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, archive.open("0.encoder.source.0.weight.npy", "w") as file:
        np.lib.format.write_array(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    data, card = pack_weights(MEMBERS, make_card())
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
    save_weights(path, MEMBERS, make_card())
    path.with_suffix(".json").write_text("{")
    with pytest.raises(WeightsError, match=r"net\.json is not JSON"):
        load_weights(path)


def test_card_says_what_it_was_trained_on() -> None:
    card = replace(make_card(), simulated=36_000, observed=1)
    assert card.line == (
        "Trained on 36,000 simulated traces (simulator none, seed 7, parameters 0123456789ab) and 0 real executions; "
        "fine-tuned on 1 observed execution of this cluster."
    )
    assert json.loads(json.dumps(card.to_dict()))["ranges"]["query.joins"] == [1, 1]
