"""`rules.sequence_text` as Spark's expressions; tests compare the two."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_jobs.plan.sequence import DECIMAL, DIGITS, EPOCH, HEXADECIMAL, LSN, LSN_DIGITS, PREFIX


def normal_form(text: Column) -> Column:
    """See `rules.sequence_text.normal_form`."""
    upper = F.upper(text)
    high, low = (F.lpad(F.regexp_extract(upper, LSN, n), LSN_DIGITS, "0") for n in (1, 2))
    whole, part = F.regexp_extract(upper, DECIMAL, 1), F.regexp_replace(F.regexp_extract(upper, DECIMAL, 2), "0+$", "")
    decimal = F.when(part == "", _padded(whole)).otherwise(F.concat(_padded(whole), F.lit("."), part))
    bare = _padded(F.regexp_replace(upper, PREFIX, ""))
    return (
        F.when(upper.rlike(LSN), F.concat(high, F.lit("/"), low))
        .when(upper.rlike(DECIMAL), decimal)
        .when(upper.rlike(HEXADECIMAL), bare)
        .otherwise(text)
    )


def width(text: Column) -> Column:
    """See `rules.sequence_text.width`."""
    return F.length(F.regexp_replace(F.regexp_replace(text, EPOCH, ""), DECIMAL, "$1"))


def _padded(digits: Column) -> Column:
    """Longer ones stay as long as they are, which `lpad` would cut."""
    return F.when(F.length(digits) < DIGITS, F.lpad(digits, DIGITS, "0")).otherwise(digits)
