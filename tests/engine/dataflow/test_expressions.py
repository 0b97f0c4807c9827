"""Meaning of expressions: every rule of docs/models/dataflow.md that a batch can show."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.dataflow import Pipeline
from engine.errors import DocumentError
from tests.engine.dataflow.documents import computed, document

LEAST, MOST = -(2**63), 2**63 - 1
Numbers = dict[str, list[Any]]


@pytest.mark.parametrize(
    ("expression", "columns", "expected"),
    [
        ("i + j", {"i": [1, None, MOST, LEAST], "j": [2, 2, 1, -1]}, [3, None, None, None]),
        ("i - j", {"i": [1, LEAST], "j": [2, 1]}, [-1, None]),
        ("i * j", {"i": [3, MOST, LEAST], "j": [4, 2, -1]}, [12, None, None]),
        ("-i", {"i": [3, LEAST]}, [-3, None]),
        ("abs(i)", {"i": [-3, LEAST]}, [3, None]),
        ("i / j", {"i": [7, 7, 0, None], "j": [2, 0, 0, 1]}, [3.5, None, None, None]),
        ("i div j", {"i": [7, -7, 7, LEAST, 7], "j": [2, 2, -2, -1, 0]}, [3, -3, -3, None, None]),
        ("i % j", {"i": [7, -7, 7, LEAST, 7], "j": [2, 2, -2, -1, 0]}, [1, -1, 1, 0, None]),
        ("x * 1e308", {"x": [1.0, 10.0, None]}, [1e308, None, None]),
        ("x + i", {"x": [0.5], "i": [2]}, [2.5]),
        ("x - x", {"x": [math.inf, math.nan, 1.0]}, [None, None, 0.0]),
        ("x", {"x": [math.inf, -math.inf, math.nan, -0.5]}, [None, None, None, -0.5]),
        ("sqrt(x)", {"x": [4.0, -1.0]}, [2.0, None]),
        ("ln(x)", {"x": [1.0, 0.0, -1.0]}, [0.0, None, None]),
        ("power(x, 2)", {"x": [3.0, 1e200]}, [9.0, None]),
        ("exp(x)", {"x": [0.0, 1000.0]}, [1.0, None]),
        ("floor(x)", {"x": [1.5, -1.5, 1e300]}, [1, -2, None]),
        ("ceil(x)", {"x": [1.5, -1.5]}, [2, -1]),
        ("round(x)", {"x": [0.5, -0.5, 2.5, 0.49999999999999994]}, [1, -1, 3, 0]),
        ("floor(i)", {"i": [5]}, [5]),
        ("least(i, j, 3)", {"i": [5, None], "j": [None, None]}, [3, 3]),
        ("greatest(x, i)", {"x": [0.5, None], "i": [2, None]}, [2.0, None]),
        ("cast(x as int64)", {"x": [1.9, -1.9, 9.3e18, 2.0**63]}, [1, -1, None, None]),
        ("cast(s as int64)", {"s": ["12", "-7", "-9223372036854775808"]}, [12, -7, LEAST]),
        ("cast(s as int64)", {"s": ["+7", " 1", "1.5", "0x1f", "", "9223372036854775808", None]}, [None] * 7),
        ("cast(s as float64)", {"s": ["1.5", "-.5", "5.", "1e3"]}, [1.5, -0.5, 5.0, 1000.0]),
        ("cast(s as float64)", {"s": ["1e400", "inf", "nan", "+1", "0x1p3"]}, [None] * 5),
        ("cast(s as bool)", {"s": ["true", "false", "TRUE", "1"]}, [True, False, None, None]),
        (
            "unix_micros(cast(s as timestamp))",
            {"s": ["1970-01-01 00:00:01", "1970-01-01T00:00:01.5Z"]},
            [10**6, 1_500_000],
        ),
        ("unix_micros(cast(s as timestamp))", {"s": ["1970-02-30 00:00:00", "1970-01-01", None]}, [None] * 3),
        ("cast(i as string) || 'a'", {"i": [-5, None]}, ["-5a", None]),
        ("cast(b as int64)", {"b": [True, False, None]}, [1, 0, None]),
        ("timestamp_micros(i) = timestamp '1970-01-01 00:00:02'", {"i": [2_000_000, 1]}, [True, False]),
        ("hour(at)", {"at": [3 * 3_600_000_000 + 5, -1]}, [3, 23]),
        ("minute(at) * 100 + second(at)", {"at": [61_000_000]}, [101]),
        ("b and x > 0", {"b": [True, False, None, None], "x": [None, None, 1.0, -1.0]}, [None, False, None, False]),
        ("b or x > 0", {"b": [True, False, None, None], "x": [None, None, 1.0, -1.0]}, [True, None, True, None]),
        ("not b", {"b": [True, None]}, [False, None]),
        ("i = j", {"i": [1, None, None], "j": [1, 1, None]}, [True, None, None]),
        ("i is null", {"i": [1, None]}, [False, True]),
        ("i is not null and i <> 2", {"i": [1, None, 2]}, [True, False, False]),
        ("i in (1, 2)", {"i": [1, 3, None]}, [True, False, None]),
        ("s not in ('a', 'b')", {"s": ["a", "c", None]}, [False, True, None]),
        ("i between 2 and 3", {"i": [1, 2, 3, None]}, [False, True, True, None]),
        ("case when i > 1 then 'big' when i = 1 then 'one' end", {"i": [2, 1, 0, None]}, ["big", "one", None, None]),
        ("case i when 1 then 1 else 0.5 end", {"i": [1, 2]}, [1.0, 0.5]),
        ("if(i > 1, null, i)", {"i": [2, 1]}, [None, 1]),
        ("coalesce(i, j, 0)", {"i": [None, 1, None], "j": [2, 2, None]}, [2, 1, 0]),
        ("nullif(i, 1)", {"i": [1, 2]}, [None, 2]),
        ("s like 'a_c%'", {"s": ["abc", "a\ncd", "aéc", "ab", None]}, [True, True, True, False, None]),
        ("lower(s)", {"s": ["ÀBc", None]}, ["Àbc", None]),
        ("upper(s)", {"s": ["straße"]}, ["STRAßE"]),
        ("length(s)", {"s": ["é", "a😀"]}, [1, 2]),
        ("trim(s) || '|'", {"s": ["  a\t "]}, ["a\t|"]),
        ("ltrim(s) || rtrim(s)", {"s": [" a "]}, ["a  a"]),
        ("substring(s, 2, 2)", {"s": ["abcd", "a", "😀éx"]}, ["bc", "", "éx"]),
        ("substring(s, 3)", {"s": ["abcd"]}, ["cd"]),
        ("concat(s, '-', s)", {"s": ["a", None]}, ["a-a", None]),
        ("replace(s, '.', '')", {"s": ["1.2.3"]}, ["123"]),
        ("starts_with(s, 'a') and ends_with(s, 'c') and contains(s, '.')", {"s": ["a.c", "abc"]}, [True, False]),
        ("regexp_like(s, '^a.c$')", {"s": ["abc", "a\nc", "abc\n"]}, [True, False, False]),
        ("s rlike '[[]'", {"s": ["[", "a"]}, [True, False]),
        (r"regexp_extract(s, '(\d+)-(\w+)?', 2)", {"s": ["x12-ab", "1-", "a", None]}, ["ab", "", None, None]),
        (r"regexp_extract(s, '\d+', 0)", {"s": ["x12"]}, ["12"]),
        (r"regexp_replace(s, '\s+', ' ')", {"s": ["a \t b\vc"]}, ["a b\vc"]),
        ("i > 1e0", {"i": [1, 2]}, [False, True]),
        ("2 + 3 * 2", {"i": [0, 0]}, [8, 8]),
        ("1 / 0", {"i": [0]}, [None]),
        ("9223372036854775807 + 1", {"i": [0]}, [None]),
    ],
)
def test_expression_evaluates_to(expression: str, columns: Numbers, expected: list[Any]) -> None:
    assert computed(expression, **columns) == expected


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("q = 1 and zz = 2", "q, zz is no column here; allowed: at, b, i"),
        ("ii = 1", "did you mean 'i'?"),
        ("i = 'a'", "given int64 and string; allowed: values of one type"),
        ("i", "a int64; allowed: a condition"),
        ("i = 1 or", "cannot be read"),
        ("i = 1; j = 2", "allowed: one SQL expression"),
        ("i = 1 x", "is not known here"),
        ("i = null", "null has no type here"),
        ("i in (1, j)", "in takes a list of constants"),
        ("i in (select 1)", "is not known here"),
        ("s like 'a\\_'", "without backslash"),
        ("s like 'a' escape 'b'", "is not known here"),
        ("s like s", "a constant text"),
        ("soundex(s) = 'a'", "soundex is not a function here; allowed: abs"),
        ("sum(i) > 1", "aggregates stand in compute alone"),
        ("sum(i) over () > 1", "is not known here"),
        ("length(s, s) = 1", "length is given 2 arguments; allowed: 1"),
        ("substring(s, 0, 1) = 'a'", "substring is given 0; allowed: a whole number from 1"),
        ("replace(s, '', 'a') = 'a'", "an empty text; allowed: at least one character"),
        ("regexp_like(s, '(?=a)')", "allowed: (…), (?:…), (?P<name>…)"),
        ("regexp_replace(s, 'a', '$1') = 'a'", "allowed: a text without"),
        ("regexp_replace(s, 'a*', 'b') = 'a'", "needs a character"),
        ("regexp_extract(s, '(a)', 2) = 'a'", "allowed: a group from 0 to 1"),
        ("cast(x as string) = 'a'", "cast from float64 to string is not known"),
        ("cast(i as timestamp) > at", "allowed: timestamp_micros()"),
        ("cast(i as date) > at", "cast to date is not known; allowed: bool, float64, int64, string, timestamp"),
        ("at > timestamp '2020-13-01 00:00:00'", "allowed: YYYY-MM-DD hh:mm:ss"),
        ("i = 99999999999999999999", "allowed: whole numbers of 64 bits"),
        ("x = 1e999", "allowed: numbers up to 1.79e308"),
        ("b < true", "truth values have no order"),
        ("x % 2 = 0", "% is given a float64; allowed: int64"),
        ("stream.i = 1", "is no column here"),
        ("i is true", "is takes null"),
        ("case when b then null end", "at least one typed value"),
        ("(" * 3000 + "b" + ")" * 990, "allowed:"),
        ("b and " * 700 + "b", "characters; allowed: 4000"),
        ("nullif(" * 30 + "b" + ", b)" * 30, "it is too large once written out; allowed: 2000"),
        ("coalesce(" * 30 + "b" + ", b)" * 30, "it is too large once written out; allowed: 2000"),
        ("b and " * 120 + "b", "nested too deeply; allowed: 100 levels"),
    ],
)
def test_invalid_expression_is_refused_with_the_allowed_ones(where: str, says: str) -> None:
    with pytest.raises(DocumentError) as caught:
        Pipeline.parse(document({"op": "filter", "where": where}))
    (fault,) = caught.value.faults
    assert fault.path == "operators[0].expression.where"
    assert fault.message.startswith("where is ") and says in fault.message, fault.message
