"""Weights of an ensemble on disk: NAME.npz with the parameters, NAME.json with the model card.

The archive holds one float32 or float16 array per parameter of each member, named ``MEMBER.PARAMETER`` as in
``0.encoder.source.0.weight`` (names and shapes: `engine.costream.network.parameter_shapes`); nothing in it is pickled.
The card says what the members were trained on, the ranges of their features, the scale of the intervals, errors, and
the SHA-256 of the archive, so that another archive is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from engine.costream.batch import FORMS, Float32Array
from engine.costream.features import FEATURES, TrainingDomain
from engine.costream.network import parameter_shapes
from engine.errors import EngineError, Fault, suggestion
from engine.files import replace_file
from engine.kinds import Anything, Enumeration, Number, String
from engine.records import BAD, ItemCount, Record
from engine.words import counted

__all__ = [
    "CARD_FORMAT",
    "Member",
    "ModelCard",
    "WeightsError",
    "load_weights",
    "pack_weights",
    "read_card",
    "read_weights",
    "save_weights",
]

# Number of the format of cards and archives that this version reads and writes.
CARD_FORMAT = 1

Member = Mapping[str, npt.NDArray[Any]]

_MAX_BYTES = 64 * 2**20
_MAX_MEMBERS = 9
_MAX_HIDDEN = 1024
_SCALED = ("T", "Lp", "Le")


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
        Name of the weights, as ``shipped-1``.
    form, hidden, members
        One of `FORMS`, width H, number of networks.
    simulated, real
        Traces trained on: simulated ones, and runs of real processes.
    simulator, seed, parameters
        Version of the simulator, seed of the corpus (None: not stated), and hash of the parameters it was made with.
    observed
        Executions of the user's own cluster that the weights were tuned on.
    interval_scale
        Per metric T, Lp and Le the factor of split-conformal scaling: both halves of the 80 % interval, in ln, are
        multiplied by it.
    ranges
        Of the features in training, by their names.
    errors
        Errors on traces that were not trained on, by data set; any JSON.
    sha256
        Of the archive.
    """

    TITLE: ClassVar[str] = "a model card"
    JUDGES_PARTS: ClassVar[bool] = True

    format: Annotated[int, Number(least=0, whole=True)] = CARD_FORMAT
    version: Annotated[str, String()]
    form: Annotated[str, Enumeration(FORMS)]
    hidden: Annotated[int, Number(least=1, most=_MAX_HIDDEN, whole=True)]
    members: Annotated[int, Number(least=1, most=_MAX_MEMBERS, whole=True)]
    simulated: _Count
    real: _Count
    observed: _Count = 0
    simulator: Annotated[str, String()]
    seed: _Count | None = None
    parameters: Annotated[str, String()]
    interval_scale: Mapping[str, Annotated[float, Number(above=0)]]
    ranges: Mapping[str, Annotated[tuple[Annotated[float, Number(least=0)], ...], ItemCount(2, 2)]]
    errors: Mapping[str, Annotated[object, Anything()]] = field(default_factory=dict)
    sha256: Annotated[str, String(pattern="[0-9a-f]{64}", example="64 hexadecimal digits")] = ""

    def find_faults(self) -> Iterator[Fault]:
        """Metrics without a scale, and what is neither a metric nor a feature."""
        scales, ranges = ({} if names is BAD else names for names in (self.interval_scale, self.ranges))
        for name in _SCALED:
            if name not in scales:
                yield Fault(f"interval_scale.{name}", f"{name} is missing; scales needs it")
        for place, what, names, known in (
            ("interval_scale", "scales", scales, _SCALED),
            ("ranges", "ranges", ranges, FEATURES),
        ):
            for name in names:
                if name not in known:
                    near = suggestion(name, list(known)) or f"; allowed: {', '.join(known)}"
                    yield Fault(f"{place}.{name}", f"{name} is not a field of {what}{near}")

    @property
    def domain(self) -> TrainingDomain:
        """Ranges of features that the ensemble was trained on."""
        return TrainingDomain({name: (low, high) for name, (low, high) in self.ranges.items()})

    @property
    def line(self) -> str:
        """The sentence that goes with every prediction."""
        seed = "not stated" if self.seed is None else self.seed
        trained = (
            f"Trained on {self.simulated:,} simulated traces (simulator {self.simulator}, seed {seed}, parameters "
            f"{self.parameters[:12]}) and {counted(self.real, 'real execution')}"
        )
        return f"{trained}; fine-tuned on {counted(self.observed, 'observed execution')} of this cluster."


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


def pack_weights(members: Sequence[Member], card: ModelCard) -> tuple[bytes, ModelCard]:
    """Archive of the members' parameters, and the card that belongs to it.

    The same parameters always give the same bytes.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for i, member in enumerate(members):
            for name in parameter_shapes(card.form, card.hidden):
                entry = zipfile.ZipInfo(f"{i}.{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                with archive.open(entry, "w") as file:
                    np.lib.format.write_array(file, np.ascontiguousarray(member[name]), allow_pickle=False)
    data = buffer.getvalue()
    return data, replace(card, members=len(members), sha256=hashlib.sha256(data).hexdigest())


def read_weights(data: bytes, card: ModelCard) -> tuple[dict[str, Float32Array], ...]:
    """Parameters of each member, as float32.

    Raises
    ------
    WeightsError
        If the archive is not the card's, or holds other parameters than its form and width need, or numbers that are
        not finite. Its faults name each parameter.
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
    expected = {
        f"{i}.{name}": shape
        for i in range(card.members)
        for name, shape in parameter_shapes(card.form, card.hidden).items()
    }
    faults = [*_missing(arrays, expected), *_wrong(arrays, expected)]
    if faults:
        raise WeightsError(f"The weights do not fit the model card: {faults[0]}", faults)
    return tuple(
        {name: arrays[f"{i}.{name}"].astype(np.float32) for name in parameter_shapes(card.form, card.hidden)}
        for i in range(card.members)
    )


def _missing(arrays: Member, expected: Mapping[str, tuple[int, ...]]) -> list[Fault]:
    missing = [Fault(name, f"{name} is missing") for name in expected if name not in arrays]
    return missing + [Fault(name, f"{name} is not a parameter of this form") for name in arrays if name not in expected]


def _wrong(arrays: Mapping[str, npt.NDArray[Any]], expected: Mapping[str, tuple[int, ...]]) -> list[Fault]:
    faults = []
    for name in expected.keys() & arrays.keys():
        array = arrays[name]
        if array.dtype not in (np.float32, np.float16) or array.shape != expected[name]:
            message = f"{name} is {array.dtype} of shape {array.shape}; allowed: float32 or float16 of {expected[name]}"
            faults.append(Fault(name, message))
        elif not np.isfinite(array).all():
            faults.append(Fault(name, f"{name} holds a number that is not finite"))
    return sorted(faults, key=lambda fault: fault.path)


def save_weights(path: Path, members: Sequence[Member], card: ModelCard) -> ModelCard:
    """Write ``path`` (.npz) and the card beside it (.json); returns the card with the archive's hash."""
    data, card = pack_weights(members, card)
    replace_file(path, data, mode=0o644)
    replace_file(path.with_suffix(".json"), (json.dumps(card.to_dict(), indent=1) + "\n").encode(), mode=0o644)
    return card


def load_weights(path: Path) -> tuple[tuple[dict[str, Float32Array], ...], ModelCard]:
    """Parameters and card of ``path`` (.npz).

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
