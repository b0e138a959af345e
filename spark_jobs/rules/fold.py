"""The state of a key = the fold of its changes, as SQL (docs/semantics.md, section 5).

`net` is the short cut for changes that carry whole rows; `fold` is the definition. Both give one row a key: the
replica's columns, `_gddl` of the last change (with its effective sequence), and the columns named below.
"""

from __future__ import annotations

from spark_jobs.plan.types import ArrayType
from spark_jobs.rules.order import FORCED, MOVED, OP, ORDER, SEQUENCE, struct_of
from spark_jobs.rules.sql import listed, packed, quoted, text
from spark_jobs.table.table_schema import GDDL, RESCUED, TableSchema

FIRST, FRESH, LOWEST, HAS_FORCED, HAD_ROW = (f"{GDDL}__{n}" for n in ("first", "fresh", "lowest", "has_forced", "had"))
_SEGMENT = f"{GDDL}__segment"
UNSEEN = "U"
"""`FIRST` of a key whose lowest change is an update that didn't change its key."""


def carried_name(index: int) -> str:
    """Flag of the fold's output: some change carried the column of that index (in `TableSchema.columns`)."""
    return f"{GDDL}__carried_{index}"


def net(events: str, table_schema: TableSchema) -> str:
    """One row a key: its highest change."""
    row = packed([*table_schema.columns, GDDL, OP, SEQUENCE, ORDER])
    first = f"arg_min(CASE WHEN {MOVED} THEN 'M' ELSE {OP} END, {ORDER})"
    picked = (
        f"SELECT arg_max({row}, {ORDER}) AS r, {first} AS {FIRST}, min({ORDER}) AS {LOWEST}, "
        f"bool_or({FORCED}) AS {HAS_FORCED} FROM ({events}) GROUP BY {listed(table_schema.keys)}"
    )
    columns = ", ".join(f"r.{quoted(c)} AS {quoted(c)}" for c in table_schema.columns)
    struct = struct_of(table_schema, f"r.{GDDL}", sequence=f"r.{SEQUENCE}")
    return (
        f"SELECT {columns}, {struct} AS {GDDL}, r.{OP} AS {OP}, r.{SEQUENCE} AS {SEQUENCE}, r.{ORDER} AS {ORDER}, "
        f"{FIRST}, {LOWEST}, {HAS_FORCED}, true AS {FRESH} FROM ({picked})"
    )


def single(events: str, table_schema: TableSchema) -> str:
    """The same where every key is known to have just one change."""
    struct = struct_of(table_schema, GDDL, sequence=SEQUENCE)
    return (
        f"SELECT {listed(table_schema.columns)}, {struct} AS {GDDL}, {OP}, {SEQUENCE}, {ORDER}, "
        f"CASE WHEN {MOVED} THEN 'M' ELSE {OP} END AS {FIRST}, {ORDER} AS {LOWEST}, {FORCED} AS {HAS_FORCED}, "
        f"true AS {FRESH} FROM ({events})"
    )


