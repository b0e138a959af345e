"""`gddl onboard --capture`: the block of a source whose log jobs read, its publication, and a proof of both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from airflow_gddl.cli.screen import counted
from airflow_gddl.cli.source_database import SourceDatabase
from airflow_gddl.contract.errors import FatalError, MetadataError, RetriableError
from airflow_gddl.contract.postgresql_log import Finding, creation_of, quoted_name
from airflow_gddl.contract.sources.capture import PUBLICATION, properties_of
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.onboarding.yaml_text import text

_SOURCES = re.compile(r"^sources:[ \t]*(#.*)?$", re.MULTILINE)
_ANY_SOURCES = re.compile(r"^sources:", re.MULTILINE)


def with_source(settings: str, source: str, connection: str) -> str:
    """The text of `gddl.yaml` with a block for a source whose log jobs read; as it is where the source has one.

    Raises:
        MetadataError: `SOURCE_INVALID`: the source is declared otherwise, or `sources` is written in one line.
    """
    block = (
        f"  {text(source)}:\n    connection: {text(connection)}\n    capture: {{connector: postgresql}}\n"
        "    defaults: {initial_load: {}}  # the first run reads the tables, the log brings what changes\n"
    )
    declared = ((yaml.safe_load(settings) or {}).get("sources") or {}).get(source)
    if declared is not None and declared.get("capture"):
        return settings
    if declared is not None or (_ANY_SOURCES.search(settings) and not _SOURCES.search(settings)):
        what = f"gddl.yaml declares {source if declared is not None else 'sources'} in a way that is not edited here"
        raise MetadataError("SOURCE_INVALID", what, remedy=f"write this below `sources`, and run it again:\n{block}")
    if found := _SOURCES.search(settings):
        return f"{settings[: found.end()]}\n{block}{settings[found.end() :].removeprefix(chr(10))}"
    return f"{settings.rstrip(chr(10))}\nsources:\n{block}"


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


def apply(database: SourceDatabase, statements: Sequence[str]) -> None:
    """Run statements at the source, all or none.

    Raises:
        FatalError: `SOURCE_REFUSED`: the user may not, or the source can't.
        RetriableError: `SOURCE_UNREACHABLE`.
    """
    sa = database.sqlalchemy()
    with database.connected() as (connection, _):
        try:
            connection.execute(sa.text("SET TRANSACTION READ WRITE"))
            for statement in statements:
                connection.execute(sa.text(statement.replace(":", r"\:")))
            connection.commit()
        except sa.exc.OperationalError:
            raise
        except sa.exc.DBAPIError as error:
            remedy = (
                "as the owner of the tables, or a superuser, run what `gddl check` names, and then the command again"
            )
            raise FatalError("SOURCE_REFUSED", f"{error.orig}".strip(), remedy=remedy) from error


def _to_decide(lacks: Missing) -> Iterator[str]:
    return (f"to decide: {finding.what}. Remedy: {finding.statement}" for finding in lacks.by_hand)


def lines(
    specs: Sequence[TableSpec], rows: Mapping[str, int | None], database: SourceDatabase, *, do_apply: bool
) -> Iterator[str]:
    """What is missing and what to do, or what was done; then the proof, and what the first run loads.

    Args:
        specs: enabled rows of the source.
        rows: by name in the source; None: not known.
    """
    try:
        findings, shown = database.log_findings(specs)
        lacks = missing(findings, specs)
        if lacks.statements and do_apply:
            try:
                apply(database, lacks.statements)
            except FatalError:
                yield from _to_decide(lacks)
                raise
            yield from (f"done: {statement};" for statement in lacks.statements)
            findings, shown = database.log_findings(specs)
            lacks = missing(findings, specs)
    except RetriableError as error:
        yield f"the log could not be tried: {error}"
        return
    if lacks.statements:
        yield "run these statements at the source, as the owner of its tables; --apply does it:"
        yield from (f"  {statement};" for statement in lacks.statements)
    yield from _to_decide(lacks)
    if not findings:
        yield f"the log can be read: {shown}"
    counts = [rows.get(spec.name_in_source) for spec in specs]
    known = sum(count or 0 for count in counts)
    unknown = sum(count is None for count in counts)
    more = f", and {unknown} whose rows are not known" if unknown else ""
    tables = counted(len(specs), "table")
    yield f"the first run loads {tables} with about {known:,} rows{more}; then the log brings what changes"
