"""Options shared by several commands, and their values."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from airflow_gddl.contract.codes import FIELD_VALUE, KEY_INVALID
from airflow_gddl.contract.errors import FatalError, GddlError, MetadataError, invalid_option
from airflow_gddl.contract.names import landed_name, renamed
from airflow_gddl.contract.row_checks import table_name_fault
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.spec import TableSpec


def complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of tables that begin with the text, for the shell's completion; none where the metadata can't be read."""
    from airflow_gddl.metadata.loading import load  # noqa: PLC0415 - pydantic takes longer to import than most commands

    try:
        tables = load(ctx.params.get("metadata") or "metadata", os.environ).tables
    except GddlError:
        return []
    return sorted(spec.table for spec in tables if spec.table.startswith(incomplete))


Metadata = Annotated[str, typer.Option(metavar="DIR", envvar="GDDL_METADATA", help="Folder of gddl.yaml and tables/.")]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SCHEMA.NAME",
        help="Only this table; may be given several times. Default: all.",
        autocompletion=complete_table,
    ),
]
NamedTables = Annotated[
    list[str],
    typer.Option(
        metavar="SCHEMA.NAME",
        help="The table; may be given several times.",
        autocompletion=complete_table,
    ),
]
OneTable = Annotated[str, typer.Option(metavar="SCHEMA.NAME", help="The table.", autocompletion=complete_table)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the batches without running them.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
All = Annotated[bool, typer.Option("--all", help="All tables, where none is named.")]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on standard output, and nothing else there.")]
Wait = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0, help="How long to wait for a table that another run holds."),
]
SourceConnection = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Compare with the source too: a variable with an SQLAlchemy URL, or AIRFLOW_CONN_NAME.",
    ),
]


def check_names(tables: Iterable[str]) -> None:
    """
    Raises:
        MetadataError: `FIELD_VALUE`.
    """
    for table in sorted(tables):
        if fault := table_name_fault(table):
            raise MetadataError(FIELD_VALUE, f"{table!r:.80}: {fault}", remedy="write schema.name")


def absolute(root: str) -> str:
    return root if is_s3(root) else os.path.normpath(Path(root).absolute())


def read_key(given: list[str], *, alone: bool = False) -> dict[str, str]:
    """`["a=1", "@FILE"]` as `{"a": "1", ...}`, with one part for each line of a file; `@-` is standard input.

    Args:
        alone: take a value without its column, under an empty name, where it is the whole key.

    Raises:
        MetadataError: `KEY_INVALID`: a file can't be read, or a part is not COLUMN=VALUE; the message shows no value,
            which may be personal.
    """
    parts = _parts_of(given)
    if alone and len(parts) == 1 and parts[0] and "=" not in parts[0]:
        return {"": parts[0]}
    return _key_of(parts)


def read_keys(given: list[str]) -> tuple[dict[str, str], ...]:
    """As `read_key`, of several keys: a column that is named again begins the next one.

    A value without its column is a key by itself.

    Raises:
        MetadataError: as `read_key`.
    """
    key_list: list[dict[str, str]] = []
    for part in _parts_of(given):
        named = _key_of([part]) if "=" in part or not part else {"": part}
        if not key_list or key_list[-1].keys() & named.keys() or "" in (*key_list[-1], *named):
            key_list.append({})
        key_list[-1] |= named
    return tuple(key_list)


def _parts_of(given: list[str]) -> list[str]:
    parts = []
    for part in given:
        parts += _lines(part.removeprefix("@")) if part.startswith("@") else [part]
    return parts


def _lines(file: str) -> list[str]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        what = f"the file of the key can't be read: {reason}"
        raise MetadataError(KEY_INVALID, what, remedy="name a text file in UTF-8, or @-") from error
    return [line for line in text.removeprefix("\ufeff").split("\n") if line.strip()]


def _key_of(parts: list[str]) -> dict[str, str]:
    key: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or not name or name in key:
            what = f"the key's part number {len(key) + 1} is not COLUMN=VALUE, or names its column again"
            raise MetadataError(KEY_INVALID, what, remedy="write e.g. --key region=EU --key id=5")
        key[name] = value
    return key


def require_whole_key(named: Mapping[str, str], _: object, tables: Iterable[TableSpec]) -> None:
    """Compare the names of a key with the rows', before a job is started; the job checks the values.

    Args:
        named: of `read_key`.

    Raises:
        FatalError: `KEY_INVALID`; its message shows no value.
    """
    for spec in tables:
        keys = {landed_name(name).lower() for name in spec.keys}
        forms = {name: (name.lower(), landed_name(name).lower(), renamed(name, spec).lower()) for name in named}
        given = {next((one for one in spellings if one in keys), name) for name, spellings in forms.items()}
        if keys and keys != given and not (set(named) == {""} and len(keys) == 1):
            shown = ", ".join(name or "a value alone" for name in named)
            what = f"the key of {spec.table} is {', '.join(spec.keys)}, not {shown}"
            remedy = f"name the whole key: {' '.join(f'--key {name}=…' for name in spec.keys)}"
            raise FatalError(KEY_INVALID, what, remedy=remedy)


def require_beside(other: str, given: Mapping[str, object]) -> None:
    """Refuse options that say nothing without another one, which is not given.

    Args:
        given: what they are, by option; a false value: not given.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    for name, value in given.items():
        if value:
            raise invalid_option(f"{name} without {other}", "write both, or neither")
