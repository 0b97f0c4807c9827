"""Every function and operator of expressions means the same by pyarrow and by Spark SQL."""

from __future__ import annotations

import re
from typing import Any

import pytest

from engine.dataflow import Pipeline
from engine.dataflow.arrow.kernels import row_kernel
from engine.dataflow.expressions.functions import FUNCTIONS, OPERATORS
from tests.spark.batches import batch, differences, pipeline_of
from tests.spark.spark_sql import select

EXPRESSIONS = {
    "arithmetic of whole numbers": [
        *(
            "i + j",
            "i - j",
            "i * j",
            "i div j",
            "i % j",
            "-i",
            "abs(i)",
            "i + 1",
            "i * 3 - j",
            "i div 0",
            "i % 0",
            "i div -1",
        ),
        "ceil(i)",
        "floor(i)",
        "round(i)",
        "greatest(i, j, 0)",
        "least(i, j)",
        "9223372036854775807 + i",
        "i % -1",
        "-9223372036854775808 - i",
    ],
    "arithmetic of floats": [
        *(
            "x + y",
            "x - y",
            "x * y",
            "x / y",
            "i / j",
            "-x",
            "abs(x)",
            "x + i",
            "i * 0.5",
            "x / 0",
            "1e308 * x",
            "2.5 - x",
        ),
        "ceil(x)",
        "floor(x)",
        "round(x)",
        "greatest(x, y)",
        "least(x, y, 0)",
        "ceil(x / 3)",
        "round(x * 10)",
    ],
    "functions of floats": [
        *(
            "exp(x)",
            "ln(x)",
            "log10(x)",
            "sqrt(x)",
            "power(x, y)",
            "power(x, 2)",
            "power(2, i)",
            "ln(i)",
            "sqrt(abs(y))",
        ),
    ],
    "comparisons": [
        *(
            "i = j",
            "i <> j",
            "i < j",
            "i <= j",
            "i > j",
            "i >= j",
            "x = y",
            "x <> y",
            "x < y",
            "x >= y",
            "i < x",
            "x = 0",
        ),
        *(
            "s = t",
            "s < t",
            "s >= t",
            "b = c",
            "b <> c",
            "at < later",
            "at = later",
            "i between 0 and j",
            "x not between 0 and 1",
        ),
        "at > cast('2000-01-01 00:00:00' as timestamp)",
        "s between 'a' and 'b'",
    ],
    "logic": [
        *(
            "b and c",
            "b or c",
            "not b",
            "not (b and c)",
            "b is null",
            "i is not null",
            "b and i > 0",
            "i > 0 or x is null",
        ),
        "if(b, i, j)",
        "case when b then 'one' when c then s end",
        "case i when 1 then x when 2 then y else 0 end",
        *(
            "coalesce(i, j, 0)",
            "coalesce(s, t)",
            "nullif(i, j)",
            "nullif(x, 0)",
            "case when i > 0 then null else x end",
        ),
    ],
    "membership": [
        "i in (0, 1, 2)",
        "i not in (0, 9223372036854775807)",
        "x in (0, 0.5, -1)",
        "s in ('a', '', 'Zürich')",
        "x in (-0.0, 7)",
        "x in (-0.0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5)",
    ],
    "conversions": [
        "cast(i as float64)",
        "cast(i as string)",
        "cast(x as int64)",
        "cast(b as int64)",
        "cast(b as string)",
        "cast(s as int64)",
        "cast(s as float64)",
        "cast(s as bool)",
        "cast(s as timestamp)",
        "cast(t as double)",
    ],
    "texts": [
        "s || t",
        "concat(s, '-', t)",
        "length(s)",
        "lower(s)",
        "upper(s)",
        "trim(s)",
        "ltrim(s)",
        "rtrim(s)",
        "contains(s, 'a')",
        "contains(s, '')",
        "starts_with(s, 'a')",
        "ends_with(s, 'c')",
        "starts_with(s, '')",
        "substring(s, 1, 2)",
        "substring(s, 2)",
        "substring(s, 3, 0)",
        "substring(s, 9, 4)",
        "replace(s, 'X', '--')",
        "replace(s, '${user}', 'it''s')",
        "replace(s, 'a', '')",
        "contains(s, '日')",
        "s || '${user}\n'",
    ],
    "patterns": [
        *(
            "s like 'a%'",
            "s like '%b_'",
            "s like '_'",
            "s not like '%X%'",
            "s like ''",
            "s like '100%'",
            "s like '%.%'",
        ),
        "s like 'line%break'",
        "s like 'a__'",
        "s like '%🙂%'",
        "regexp_like(s, '^[0-9]+$')",
        "s rlike 'b|c'",
        r"regexp_like(s, '\d')",
        r"regexp_like(s, '\s')",
        "regexp_like(s, '^a.*c$')",
        "regexp_like(s, '.')",
        r"regexp_extract(s, '(\w+)=(\w*)', 2)",
        r"regexp_extract(s, '(a)|(b)', 2)",
        r"regexp_extract(s, '\S+', 0)",
        r"regexp_replace(s, '[aX]+', '.')",
        r"regexp_replace(s, '\W', '')",
        r"regexp_extract(s, '([^ ]+) ?', 1)",
        *(
            "regexp_like(s, '[a-c]{2,3}')",
            "regexp_like(s, '(?:ab)+?c')",
            "regexp_extract(s, '^(.)', 1)",
            "s rlike 'break$'",
        ),
    ],
    "times": [
        "hour(at)",
        "minute(at)",
        "second(at)",
        "unix_micros(at)",
        "timestamp_micros(n * 1000000)",
        "hour(later)",
        "timestamp_micros(unix_micros(at) + 1)",
    ],
}


