"""Computes expressions, filters and expectations over Arrow columns, with the three values of SQL.

The time is linear in rows and text.

A value that can't be computed (a division by zero, a number beyond its type, a text that is no date) is null, and never
an error; an expression that doesn't fit the types of its columns is an error before any row is computed. Each row for
itself. From expressions follow conditions on rows: which are outside the filter, and which fail expectations; and
columns: those under the names of the row (`rename`), and those computed (`derive`), which all later steps see as
delivered.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.codes import (
    COLUMN_NAMES_COLLIDE,
    EXPECTATION_FAILED,
    EXPRESSION_INVALID,
    FILTER_UNDECIDED,
    SPEC_INVALID,
)
from airflow_gddl.contract.errors import FatalError, documented
from airflow_gddl.contract.names import landed_name, mask_method, renamed, rows_for
from airflow_gddl.contract.sql_types import VOID, ScalarType, SqlType, parse_type
from airflow_gddl.contract.table_spec import ARITHMETIC, COLUMN, COMPARISONS, LITERALS, Expectation, TableSpec, Term
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rooms.dialects.protocol import declared_types, sql_type
from spark_jobs.rules.arrays import all_true, arrow_type, flat, gddl_field, is_text, is_true
from spark_jobs.rules.carried import carried
from spark_jobs.rules.convert import fit
from spark_jobs.rules.delivered_columns import DeliveredColumns, RowProblem
from spark_jobs.rules.file_groups import FileGroup
from spark_jobs.rules.file_rows import RawGroup
from spark_jobs.rules.masks import masked

_STRING, _DATE, _TIME = ScalarType("string"), ScalarType("date"), ScalarType("timestamp")
_MICROS = pa.timestamp("us", "UTC")
_MOST_DIGITS = 38
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_COMPARE = dict(zip(COMPARISONS, (pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal),
                    strict=True))  # fmt: skip


def tree_of(spec: TableSpec, text: str) -> Term:
    """The tree of an expression of a row.

    Raises:
        FatalError: `SPEC_INVALID`.
    """
    if text not in spec.expressions:
        what = f"the specification lacks the tree of the expression {text!r:.80}"
        raise FatalError(SPEC_INVALID, what, where=spec.table, remedy="build the spec from the metadata")
    return spec.expressions[text]


@dataclass(frozen=True)
class Columns:
    """The columns that an expression may name.

    Attributes:
        values: by name as the table spells it.
        spelled: the table's spelling of a name; None: there is no such column.
        where: the table and what of its row has the expression, for errors.
    """

    values: Mapping[str, pa.Array]
    rows: int
    spelled: Callable[[str], str | None]
    where: str

    def evaluate(self, term: Term) -> pa.Array:
        """A value for each row.

        Raises:
            FatalError: `EXPRESSION_INVALID`.
        """
        try:
            value = self._value(term)
        except pa.ArrowException as error:  # not a fault of a file
            raise self.mistyped(str(error)[:200]) from None
        return pa.repeat(value, self.rows) if isinstance(value, pa.Scalar) else value

    def condition(self, term: Term) -> pa.Array:
        """Whether the expression holds, for each row; null where that is not known.

        Raises:
            FatalError: as `evaluate`.
        """
        values = self.evaluate(term)
        if not pt.is_boolean(values.type):
            raise self.mistyped(f"a condition has to be true or false, and {term} is {_kind(values)}")
        return values

    def _value(self, term: Term) -> Any:
        if term.op == COLUMN:
            return self._column(term.value)
        if term.op in LITERALS:
            return self._literal(term)
        args = [self._value(arg) for arg in term.args]
        if term.op in COMPARISONS:
            return self._compared(term.op, *args)
        if term.op in ARITHMETIC or term.op == "mod":
            return self._calculated(term.op, *args)
        operation = _OPERATIONS.get(term.op)
        if operation is None:
            what = f"the operation {term.op!r} is not known here"
            raise FatalError(EXPRESSION_INVALID, what, where=self.where,
                             remedy="install the airflow-gddl that wrote the specification here, too")  # fmt: skip
        return operation(self, *args)

    def _column(self, name: str) -> pa.Array:
        spelled = self.spelled(name)
        if spelled is None or spelled not in self.values:
            known = ", ".join(sorted(self.values)[:20])
            raise FatalError(
                EXPRESSION_INVALID, f"the table has no column {name!r}; it has {known}", where=self.where,
                remedy="correct the name in the metadata row; a column that is to come later can be named once "
                "it is there",
            )  # fmt: skip
        return self.values[spelled]

    def _literal(self, term: Term) -> pa.Scalar:
        if term.op == "number":
            return _number(term.value)
        if term.op == "boolean":
            return pa.scalar(term.value == "true")
        if term.op == "text":
            return pa.scalar(term.value, pa.string())
        if term.op == "date_value":
            return pa.scalar(date.fromisoformat(term.value), pa.date32())
        moment = datetime.fromisoformat(term.value)
        return pa.scalar(moment if moment.tzinfo else moment.replace(tzinfo=UTC), _MICROS)

    def _compared(self, op: str, left: Any, right: Any) -> Any:
        left, right = self.alike(left, right)
        if op not in ("=", "<>") and (pt.is_boolean(left.type) or _is_other(left)):
            raise self.mistyped(f"{_kind(left)} values have no order")
        return _COMPARE[op](left, right)

    def alike(self, left: Any, right: Any) -> tuple[Any, Any]:
        """Two values in one type in which they compare."""
        if _is_number(left) and _is_number(right):
            return _same_number(left, right)
        if _is_time(left) and _is_time(right):
            return (left, right) if left.type == right.type else (_as_time(left), _as_time(right))
        for one, other in ((left, right), (right, left)):
            if _is_time(one) and isinstance(other, pa.Scalar) and is_text(other.type):
                moment = self._moment(other, one.type)
                both = (one, moment) if one.type == moment.type else (_as_time(one), _as_time(moment))
                return both if one is left else (both[1], both[0])
        if _is_other(left) or _is_other(right) or _kind(left) != _kind(right):
            raise self.mistyped(f"{_kind(left)} can't be compared with {_kind(right)}")
        return left, right

    def _moment(self, text: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
        moment = fit(pa.array([text.as_py()], pa.string()), _STRING, _DATE if pt.is_date(kind) else _TIME).values
        if not moment[0].is_valid and pt.is_date(kind):
            moment = fit(pa.array([text.as_py()], pa.string()), _STRING, _TIME).values
        if not moment[0].is_valid:
            raise self.mistyped(f"{text.as_py()[:40]!r} is no {'date' if pt.is_date(kind) else 'time'}")
        return moment[0]

    def _calculated(self, op: str, left: Any, right: Any) -> Any:
        left, right = self.number(left, op), self.number(right, op)
        if op == "/":
            return pc.divide(_real(left), _but_zero(_real(right)))
        left, right = _same_number(left, right, for_sums=True)
        if op == "mod":
            return _rest(left, right)
        function = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}[op]
        try:
            return function(left, right)
        except pa.ArrowInvalid:  # beyond the digits of the type
            return function(_real(left), _real(right))

    def text(self, value: Any, what: str) -> Any:
        if not is_text(value.type):
            raise self.mistyped(f"{what} takes text, not {_kind(value)}")
        return value

    def number(self, value: Any, what: str) -> Any:
        if not _is_number(value):
            raise self.mistyped(f"{what} takes numbers, not {_kind(value)}")
        return value

    def boolean(self, value: Any, what: str) -> Any:
        if not pt.is_boolean(value.type):
            raise self.mistyped(f"{what} takes conditions, not {_kind(value)}")
        return value

    def day_of(self, value: Any) -> Any:
        """The day of a time in UTC, or of a text as ISO 8601."""
        if is_text(value.type):
            return fit(_array(value), _STRING, _DATE).values
        if not _is_time(value):
            raise self.mistyped(f"a date is no part of {_kind(value)}")
        return value if pt.is_date(value.type) else _naive(value).cast(pa.date32(), safe=False)

    def mistyped(self, what: str) -> FatalError:
        remedy = "correct the expression, or declare the column's type under options.types; nothing was written"
        return FatalError(EXPRESSION_INVALID, what, where=self.where, remedy=remedy)


def _number(text: str) -> pa.Scalar:
    if "e" in text.lower():
        return pa.scalar(float(text), pa.float64())
    number = Decimal(text)
    if number == int(number) and "." not in text and abs(number) < 2**63:
        return pa.scalar(int(number), pa.int64())
    digits = len(number.as_tuple().digits)
    if digits > _MOST_DIGITS:
        return pa.scalar(float(text), pa.float64())
    return pa.scalar(number)


def _is_number(value: Any) -> bool:
    return bool(pt.is_integer(value.type) or pt.is_floating(value.type) or pt.is_decimal(value.type))


def _is_time(value: Any) -> bool:
    return bool(pt.is_date(value.type) or pt.is_timestamp(value.type))


def _is_other(value: Any) -> bool:
    return _kind(value) not in ("numbers", "times", "text", "true or false")


def _kind(value: Any) -> str:
    if _is_number(value):
        return "numbers"
    if _is_time(value):
        return "times"
    if pt.is_boolean(value.type):
        return "true or false"
    return "text" if is_text(value.type) else sql_type(value.type)


def _array(value: Any) -> pa.Array:
    return pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value


def _real(value: Any) -> Any:
    return pc.cast(value, pa.float64(), safe=False)


def _naive(value: Any) -> Any:
    """A time without its zone, which is UTC."""
    return value.cast(pa.timestamp("us")) if pt.is_timestamp(value.type) else value


def _as_time(value: Any) -> Any:
    return value.cast(pa.timestamp("us")).cast(_MICROS) if value.type != _MICROS else value


def _same_number(left: Any, right: Any, *, for_sums: bool = False) -> tuple[Any, Any]:
    """Whole numbers as 64 bits, decimals with as many digits as both need, others as doubles.

    Args:
        for_sums: the types are those of operands, not of values to compare.
    """
    if pt.is_floating(left.type) or pt.is_floating(right.type):
        return _real(left), _real(right)
    if pt.is_integer(left.type) and pt.is_integer(right.type):
        return left.cast(pa.int64()), right.cast(pa.int64())
    left, right = (v if pt.is_decimal(v.type) else v.cast(pa.decimal128(_DIGITS[v.type], 0)) for v in (left, right))
    if for_sums:
        return left, right
    scale = max(left.type.scale, right.type.scale)
    whole = max(v.type.precision - v.type.scale for v in (left, right))
    kind = pa.decimal128 if whole + scale <= _MOST_DIGITS else pa.decimal256
    return left.cast(kind(whole + scale, scale)), right.cast(kind(whole + scale, scale))


def _but_zero(value: Any) -> Any:
    """A divisor, null where it is zero."""
    return pc.if_else(pc.equal(value, pa.scalar(0, pa.int64()).cast(value.type)), pa.scalar(None, value.type), value)


def _rest(left: Any, right: Any) -> Any:
    """The rest of a division, with the sign of the first number."""
    if not pt.is_integer(left.type):
        left, right = _real(left), _real(right)
    divisor = _but_zero(right)
    quotient = pc.divide(left, divisor)
    return pc.subtract(left, pc.multiply(quotient if pt.is_integer(left.type) else pc.trunc(quotient), divisor))


def _all(combine: Callable[[Any, Any], Any], what: str) -> Callable[..., Any]:
    return lambda columns, *values: functools.reduce(combine, (columns.boolean(value, what) for value in values))


def _in(columns: Columns, value: Any, *wanted: Any) -> Any:
    return functools.reduce(pc.or_kleene, (pc.equal(*columns.alike(value, one)) for one in wanted))


def _between(columns: Columns, value: Any, low: Any, high: Any) -> Any:
    above, below = columns.alike(value, low), columns.alike(value, high)
    return pc.and_kleene(pc.greater_equal(*above), pc.less_equal(*below))


def _search(name: str, function: Callable[[Any, str], Any]) -> Callable[..., Any]:
    """A search by RE2, in time linear in the text. The function raises `EXPRESSION_INVALID`."""

    def search(columns: Columns, value: Any, pattern: pa.Scalar) -> Any:
        texts = columns.text(value, name)
        try:
            return function(texts, pattern.as_py())
        except pa.ArrowInvalid as error:
            what = f"not a regular expression of RE2: {str(error)[:120]}"
            remedy = f"see {documented('metadata.md', 'expressions')}"
            raise FatalError(EXPRESSION_INVALID, what, where=columns.where, remedy=remedy) from None

    return search


def _part(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda columns, value: function(columns.day_of(value))


def _hour(columns: Columns, value: Any) -> Any:
    if not pt.is_timestamp(value.type):
        raise columns.mistyped(f"an hour is no part of {_kind(value)}")
    return pc.hour(_naive(value))


def _coalesce(columns: Columns, *values: Any) -> Any:
    return functools.reduce(lambda result, other: pc.coalesce(*columns.alike(result, other)), values)


def _nullif(columns: Columns, value: Any, other: Any) -> Any:
    same = pc.fill_null(pc.equal(*columns.alike(value, other)), False)
    return pc.if_else(same, pa.scalar(None, value.type), value)


def _concat(columns: Columns, *parts: Any) -> Any:
    texts = [part if is_text(part.type) else _text_of(columns, part) for part in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.string()), null_handling="emit_null")


def _text_of(columns: Columns, value: Any) -> pa.Array:
    if _is_other(value):
        raise columns.mistyped(f"concat takes text, numbers and times, not {_kind(value)}")
    texts = fit(_array(value), parse_type(sql_type(value.type)), _STRING).values
    return texts[0] if isinstance(value, pa.Scalar) else texts


def _length(columns: Columns, value: Any) -> Any:
    return pc.binary_length(value) if pt.is_binary(value.type) else pc.utf8_length(columns.text(value, "length"))


def _substring(columns: Columns, value: Any, start: pa.Scalar, count: pa.Scalar | None = None) -> Any:
    first = start.as_py() - 1
    stop = None if count is None else first + count.as_py()
    return pc.utf8_slice_codeunits(columns.text(value, "substring"), start=first, stop=stop)


def _abs(columns: Columns, value: Any) -> Any:
    try:
        return pc.abs_checked(columns.number(value, "abs"))
    except pa.ArrowInvalid:  # the least whole number
        return pc.abs(_real(value))


def _round(columns: Columns, value: Any, digits: pa.Scalar | None = None) -> Any:
    if pt.is_integer(columns.number(value, "round").type):
        return value
    kept = 0 if digits is None else digits.as_py()
    if pt.is_decimal(value.type):
        kept = min(kept, value.type.scale)
    try:
        return pc.round(value, ndigits=kept, round_mode="half_towards_infinity")
    except pa.ArrowInvalid:  # one digit more than the type holds
        return pc.round(_real(value), ndigits=kept, round_mode="half_towards_infinity")


def _of_text(name: str, function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda columns, value: function(columns.text(value, name))


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "and": _all(pc.and_kleene, "and"),
    "or": _all(pc.or_kleene, "or"),
    "not": lambda columns, value: pc.invert(columns.boolean(value, "not")),
    "in": _in,
    "between": _between,
    "is null": lambda _, value: pc.is_null(value),
    "like": _search("like", pc.match_like),
    "regexp_like": _search("regexp_like", pc.match_substring_regex),
    "abs": _abs,
    "coalesce": _coalesce,
    "concat": _concat,
    "date": lambda columns, value: columns.day_of(value),
    "day": _part(pc.day),
    "hour": _hour,
    "length": _length,
    "lower": _of_text("lower", pc.utf8_lower),
    "month": _part(pc.month),
    "nullif": _nullif,
    "round": _round,
    "substring": _substring,
    "trim": _of_text("trim", lambda text: pc.utf8_trim(text, " ")),
    "upper": _of_text("upper", pc.utf8_upper),
    "year": _part(pc.year),
}


def of_table(rows: pa.Table, spelled: Callable[[str], str | None], where: str) -> Columns:
    """The columns of rows of a table."""
    values = {name: flat(rows.column(name)) for name in rows.column_names}
    return Columns(values, rows.num_rows, spelled, where)


Tally = tuple[int, int]
"""Rows that were checked, and how many of them failed."""


def outside_filter(rows: pa.Table, schema: TableSchema, sound: np.ndarray) -> tuple[np.ndarray, RowProblem]:
    """Rows outside the filter: those that are inserted or updated and for which it is false or null.

    Args:
        rows: columns of the change table and `_gddl`.
        sound: rows without an error.

    Returns:
        the mask, and the problem of updates that lack a column of the filter.

    Raises:
        FatalError: as `Columns.condition`.
    """
    spec = schema.spec
    tree = tree_of(spec, spec.where or "")
    ops = gddl_field(rows, "op")
    there = sound & is_true(pc.not_equal(ops, "D"))
    undecided = there & is_true(pc.equal(ops, "U")) & ~_carries(rows, schema, tree)
    inside = is_true(of_table(rows, schema.spelled, f"{spec.table}, where").condition(tree))
    reason = "an update that lacks a column of the row filter, so that it is not known whether the row passes"
    return there & ~undecided & ~inside, RowProblem(undecided, FILTER_UNDECIDED, None, reason)


def checked(
    rows: pa.Table, schema: TableSchema, sound: np.ndarray, *, replayed: bool
) -> tuple[list[RowProblem], dict[str, Tally]]:
    """Check the rows that are inserted or updated and have no other error.

    An update is not checked by a rule on columns that it doesn't carry: these keep their stored values.

    Args:
        rows: columns of the change table and `_gddl`.
        sound: rows without an error.
        replayed: rows of the quarantine, which stay there where a rule under `fail` does not hold.

    Returns:
        problems of rows that go to the quarantine, and tallies by the expectation's name.

    Raises:
        FatalError: as `Columns.condition`.
    """
    spec = schema.spec
    ops = gddl_field(rows, "op")
    there = sound & is_true(pc.not_equal(ops, "D"))
    updates = is_true(pc.equal(ops, "U"))
    problems: list[RowProblem] = []
    tallies: dict[str, Tally] = {}
    for name, expectation in spec.expect.items():
        columns = of_table(rows, schema.spelled, f"{spec.table}, expect.{name}")
        tree = tree_of(spec, expectation.rule)
        mine = there & (~updates | _carries(rows, schema, tree))
        failed = mine & ~is_true(columns.condition(tree))
        tallies[name] = (int(mine.sum()), int(failed.sum()))
        if failed.any() and (expectation.on == "quarantine" or (replayed and expectation.on == "fail")):
            column = tree.columns[0] if len(tree.columns) == 1 else None
            reason = f"expectation {name} does not hold: {expectation.rule}"
            problems.append(RowProblem(failed, EXPECTATION_FAILED, column, reason))
    return problems, tallies


def _carries(rows: pa.Table, schema: TableSchema, tree: Term) -> np.ndarray:
    """Whether each update carries all columns of an expression."""
    mask = all_true(rows.num_rows)
    for name in tree.columns if schema.partial else ():
        spelled = schema.spelled(name)
        if spelled is not None:
            mask &= carried(rows, schema, spelled)
    return mask


def added(parts: list[Mapping[str, Tally]]) -> dict[str, Tally]:
    """Tallies of parts as those of the whole."""
    tallies: dict[str, Tally] = {}
    for name, (count, failed) in (item for part in parts for item in part.items()):
        known = tallies.get(name, (0, 0))
        tallies[name] = (known[0] + count, known[1] + failed)
    return tallies


def require_within_limits(spec: TableSpec, tallies: Mapping[str, Tally]) -> None:
    """Refuse a batch of which a larger share of rows fails an expectation than the row allows.

    Raises:
        FatalError: `EXPECTATION_FAILED`.
    """
    for name, (count, failed) in tallies.items():
        expectation = spec.expect[name]
        if failed > expectation.limit * count:
            raise FatalError(
                EXPECTATION_FAILED,
                f"{spec.table}: {failed} of {count} rows fail the expectation {name}, {_limit(expectation)}",
                where=f"expect.{name}: {expectation.rule}",
                remedy="correct them at the source, or change the expectation in the metadata row; nothing was written",
            )


def _limit(expectation: Expectation) -> str:
    if expectation.at_most is None:
        return "which stops the batch"
    return f"of which at most {expectation.at_most:.10g} may (a share of the batch)"


def landed_as_named(group: FileGroup, *, replayed: bool) -> FileGroup:
    """A group of files as if each had the columns under their names in the row, and the computed ones.

    Args:
        replayed: they are records of the quarantine, which may have them.

    Raises:
        FatalError: `COLUMN_NAMES_COLLIDE`; as `Columns.evaluate`.
    """
    spec = group.dialect.spec
    if group.prepared or not (spec.rename or spec.derive):
        return group
    names = _renamed(group.names, spec, group.label)
    stated = tuple((names.get(name, name), kind) for name, kind in group.stated)
    columns = [(names[name], kind) for name, kind in group.columns]
    taken = {landed_name(name).lower() for name, _ in columns}
    if not replayed and (both := sorted(name for name in spec.derive if landed_name(name).lower() in taken)):
        what = f"{spec.table}: files have the column {both[0]!r}, which derive computes"
        remedy = "give the computed column another name"
        raise FatalError(COLUMN_NAMES_COLLIDE, what, where=group.label, remedy=remedy)
    computed = {name.lower() for name in spec.derive}
    columns = [(name, kind) for name, kind in columns if name.lower() not in computed]
    kinds = {**dict(columns), **dict(stated)}
    kinds |= declared_types(dict(columns), group.dialect)
    typed = {name: parse_type(kinds[name]) for name, _ in columns}
    columns += [(name, str(kind)) for name in spec.derive if (kind := derived_type(name, typed, spec)) is not None]
    unavailable = tuple(names[name] for name in group.unavailable)
    return replace(group, columns=tuple(columns), stated=stated, unavailable=unavailable)


def raw_as_named(raw: RawGroup, how: FileGroup) -> RawGroup:
    """The rows of a group with these columns."""
    spec = how.dialect.spec
    if raw.prepared or not (spec.rename or spec.derive):
        return raw
    names = _renamed(raw.columns, spec, "")
    columns, past, invalid = (
        {names.get(name, name): values for name, values in part.items()}
        for part in (raw.columns, raw.past, raw.invalid)
    )
    raw = replace(raw, columns=columns, past=past, invalid=invalid)
    delivered = DeliveredColumns(raw, how)
    for name in spec.derive:
        if name in how.types:
            columns = {**columns, name: _computed(name, delivered, how)}
    return replace(raw, columns=columns)


def derived_type(name: str, types: Mapping[str, SqlType], spec: TableSpec) -> SqlType | None:
    """The type of a computed column; None: one of its columns is missing.

    Args:
        types: by name of the columns.

    Raises:
        FatalError: as `Columns.evaluate`.
    """
    sources = _sources_of(name, types, spec)
    if sources is None:
        return None
    known = _without_voids(name, sources, spec)
    return VOID if known is None else parse_type(sql_type(_of_no_rows(name, known, spec).type))


def derived_values(name: str, columns: Mapping[str, pa.Array], rows: int, kind: SqlType, spec: TableSpec) -> pa.Array:
    """The values of a computed column; what its type can't hold is null."""
    computed = _of_columns(name, columns, rows, spec).evaluate(tree_of(spec, spec.derive[name]))
    computed = _storable(computed)
    target = arrow_type(kind)
    return computed if computed.type == target else fit(computed, parse_type(sql_type(computed.type)), kind).values


