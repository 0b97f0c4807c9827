"""Weights of an ensemble on disk: NAME.npz with arrays, NAME.json with the model card; nothing in them is pickled.

=====================  ==========================================================================================
array                  content
=====================  ==========================================================================================
MEMBER.OUTPUT.column   trees of T, Lp, Le, RO and S, and thresholds, values, base (`engine.costream.residual`)
points, unit           summaries of some runs that were trained on, and the unit of a distance from them
shrinkage              distances between which the residual is shrunk from all to none
factors                on the cost table, per kind of operator: 1 unless a cluster's executions have shown another
offsets                (3, 3) in ln, by what is short and cost: 0 unless executions have shown another
bounds                 (3, `KINDS`, 2): ends of errors by cost and kind of run (`engine.costream.intervals`)
=====================  ==========================================================================================

The card says what the trees were trained on and intervals calibrated on, the ranges of features, errors, and the
SHA-256 of the archive, so that another archive is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from engine.costream.features import FEATURES, TrainingDomain
from engine.costream.intervals import KINDS, SHORTAGES
from engine.costream.residual import COSTS, Arrays, array_shapes
from engine.costream.summary import SUMMARY_COLUMNS
from engine.errors import EngineError, Fault, suggestion
from engine.files import replace_file
from engine.kinds import Anything, Enumeration, Number, String
from engine.query_graph.graph import NOMINAL_PROCESSOR, OPERATOR_KINDS
from engine.query_graph.processors import STREAM_PROCESSORS
from engine.records import BAD, ItemCount, Record
from engine.words import counted

__all__ = [
    "CARD_FORMAT",
    "ModelCard",
    "WeightsError",
    "load_weights",
    "pack_weights",
    "read_card",
    "read_weights",
    "save_weights",
]

# Number of the format of cards and archives that this version reads and writes.
CARD_FORMAT = 2

_MAX_BYTES = 64 * 2**20
_MAX_MEMBERS, _MAX_TREES, _MAX_DEPTH, _MAX_POINTS = 9, 2000, 8, 10_000


class WeightsError(EngineError):
    """Weights that are not those of their card, or of another version."""

    code = "weights"


_Count = Annotated[int, Number(least=0, whole=True)]


@dataclass(frozen=True, kw_only=True)
class ModelCard(Record):
    """Origin of an ensemble, and how far it may be trusted.

    Attributes
    ----------
    version
        Name of the weights, as ``shipped-2``.
    members, cost_trees, vote_trees, depth, points
        Number of members, of trees per cost and per vote, their depth, and training points that are kept.
    simulated, real
        Traces trained on: simulated ones, and runs of real processes.
    calibrated
        Runs by whose errors intervals were calibrated.
    simulator, seed, parameters
        Version of the simulator, seed of the corpus (None: not stated), and hash of the parameters it was made with.
    observed, calibrated_here
        Executions of the user's own cluster that the weights were fitted to, and by which intervals were calibrated.
    processor
        Name of the stream processor of these executions: what they say of costs holds there alone.
    ranges
        Of the features in training, by their names.
    errors
        Errors on runs that were not trained on, by data set; any JSON.
    sha256
        Of the archive.
    """

    TITLE: ClassVar[str] = "a model card"
    JUDGES_PARTS: ClassVar[bool] = True

    format: Annotated[int, Number(least=0, whole=True)] = CARD_FORMAT
    version: Annotated[str, String()]
    members: Annotated[int, Number(least=1, most=_MAX_MEMBERS, whole=True)]
    cost_trees: Annotated[int, Number(least=1, most=_MAX_TREES, whole=True)]
    vote_trees: Annotated[int, Number(least=1, most=_MAX_TREES, whole=True)]
    depth: Annotated[int, Number(least=1, most=_MAX_DEPTH, whole=True)]
    points: Annotated[int, Number(least=3, most=_MAX_POINTS, whole=True)]
    simulated: _Count
    real: _Count
    calibrated: _Count
    observed: _Count = 0
    calibrated_here: _Count = 0
    processor: Annotated[str, Enumeration(tuple(STREAM_PROCESSORS))] = NOMINAL_PROCESSOR
    simulator: Annotated[str, String()]
    seed: _Count | None = None
    parameters: Annotated[str, String()]
    ranges: Mapping[str, Annotated[tuple[Annotated[float, Number(least=0)], ...], ItemCount(2, 2)]]
    errors: Mapping[str, Annotated[object, Anything()]] = field(default_factory=dict)
    sha256: Annotated[str, String(pattern="[0-9a-f]{64}", example="64 hexadecimal digits")] = ""

    def find_faults(self) -> Iterator[Fault]:
        """Ranges of what is no feature."""
        for name in () if self.ranges is BAD else self.ranges:
            if name not in FEATURES:
                near = suggestion(name, list(FEATURES)) or f"; allowed: {', '.join(FEATURES)}"
                yield Fault(f"ranges.{name}", f"{name} is not a field of ranges{near}")

    @property
    def domain(self) -> TrainingDomain:
        """Ranges of features that the ensemble was trained on."""
        return TrainingDomain({name: (low, high) for name, (low, high) in self.ranges.items()})

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the archive's arrays."""
        trees = array_shapes(self.members, self.cost_trees, self.vote_trees, self.depth, self.points)
        costs = len(COSTS)
        own = {"unit": (1,), "shrinkage": (2,), "factors": (len(OPERATOR_KINDS),)}
        return trees | own | {"offsets": (SHORTAGES, costs), "bounds": (costs, KINDS, 2)}

    @property
    def line(self) -> str:
        """The sentence that goes with every prediction."""
        seed = "not stated" if self.seed is None else self.seed
        trained = (
            f"The fluid with a residual that was trained on {self.simulated:,} simulated traces (simulator "
            f"{self.simulator}, seed {seed}, parameters {self.parameters[:12]}) and "
            f"{counted(self.real, 'real execution')}, its intervals calibrated on {self.calibrated:,} others"
        )
        here = f"fitted to {counted(self.observed, 'observed execution')} of this cluster"
        return f"{trained}; {here}, and calibrated on {self.calibrated_here:,} more of it."