@pytest.mark.parametrize("group", EXPRESSIONS)
def test_expressions_mean_the_same(spark: Any, group: str) -> None:
    named = {f"c{k:02}": expression for k, expression in enumerate(EXPRESSIONS[group])}
    pipeline = Pipeline.parse(pipeline_of({"op": "project", "columns": {"n": "n"} | named}))
    for seed, rows in ((1, 600), (2, 0)):
        records = batch(seed, rows)
        expected = row_kernel(pipeline, 0).run(records)
        spark.createDataFrame(records).createOrReplaceTempView("records")
        found = spark.sql(select(pipeline, 0, "records")).toArrow()
        wrong = differences(expected, found, ["n"], shown=5)
        assert not wrong, "\n".join(_told(line, named, records) for line in wrong)


def _told(line: str, named: dict[str, str], records: Any) -> str:
    name, row = re.match(r"(\w+)(?:.*'n': (\d+))?", line).groups()
    values = records.slice(int(row), 1).to_pylist()[0] if row else {}
    return f"{named.get(name)}: {line}   {values}"


def test_every_function_and_operator_is_among_them() -> None:
    names = {
        f"c{k}": expression
        for k, expression in enumerate(expression for group in EXPRESSIONS.values() for expression in group)
    }
    pipeline = Pipeline.parse(pipeline_of({"op": "project", "columns": names}))
    used = set(re.findall(r"'function': '(\w+)'|function='(\w+)'", repr(pipeline.operators[0].spec)))
    called = {name for pair in used for name in pair if name}
    assert called == set(FUNCTIONS) | set(OPERATORS)


def test_texts_grow_with_the_expression_and_not_faster() -> None:
    def length(depth: int) -> int:
        nested = "x"
        for _ in range(depth):
            nested = f"abs(1 / (cast(floor({nested}) as float64) + cast(regexp_extract(s, 'a', 0) as int64) div i))"
        made = Pipeline.parse(pipeline_of({"op": "project", "columns": {"deep": nested}}))
        return len(select(made, 0, "records"))

    assert length(8) - length(4) == 2 * (length(4) - length(2))