def recomputed(column: str, values: Mapping[str, pa.Array], rows: int, schema: TableSchema) -> pa.Array:
    """A computed column of rows of the table, masked as the row says.

    Args:
        values: at least the columns that it is computed from, as the table has them.
    """
    spec = schema.spec
    name = next(each for each in spec.derive if schema.spelled(each) == column)
    types = {each.name: each.type for each in schema.data}
    method = mask_method(name, spec)
    if method is None:
        return derived_values(name, values, rows, types[column], spec)
    kind = derived_type(name, {source: types[source] for source in schema.computed.get(column, ())}, spec) or VOID
    return masked(derived_values(name, values, rows, kind, spec), kind, method).cast(arrow_type(types[column]))


def _renamed(names: Iterable[str], spec: TableSpec, label: str) -> dict[str, str]:
    """Each name to the one that the row gives it; before images follow their columns."""
    names = list(names)
    new_names = {name: renamed(name, row) for name, row in rows_for(names, spec).items()}
    taken: dict[str, str] = {}
    for name, after in new_names.items():
        other = taken.setdefault(landed_name(after).lower(), name)
        if other != name and (new_names[other] != other or after != name):
            what = f"{spec.table}: {other!r} and {name!r} would both be the column {after!r}"
            raise FatalError(COLUMN_NAMES_COLLIDE, what, where=label, remedy="correct `rename` in the metadata row")
    return new_names