def read_card(document: Any) -> ModelCard:
    """Read a model card.

    Raises
    ------
    WeightsError
        If it is of another format.
    DocumentError
        With every other fault.
    """
    number = document.get("format") if isinstance(document, Mapping) else None
    if isinstance(number, int) and number != CARD_FORMAT:
        raise WeightsError(f"The model card has format {number}; this version of Sluice reads format {CARD_FORMAT}")
    return ModelCard.parse(document)


def pack_weights(arrays: Arrays, card: ModelCard) -> tuple[bytes, ModelCard]:
    """Archive of an ensemble's arrays, and the card that belongs to it.

    The same arrays always give the same bytes.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in card.shapes:
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w") as file:
                np.lib.format.write_array(file, np.ascontiguousarray(arrays[name]), allow_pickle=False)
    data = buffer.getvalue()
    return data, replace(card, sha256=hashlib.sha256(data).hexdigest())


def read_weights(data: bytes, card: ModelCard) -> dict[str, npt.NDArray[Any]]:
    """Arrays of an ensemble, as its card describes them.

    Raises
    ------
    WeightsError
        If the archive is not the card's, or holds other arrays, numbers that are not finite, or columns that a summary
        does not have. Its faults name each array.
    """
    digest = hashlib.sha256(data).hexdigest()
    if digest != card.sha256:
        raise WeightsError(
            f"The weights have SHA-256 {digest[:12]}…, the model card of {card.version} names {card.sha256[:12]}…: "
            "one of the two files was changed"
        )
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:  # whatever zipfile and NumPy make of a damaged archive
        raise WeightsError(f"The weights cannot be read: {error}") from None
    faults = [*_missing(arrays, card.shapes), *_wrong(arrays, card.shapes)]
    if faults:
        raise WeightsError(f"The weights do not fit the model card: {faults[0]}", faults)
    return arrays


def _missing(arrays: Arrays, expected: Mapping[str, tuple[int, ...]]) -> list[Fault]:
    missing = [Fault(name, f"{name} is missing") for name in expected if name not in arrays]
    return missing + [Fault(name, f"{name} is not an array of this model") for name in arrays if name not in expected]


def _wrong(arrays: Arrays, expected: Mapping[str, tuple[int, ...]]) -> list[Fault]:
    faults = []
    for name in expected.keys() & arrays.keys():
        array = arrays[name]
        kind = np.dtype(np.uint8) if name.endswith(".column") else np.dtype(np.float32)
        if array.dtype != kind or array.shape != expected[name]:
            message = f"{name} is {array.dtype} of shape {array.shape}; allowed: {kind} of {expected[name]}"
            faults.append(Fault(name, message))
        elif not np.isfinite(array).all():
            faults.append(Fault(name, f"{name} holds a number that is not finite"))
        elif name.endswith(".column") and array.max() >= len(SUMMARY_COLUMNS):
            message = f"{name} asks for column {array.max()}; allowed: below {len(SUMMARY_COLUMNS)}"
            faults.append(Fault(name, message))
        elif name in ("unit", "factors") and not (array > 0).all():
            faults.append(Fault(name, f"{name} has {array.min():g}; allowed: above 0"))
        elif name == "shrinkage" and not array[0] < array[1]:
            faults.append(Fault(name, f"{name} is {array[0]:g} to {array[1]:g}; allowed: from less to more"))
    return sorted(faults, key=lambda fault: fault.path)


def save_weights(path: Path, arrays: Arrays, card: ModelCard) -> ModelCard:
    """Write ``path`` (.npz) and the card beside it (.json); returns the card with the archive's hash."""
    data, card = pack_weights(arrays, card)
    replace_file(path, data, mode=0o644)
    replace_file(path.with_suffix(".json"), (json.dumps(card.to_dict(), indent=1) + "\n").encode(), mode=0o644)
    return card


def load_weights(path: Path) -> tuple[dict[str, npt.NDArray[Any]], ModelCard]:
    """Arrays and card of ``path`` (.npz).

    Raises
    ------
    WeightsError
        If a file is missing or too large, or the two do not belong together (`read_weights`).
    DocumentError
        With every fault of the card.
    """
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise WeightsError(f"{path.name} has {size:,} bytes; allowed: {_MAX_BYTES:,}")
        data, text = path.read_bytes(), path.with_suffix(".json").read_text()
    except OSError as error:
        raise WeightsError(f"{error.filename} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise WeightsError(f"The model card {path.with_suffix('.json').name} is not text: {error}") from None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"The model card {path.with_suffix('.json').name} is not JSON: {error}") from None
    card = read_card(document)
    return read_weights(data, card), card
