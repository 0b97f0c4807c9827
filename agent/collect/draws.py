"""Columns of made-up records: the value of record n depends on the seed, the column's name and n alone."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["BLOCK", "draw"]

BLOCK = 4096  #: records drawn at once


def draw(spec: Mapping[str, Any], kind: pa.DataType, *, seed: int, name: str, block: int) -> pa.Array:
    """Values of the records ``block * BLOCK`` to ``(block + 1) * BLOCK - 1`` of one column."""
    ((way, how),) = spec.items()
    if way == "template":
        return _filled(how, seed=seed, name=name, block=block)
    if way == "constant":
        return pa.repeat(pa.scalar(how, kind), BLOCK)
    if way == "sequence":
        numbers = (np.arange(BLOCK, dtype=np.int64) + block * BLOCK) % how
        return pa.array(numbers).cast(kind)
    random = _random(seed, name, block)
    if way in ("choice", "skewed"):
        return _chosen(how, kind, random, skewed=way == "skewed")
    return _numbers(way, how, kind, random)


def _random(seed: int, name: str, block: int) -> np.random.Generator:
    # a counter-based generator goes to any block at once; a block stays far within one step of the counter's next word
    key = np.array([seed % 2**64, zlib.crc32(name.encode())], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=[0, block, 0, 0]))


def _numbers(way: str, how: Sequence[float], kind: pa.DataType, random: np.random.Generator) -> pa.Array:
    first, second = how
    whole = pa.types.is_integer(kind)
    drawn: npt.NDArray[Any]
    if way == "uniform" and whole:
        drawn = random.integers(int(first), int(second), BLOCK, endpoint=True)
    elif way == "uniform":
        drawn = random.uniform(first, second, BLOCK)
    elif way == "normal":
        drawn = random.normal(first, second, BLOCK)
    else:
        drawn = first * np.exp(random.normal(0.0, second, BLOCK))
    return pa.array(np.rint(drawn).astype(np.int64) if whole else drawn).cast(kind)


def _chosen(values: Sequence[Any], kind: pa.DataType, random: np.random.Generator, *, skewed: bool) -> pa.Array:
    if skewed:
        weights = 1.0 / np.arange(1, len(values) + 1)
        numbers = random.choice(len(values), BLOCK, p=weights / weights.sum())
    else:
        numbers = random.integers(0, len(values), BLOCK)
    return pc.take(pa.array(values, kind), pa.array(numbers))


def _filled(how: Mapping[str, Any], *, seed: int, name: str, block: int) -> pa.Array:
    """A text with the parts filled in, each drawn as a column of its own."""
    pieces: list[Any] = []
    for text, part, _, _ in Formatter().parse(how["text"]):
        if text:
            pieces.append(pa.scalar(text))
        if part is not None:
            spec = how["parts"][part]
            drawn = draw(spec, part_type(spec), seed=seed, name=f"{name}.{part}", block=block)
            pieces.append(drawn.cast(pa.string()))
    filled = pc.binary_join_element_wise(*pieces, pa.scalar(""))
    return filled if isinstance(filled, pa.Array) else pa.repeat(filled, BLOCK)


def part_type(spec: Mapping[str, Any]) -> pa.DataType:
    """Whole numbers where all that is said is whole, as a reader of the text would expect."""
    ((way, how),) = spec.items()
    values = how if isinstance(how, list) else [how]
    if any(isinstance(value, str) for value in values):
        return pa.string()
    if all(isinstance(value, bool) for value in values):
        return pa.bool_()
    return pa.int64() if way == "sequence" or all(float(value).is_integer() for value in values) else pa.float64()
