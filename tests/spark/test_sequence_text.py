"""Spark's form of numbers in text is that of the rules."""

from __future__ import annotations

import pyarrow as pa

from spark_jobs.rules import sequence_text as rules
from tests.conftest import SPARK
from tests.unit.test_sequence_text import TEXTS


def test_spark_has_the_same_form_and_width() -> None:
    from spark_jobs.engines.spark import sequence_text  # noqa: PLC0415 - tests of other engines import no Spark

    rows = SPARK.for_table().createDataFrame([(text,) for text in [*TEXTS, None]], "t string")
    found = rows.select("t", sequence_text.normal_form(rows.t).alias("form")).collect()
    texts = pa.array([row.t for row in found], pa.string())
    forms = rules.normal_form(texts)
    assert [row.form for row in found] == forms.to_pylist()
    widths = rows.select("t", sequence_text.width(rows.t).alias("width")).collect()
    assert [row.width for row in widths] == rules.width(pa.array([row.t for row in widths], pa.string())).to_pylist()