def _sources_of(name: str, types: Mapping[str, SqlType], spec: TableSpec) -> dict[str, SqlType] | None:
    """The columns of a computed one with their types; None: one is missing."""
    known = {landed_name(column).lower(): column for column in types}
    sources = [known.get(landed_name(source).lower()) for source in tree_of(spec, spec.derive[name]).columns]
    return None if None in sources else {column: types[column] for column in sources if column is not None}


_GUESSES = tuple(map(parse_type, ("string", "bigint", "double", "boolean", "timestamp", "date")))


def _without_voids(name: str, sources: Mapping[str, SqlType], spec: TableSpec) -> dict[str, SqlType] | None:
    """Types of columns, for those that are null in all rows the first with which the expression can be computed.

    Files such as JSON don't say the type of these, and the expression may have a value all the same. None: there is
    none. Of known types the expression's fault is its own.
    """
    voids = [column for column, kind in sources.items() if kind == VOID]
    if not voids:
        return dict(sources)
    for kinds in itertools.product(_GUESSES, repeat=len(voids)) if len(voids) <= _MOST_VOIDS else ():
        typed = {**sources, **dict(zip(voids, kinds, strict=True))}
        with contextlib.suppress(FatalError):
            _of_no_rows(name, typed, spec)
            return typed
    return None


