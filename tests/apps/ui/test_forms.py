"""Fields of forms: sizes typed with a unit."""

from __future__ import annotations

import pytest
from django import forms
from hypothesis import given
from hypothesis import strategies as st

from apps.ui.forms import MemoryField

FIELD = MemoryField(required=False)


@pytest.mark.parametrize(
    ("typed", "size"),
    [
        ("32 GiB", 32 * 2**30),
        ("32GB", 32 * 10**9),
        ("1.5 tib", 1536 * 2**30),
        ("512 m", 512 * 10**6),
        ("34,359,738,368", 32 * 2**30),
        ("900 B", 900),
        ("", None),
    ],
)
def test_size_is_read_with_its_unit(typed: str, size: int | None) -> None:
    assert FIELD.clean(typed) == size


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("32", "has no unit: enter it with one, such as 32 GiB"),
        ("much", "is no size"),
        ("1.2.3 GB", "is no size"),
        ("-3 GB", "is no size"),
        ("0 B", "is out of range"),
        ("9,999,999 TiB", "is out of range"),
    ],
)
def test_what_is_no_size_is_refused_with_an_example(typed: str, words: str) -> None:
    with pytest.raises(forms.ValidationError) as error:
        FIELD.clean(typed)
    (message,) = error.value.messages
    assert words in message
    assert f"“{typed}”" in message


@given(st.integers(min_value=1, max_value=2**60))
def test_a_stored_size_is_typed_back_exactly(size: int) -> None:
    assert FIELD.clean(FIELD.prepare_value(size)) == size