def fold(events: str, table_schema: TableSchema) -> str:
    """One row a key for changes that may carry a part of the row.

    `FRESH` tells that the row stands by itself; otherwise columns whose carried flag is false keep what is stored.
    `HAD_ROW` tells, of a deleted row, that its columns are those of the row that was deleted.
    """
    columns, out = [], []
    for index, column in enumerate(table_schema.columns):
        if column in table_schema.keys:
            out.append(quoted(column))
            continue
        flag = f"({carries(table_schema, column)} AND {OP} <> 'D')"
        value = f"CASE WHEN {flag} THEN {{v: {quoted(column)}}} END"
        columns.append(f"arg_max({value}, {ORDER}) AS {quoted(f'v_{index}')}")
        columns.append(f"bool_or({flag}) AS {carried_name(index)}")
        out.append(f"{quoted(f'v_{index}')}.v AS {quoted(column)}, coalesce({carried_name(index)}, false) "
                   f"AS {carried_name(index)}")  # fmt: skip
    last = f"arg_max({packed([GDDL, OP, SEQUENCE, ORDER, _SEGMENT])}, {ORDER}) AS l"
    spans = f"first({FIRST}) AS {FIRST}, first({LOWEST}) AS {LOWEST}, bool_or({HAS_FORCED}) AS {HAS_FORCED}"
    grouped = (
        f"SELECT {', '.join([listed(table_schema.keys), *columns, last])}, bool_or({OP} <> 'D') AS {HAD_ROW}, {spans} "
        f"FROM ({_segmented(events, table_schema)}) GROUP BY {listed(table_schema.keys)}"
    )
    struct = struct_of(table_schema, f"l.{GDDL}", sequence=f"l.{SEQUENCE}")
    return (
        f"SELECT {', '.join(out)}, {struct} AS {GDDL}, l.{OP} AS {OP}, l.{SEQUENCE} AS {SEQUENCE}, "
        f"l.{ORDER} AS {ORDER}, {FIRST}, {LOWEST}, {HAS_FORCED}, {HAD_ROW}, l.{_SEGMENT} > 0 AS {FRESH} "
        f"FROM ({grouped})"
    )


def carries(table_schema: TableSchema, column: str) -> str:
    """Whether a change carries a column; `R` and `I` carry all."""
    if column in table_schema.keys:
        return "true"
    conditions = []
    if column in table_schema.lacking:
        ids = ", ".join(map(str, table_schema.lacking[column]))
        conditions.append(f"NOT coalesce({GDDL}.schema IN ({ids}), false)")
    listing = table_schema.spelled(table_schema.spec.columns_to_update)
    if listing is not None and column not in (listing, RESCUED):
        conditions.append(f"coalesce(list_contains({_names(table_schema, listing)}, {text(column.lower())}), true)")
    if table_schema.spec.ignore_null_updates:
        conditions.append(f"{quoted(column)} IS NOT NULL")
    return f"({OP} IN ('R', 'I') OR ({' AND '.join(conditions)}))" if conditions else "true"


def _names(table_schema: TableSchema, listing: str) -> str:
    """Lower-case names out of a comma-separated text or an array."""
    kind = next(c.type for c in table_schema.data if c.name == listing)
    value = f"array_to_string({quoted(listing)}, ',')" if isinstance(kind, ArrayType) else quoted(listing)
    bare = rf"""regexp_replace(CAST({value} AS VARCHAR), '[\[\]"\s]', '', 'g')"""
    return f"string_split(lower({bare}), ',')"


def _segmented(events: str, table_schema: TableSchema) -> str:
    """Changes of each key's last segment: a reset starts one, a delete ends one (soft deletes keep its columns)."""
    keys = listed(table_schema.keys)
    spans = (
        f"SELECT *, first_value(CASE WHEN {MOVED} THEN 'M' ELSE {OP} END) OVER (PARTITION BY {keys} ORDER BY {ORDER}) "
        f"AS {FIRST}, min({ORDER}) OVER (PARTITION BY {keys}) AS {LOWEST}, bool_or({FORCED}) OVER "
        f"(PARTITION BY {keys}) AS {HAS_FORCED} FROM ({with_segment(events, table_schema, _SEGMENT)})"
    )
    return f"SELECT * FROM ({spans}) QUALIFY {_SEGMENT} = max({_SEGMENT}) OVER (PARTITION BY {keys})"


def with_segment(events: str, table_schema: TableSchema, column: str) -> str:
    """Number the segments of each key: a reset starts one, and so does what follows a delete, but another delete."""
    ordered = f"PARTITION BY {listed(table_schema.keys)} ORDER BY {ORDER}"
    revived = f"({OP} <> 'D' AND coalesce(lag({OP}) OVER ({ordered}) = 'D', false))"
    starts = f"SELECT *, CAST({OP} IN ('R', 'I') OR {revived} AS INT) AS {column}__starts FROM ({events})"
    total = f"sum({column}__starts) OVER ({ordered} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    return f"SELECT * EXCLUDE ({column}__starts), {total} AS {column} FROM ({starts})"
