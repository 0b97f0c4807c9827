"""Quantile sketches: counts of logarithmic buckets, whose relative error is bounded.

A value x > 0 is in bucket ceil(ln x / ln gamma), and every value of a bucket is within alpha of its middle. Counting is
all that happens, so sketches merge exactly, in any order: a quantile does not depend on where its values were counted.

References
----------
C. Masson, J. E. Rim, H. K. Lee: DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees.
PVLDB 12 (2019), section 2.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "ALPHA",
    "GAMMA",
    "MAX_COUNT",
    "MULTIPLIER",
    "OFFSET",
    "SKETCH_TYPE",
    "bucket_of",
    "is_sound",
    "merge_sketches",
    "quantile",
    "sketches",
]

ALPHA: Final = 0.01
GAMMA: Final = (1 + ALPHA) / (1 - ALPHA)
#: ln x * MULTIPLIER is the logarithm to base gamma.
MULTIPLIER: Final = 1 / math.log(GAMMA)
#: Bucket of x > 0: its key + OFFSET; of 0: 0; of x < 0: that of -x, negated. Keys reach from -37,220 to 35,489.
OFFSET: Final = 40_000
MAX_COUNT: Final = 2**40  #: in one partial; sums of millions of them fit into 64 bits
SKETCH_TYPE: Final = pa.list_(pa.struct([("bucket", pa.int32()), ("count", pa.int64())]))

_NONE: Final = -(2**17)  # the bucket of null, below all others
_BITS: Final = 18  # of a bucket above `_NONE`
_PARTS: Final = list(SKETCH_TYPE.value_type)
_MIDDLE: Final = math.log(2 / (1 + GAMMA))
_LARGEST: Final = math.log(np.finfo(np.float64).max)

IntArray = np.ndarray[Any, np.dtype[np.int64]]
FloatArray = np.ndarray[Any, np.dtype[np.float64]]


def bucket_of(values: pa.Array) -> pa.Array:
    """The bucket of every value, shape (n,), int32; `_NONE` for null and for what is not finite."""
    x = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)  # null as NaN
    with np.errstate(divide="ignore", invalid="ignore"):
        key = np.ceil(np.log(np.abs(x)) * MULTIPLIER) + OFFSET
        bucket = np.where(x == 0, 0.0, np.copysign(key, x))
    bucket[~np.isfinite(x)] = _NONE
    return pa.array(bucket.astype(np.int32))


def is_sound(column: pa.ListArray) -> bool:
    """Whether a column of sketches from elsewhere is one: buckets that values have, with counts from 1 on."""
    parts = column.flatten()
    bucket, count = parts.field("bucket"), parts.field("count")
    if parts.null_count or bucket.null_count or count.null_count:
        return False
    if not len(parts):
        return True
    buckets, counts = pc.min_max(bucket).as_py(), pc.min_max(count).as_py()
    return buckets["min"] > _NONE and buckets["max"] < -_NONE and counts["min"] >= 1 and counts["max"] <= MAX_COUNT


def sketches(buckets: pa.ListArray) -> pa.ListArray:
    """One sketch for each list of buckets."""
    bucket = buckets.flatten().to_numpy()
    code = _codes(_parents(buckets), bucket)
    if bucket.min(initial=0) == _NONE:
        code = code[bucket != _NONE]
    code.sort()
    first = _firsts(code)
    ends = np.append(first[1:], len(code))[: len(first)]
    return _lists(code[first], ends - first, len(buckets))


def merge_sketches(column: pa.ListArray, rows: pa.ListArray) -> pa.ListArray:
    """One sketch for each list of row numbers: those rows' sketches added up."""
    owner = np.empty(len(column), dtype=np.int64)
    owner[rows.flatten().to_numpy()] = _parents(rows)
    parts = column.flatten()
    lengths = column.value_lengths().fill_null(0).to_numpy()
    code = _codes(np.repeat(owner, lengths), parts.field("bucket").to_numpy())
    order = np.argsort(code, kind="stable")
    code, counts = code[order], parts.field("count").to_numpy()[order]
    first = _firsts(code)
    added = np.add.reduceat(counts, first) if len(first) else counts
    return _lists(code[first], added, len(rows))


def _parents(lists: pa.ListArray) -> IntArray:
    """The number of the list that each flattened item came from."""
    lengths = np.diff(lists.offsets.to_numpy())
    return np.repeat(np.arange(len(lists), dtype=np.int64), lengths)


def _codes(parents: IntArray, bucket: Any) -> IntArray:
    """Owner and bucket as one number, in the order of both."""
    code: IntArray = (parents << _BITS) + (bucket.astype(np.int64) - _NONE)
    return code


def _firsts(code: IntArray) -> IntArray:
    """First index of each distinct number of a sorted array."""
    new = np.empty(len(code), dtype=bool)
    new[:1] = True
    np.not_equal(code[1:], code[:-1], out=new[1:])
    return new.nonzero()[0]


def _lists(code: IntArray, counts: IntArray, length: int) -> pa.ListArray:
    """Lists of (bucket, count), buckets ascending, of ascending codes; whole numbers, so nothing is rounded."""
    bucket = ((code & (2**_BITS - 1)) + _NONE).astype(np.int32)
    offsets = np.searchsorted(code, np.arange(length + 1) << _BITS).astype(np.int32)
    parts = pa.StructArray.from_arrays([pa.array(bucket), pa.array(counts)], fields=_PARTS)
    return pa.ListArray.from_arrays(pa.array(offsets), parts, type=SKETCH_TYPE)


def quantile(column: pa.ListArray, share: float) -> pa.Array:
    """The quantile of every sketch, shape (n,), float64; null for a sketch of nothing.

    Parameters
    ----------
    column
        Sketches, shape (n,).
    share
        Between 0 (least value) and 1 (largest).

    Notes
    -----
    It is within 1 % of the value at rank floor(share (count - 1)) of the sorted values.
    """
    parts = column.flatten()
    lengths = column.value_lengths().fill_null(0).to_numpy()
    ends = np.cumsum(lengths)
    total = np.concatenate([[0], np.cumsum(parts.field("count").to_numpy())])
    before, after = total[ends - lengths], total[ends]
    rank = before + share * np.maximum(after - before - 1, 0)
    at = np.searchsorted(total[1:], rank, side="right")
    some = after > before
    bucket = parts.field("bucket").to_numpy()[at[some]].astype(np.float64)
    values = np.zeros(len(column))
    exponent = (np.abs(bucket) - OFFSET) / MULTIPLIER + _MIDDLE
    values[some] = np.where(bucket == 0, 0.0, np.copysign(np.exp(np.minimum(exponent, _LARGEST)), bucket))
    return pa.array(values, mask=~some)