_MOST_VOIDS = 3


def _of_no_rows(name: str, types: Mapping[str, SqlType], spec: TableSpec) -> pa.Array:
    empty = {column: pa.array([], arrow_type(kind)) for column, kind in types.items()}
    return _storable(_of_columns(name, empty, 0, spec).evaluate(tree_of(spec, spec.derive[name])))


def _of_columns(name: str, columns: Mapping[str, pa.Array], rows: int, spec: TableSpec) -> Columns:
    known = {landed_name(column).lower(): column for column in columns}
    return Columns(columns, rows, lambda one: known.get(landed_name(one).lower()), f"{spec.table}, derive.{name}")


def _storable(values: pa.Array) -> pa.Array:
    """Numbers of more digits than a table can hold, as doubles."""
    if pt.is_decimal(values.type) and values.type.precision > _MOST_DIGITS:
        return _real(values)
    return values


def _computed(name: str, delivered: DeliveredColumns, how: FileGroup) -> pa.Array:
    spec, kind, rows = how.dialect.spec, how.types[name], delivered.group.rows
    if kind == VOID:
        return delivered.nulls(kind)
    inputs = {column: delivered.delivered(column) for column in _sources_of(name, how.types, spec) or ()}
    typed = _without_voids(name, {column: of for column, (_, of) in inputs.items()}, spec) or {}
    values = {
        column: delivered.nulls(typed[column]) if of == VOID and column in typed else fitted.values
        for column, (fitted, of) in inputs.items()
    }
    return derived_values(name, values, rows, kind, spec)
