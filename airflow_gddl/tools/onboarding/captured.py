"""`gddl onboard --capture`: the block of a source whose log jobs read, its publication, and a proof of both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from airflow_gddl.cli.screen import counted
from airflow_gddl.cli.source_database import SourceDatabase
from airflow_gddl.contract.codes import FIELD_VALUE
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.postgresql_log import Finding, creation_of, quoted_name
from airflow_gddl.contract.sources.capture import PUBLICATION, properties_of
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.tools.onboarding.yaml_text import text

_SOURCES = re.compile(r"^sources:[ \t]*(#.*)?\r?$", re.MULTILINE)
_INDENT = "  "


def with_source(settings: str, source: str, connection: str) -> str:
    """The text of `gddl.yaml` with a block for a source whose log jobs read; as it is where the source has one.

    Raises:
        MetadataError: `FIELD_VALUE`: the source is declared otherwise, or the file is written in a form that is not
            edited here. `FIELD_VALUE`: the source names another connection.
    """
    before = yaml.safe_load(settings) or {}
    sources = before.get("sources") or {}
    if source in sources:
        return _declared(settings, sources[source] or {}, source, connection)
    found = _SOURCES.search(settings)
    indent = _indent_of(settings[found.end() :]) if found else _INDENT
    block = _block(source, connection, indent)
    if found:
        after = settings[found.end() :].removeprefix("\n")
        edited = f"{settings[: found.end()]}\n{block}{after}"
    else:
        edited = f"{settings.rstrip()}\nsources:\n{block}"
    if "\r\n" in settings:
        edited = edited.replace("\r\n", "\n").replace("\n", "\r\n")
    is_once = bool(found) or "sources" not in before
    if is_once and _parsed(edited) == {**before, "sources": {**sources, source: yaml.safe_load(block)[source]}}:
        return edited
    what = "gddl.yaml is written in a form that this command does not edit, such as `sources` in one line"
    raise MetadataError(FIELD_VALUE, what, remedy=f"write this below `sources:`, and run it again:\n{block}")


def _declared(settings: str, declared: Mapping[str, Any], source: str, connection: str) -> str:
    if not declared.get("capture"):
        what = f"gddl.yaml has a source {source} without `capture`, which this command does not edit"
        lines = _block(source, connection, "  ").split("\n", 1)[1]
        raise MetadataError(FIELD_VALUE, what, remedy=f"add these lines to it, and run it again:\n{lines}")
    if (named := declared.get("connection")) != connection:
        what = f"jobs read the source {source} by the connection {named}, and --connection is {connection}"
        remedy = f"give --connection {named}, or correct `connection` of the source in gddl.yaml"
        raise MetadataError(FIELD_VALUE, what, remedy=remedy)
    return settings


def _indent_of(lines: str) -> str:
    """The blanks before the first entry of these lines, after empty ones and comments; two where there is none."""
    for line in lines.splitlines():
        entry = line.strip()
        if entry and not entry.startswith("#"):
            return line[: len(line) - len(line.lstrip(" "))] or _INDENT
    return _INDENT


def _block(source: str, connection: str, indent: str) -> str:
    lines = (
        f"{text(source)}:",
        f"{indent}connection: {text(connection)}",
        f"{indent}capture: {{connector: postgresql}}",
        f"{indent}defaults: {{initial_load: {{}}}}  # the first run reads the tables, the log brings what changes",
    )
    return "".join(f"{indent}{line}\n" for line in lines)


def _parsed(settings: str) -> Any:
    """None: it is no YAML."""
    try:
        return yaml.safe_load(settings)
    except yaml.YAMLError:
        return None


@dataclass(frozen=True)
class Missing:
    """What the source lacks for its rows.

    Attributes:
        statements: of SQL that can run as they are, in their order.
        by_hand: findings that a person decides on.
    """

    statements: tuple[str, ...]
    by_hand: tuple[Finding, ...]


def missing(findings: Sequence[Finding], specs: Sequence[TableSpec]) -> Missing:
    """Statements for the wanted tables alone, each once, and what is left to a person.

    What names the rows of a table in the log comes before what publishes it: in between its updates would fail.
    """
    publication, tables = properties_of(specs[0])[PUBLICATION], [spec.name_in_source for spec in specs]
    without = creation_of(publication)
    mine = [one for one in findings if one.sql and one.concerns(tables)]
    statements = dict.fromkeys(statement for one in mine for statement in one.sql)
    publishing = [statement for statement in statements if statement.startswith("ALTER PUBLICATION ")]
    naming = [statement for statement in statements if statement not in publishing]
    if any(one.statement == without for one in findings):
        publishing = [creation_of(publication, ", ".join(map(quoted_name, tables)))]
    by_hand = [one for one in findings if one not in mine and one.statement != without]
    return Missing((*naming, *publishing), tuple(by_hand))


@dataclass(frozen=True)
class SourceLog:
    """What a source lacks, and what its first run loads.

    Attributes:
        shown: publication and slot, for a reader.
        tables: names in the source of the enabled rows.
        rows: of tables whose number is known, about.
        unknown: tables whose number of rows is not known.
    """

    lacks: Missing
    shown: str
    tables: tuple[str, ...]
    rows: int
    unknown: int

    @property
    def is_ready(self) -> bool:
        """Whether a run can read the log for all of the tables."""
        return not self.lacks.statements and not any(one.concerns(self.tables) for one in self.lacks.by_hand)


def look(specs: Sequence[TableSpec], rows: Mapping[str, int | None], database: SourceDatabase) -> SourceLog:
    """What the source lacks for its rows.

    Args:
        specs: enabled rows of the source.
        rows: by name in the source; None: not known.

    Raises:
        FatalError, RetriableError: the source can't be read.
    """
    findings, shown = database.log_findings(specs)
    counts = [rows.get(spec.name_in_source) for spec in specs]
    return SourceLog(
        lacks=missing(findings, specs),
        shown=shown,
        tables=tuple(spec.name_in_source for spec in specs),
        rows=sum(count or 0 for count in counts),
        unknown=sum(count is None for count in counts),
    )


def lines(log: SourceLog) -> Iterator[str]:
    """What is left to do; then whether the log can be read, and what the first run loads."""
    lacks = log.lacks
    if lacks.statements:
        yield "run these statements at the source, as the owner of its tables who may CREATE in the database:"
        yield from (f"  {statement};" for statement in lacks.statements)
    yield from (f"to decide: {finding.what}. Remedy: {finding.statement}" for finding in lacks.by_hand)
    if log.is_ready:
        yield f"the log can be read: {log.shown}"
    else:
        yield "not every table can be loaded yet: runs stop at what is named above, and `gddl check` shows what is left"
    more = f", and {log.unknown} whose rows are not known" if log.unknown else ""
    tables = counted(len(log.tables), "table")
    when = "the first run" if log.is_ready else "then the first run"
    yield f"{when} loads {tables} with about {log.rows:,} rows{more}; after it the log brings what changes"


def records(log: SourceLog) -> Iterator[dict[str, Any]]:
    """The same for `--json`."""
    yield from ({"kind": "statement", "sql": statement} for statement in log.lacks.statements)
    for one in log.lacks.by_hand:
        tables = sorted(one.of_tables)
        yield {"kind": "decision", "code": one.code, "message": one.what, "remedy": one.statement, "tables": tables}
    yield {
        "kind": "log",
        "is_ready": log.is_ready,
        "message": log.shown,
        "tables": list(log.tables),
        "rows": log.rows,
        "unknown": log.unknown,
    }
