"""A schema that a user applies to a table before its data: columns that are new, and columns that become wider."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import is_before_image, landed_name
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import VOID, SqlType, parse_type, parts, unsupported_part
from airflow_gddl.contract.table_spec import HASHED, lowered
from spark_jobs.plan.schema_evolution import STRING
from spark_jobs.plan.table_schema import Column, TableSchema, clean_type, select_columns
from spark_jobs.plan.types import Allowed, merge


@dataclass(frozen=True, kw_only=True)
class AppliedSchema:
    """The table's schema afterwards, and what was asked for that it can't become.

    Attributes:
        refused: column to why it can't be as it was asked for.
    """

    schema: TableSchema
    added: tuple[Column, ...]
    widened: tuple[Column, ...]
    refused: Mapping[str, str]


def applied(schema: TableSchema, columns: Mapping[str, str], spec: TableSpec) -> AppliedSchema:
    """Columns that are asked for, by Delta's rules and the row's; those that are not named stay as they are.

    Args:
        columns: name to SQL type.

    Raises:
        FatalError: `COLUMN_TYPE_UNSUPPORTED`: a text is no type.
    """
    known = {column.name.lower(): column for column in schema.data}
    target, refused = dict(known), dict[str, str]()
    for name, text in columns.items():
        kind, old = parse_type(text), known.get(name.lower())
        why = _why_not(name, kind, old, spec)
        if why:
            refused[name] = f"table {old.type if old else 'missing'}, asked for {kind}: {why}"
        else:
            target[name.lower()] = Column(old.name if old else name, kind)
    changed = [column for name, column in target.items() if known.get(name) != column]
    return AppliedSchema(
        schema=replace(schema, data=tuple(target.values())),
        added=tuple(c for c in changed if c.name.lower() not in known),
        widened=tuple(c for c in changed if c.name.lower() in known),
        refused=refused,
    )


def _why_not(name: str, kind: SqlType, old: Column | None, spec: TableSpec) -> str:
    """Empty: it can be so."""
    if old is not None and kind == old.type:
        return ""
    if why := _why_no_type(kind):
        return why
    if old is None:
        return next((why for refused, why in _reasons(name, kind, spec) if refused), "")
    both = merge(old.type, kind, Allowed(add=True, widen=True))
    if kind == both:
        return ""
    return f"Delta widens it to {both} alone" if both not in (None, old.type) else "Delta can't widen it to that"


def _why_no_type(kind: SqlType) -> str:
    """Empty: a table holds columns of this type, and names the fields inside it as it does."""
    part = VOID if VOID in parts(kind) else unsupported_part(kind)
    if part is not None:
        return f"no table holds the type {part}"
    try:
        cleaned = clean_type(kind, str(kind))
    except FatalError as error:
        return (
            f"no table holds fields whose names differ only by case or by characters that Delta refuses ({error.code})"
        )
    return "" if cleaned == kind else f"the table would name its fields {cleaned}"


def _reasons(name: str, kind: SqlType, spec: TableSpec) -> Iterator[tuple[bool, str]]:
    """What refuses a new column, each with why."""
    chosen = select_columns([name], spec)
    yield landed_name(name) != name, f"the table would name it {landed_name(name)}"
    yield is_before_image(name, spec.before_image_prefix), "it is a before image"
    yield name.lower() in lowered(spec.derive), "the row computes it"
    yield name not in chosen.kept, "the row keeps it out of the lake"
    hashed = chosen.masks.get(name) in HASHED
    yield hashed and kind != STRING, "the metadata row hashes it, so that it is a string"


def refusal(table: str, schema: TableSchema, columns: Mapping[str, str], found: AppliedSchema) -> FatalError:
    """`SCHEMA_NOT_APPLIED`, with the differing columns and both schemas."""
    blocks = {
        "differing columns": [f"{name}: {why}" for name, why in found.refused.items()],
        "schema of the table": [str(column) for column in schema.data],
        "schema that was asked for": [f"{name} {kind}" for name, kind in columns.items()],
    }
    text = "\n".join(f"{title}:\n" + "\n".join(f"  {line}" for line in lines) for title, lines in blocks.items())
    what = f"{table} can't have this schema\n{text}\nnothing was written"
    return FatalError("SCHEMA_NOT_APPLIED", what, remedy="leave these columns out, or ask for what the message names")


def types_of(columns: Iterable[Column]) -> dict[str, str]:
    """Name to SQL type, for results."""
    return {column.name: str(column.type) for column in columns}
