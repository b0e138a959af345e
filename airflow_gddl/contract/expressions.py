"""Expressions over the columns of a table, as trees: rules of expectations, row filters, derived columns.

`airflow_gddl.metadata.expression_text` reads them from the text of a row, and `spark_jobs.rules.evaluate` computes
them, so that jobs never parse text. A tree says what it means without its text: versions of a parser don't matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/")
CONDITIONS = frozenset({*COMPARISONS, "and", "or", "not", "in", "between", "is null", "like", "regexp_like"})
"""Operations whose value is true, false or null."""
LITERALS = ("boolean", "date_value", "number", "text", "timestamp_value")
COLUMN = "column"
FUNCTIONS: Mapping[str, tuple[int, int]] = {
    "abs": (1, 1),
    "coalesce": (2, 20),
    "concat": (2, 20),
    "date": (1, 1),
    "day": (1, 1),
    "hour": (1, 1),
    "length": (1, 1),
    "lower": (1, 1),
    "mod": (2, 2),
    "month": (1, 1),
    "nullif": (2, 2),
    "regexp_like": (2, 2),
    "round": (1, 2),
    "substring": (2, 3),
    "trim": (1, 1),
    "upper": (1, 1),
    "year": (1, 1),
}
"""Name to the least and the greatest number of arguments."""


@dataclass(frozen=True, kw_only=True)
class Term:
    """A part of an expression.

    Attributes:
        op: `column`, one of `LITERALS`, `ARITHMETIC`, `CONDITIONS` or `FUNCTIONS`.
        value: name of a column, or a literal as text: times as ISO 8601, in UTC where no zone is given.
        args: operands; of `in` the value and then the literals.
    """

    op: str
    value: str = ""
    args: tuple[Term, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of its columns as the text has them, each once."""
        return tuple(dict.fromkeys(term.value for term in self._all() if term.op == COLUMN))

    @property
    def is_condition(self) -> bool:
        """Whether its value may be true or false, as far as that is known without the columns' types."""
        return self.op in CONDITIONS or self.op in (COLUMN, "boolean", "coalesce", "nullif")

    def _all(self) -> Iterator[Term]:
        waiting = [self]
        while waiting:
            term = waiting.pop(0)
            yield term
            waiting[:0] = term.args

    def __str__(self) -> str:
        """In one form for equal trees."""
        if self.op == COLUMN:
            return '"' + self.value.replace('"', '""') + '"'
        if self.op in LITERALS:
            text = "'" + self.value.replace("'", "''") + "'"
            kinds = {"text": text, "date_value": f"date {text}", "timestamp_value": f"timestamp {text}"}
            return kinds.get(self.op, self.value)
        if self.op in ("and", "or", "like", *COMPARISONS, *ARITHMETIC) and len(self.args) > 1:
            return "(" + f" {self.op} ".join(map(str, self.args)) + ")"
        return f"{self.op}({', '.join(map(str, self.args))})"
