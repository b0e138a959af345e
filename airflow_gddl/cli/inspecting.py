"""Implementation of `gddl inspect`; imports pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.options import absolute, check_names
from airflow_gddl.cli.screen import Cell, Screen, counted
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.layout import LandingFolder
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.source_access import SourceAccess, announced
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.loading import load
from airflow_gddl.onboarding.inspection import Finding, inspect_folder, judge
from airflow_gddl.onboarding.landing import Landing

_STYLES = {"error": "red", "warning": "yellow"}


def carry_out(
    cli: CliContext, metadata: str, root: str, tables: frozenset[str], *, as_json: bool
) -> tuple[Finding, ...]:
    """Show all findings, and return them.

    Args:
        root: empty: `landing` of the metadata and of its sources; then the metadata is required.
        tables: only these; empty: all.

    Raises:
        MetadataError: `TABLE_NAME_INVALID`, `METADATA_MISSING`, `INSPECT_NOTHING_FOUND`.
        GddlError: the root can't be listed.
    """
    check_names(tables)
    places, access = _places(cli, metadata, root)
    found: list[Finding] = []
    count = 0
    for place, specs in places.items():
        landing = Landing(place, announced(access, cli.environ))
        # There are no rules for files of other services.
        others = {table for table, spec in specs.items() if spec.dialect != "dms"}
        folders = [folder for folder in landing.folders(tables) if folder.table not in others]
        count += len(folders)
        for folder in folders:
            for finding in judge(inspect_folder(landing, folder, specs.get(folder.table))):
                found.append(finding)
                if as_json:
                    cli.screen.record(finding)
    if not count:
        remedy = "check the root and --table; files lie in <landing>/<schema>/<table>/, named as DMS names them"
        where = ", ".join(places)
        raise MetadataError("INSPECT_NOTHING_FOUND", "no table has files of AWS DMS there", where=where, remedy=remedy)
    if not as_json:
        show(cli.screen, found, count)
    return tuple(found)


def _places(
    cli: CliContext, metadata: str, root: str
) -> tuple[Mapping[str, Mapping[str, TableSpec]], tuple[SourceAccess, ...]]:
    """Landing roots, and the rows below each by their names in the source; an explicit root needs no metadata.

    Also the credentials of roots that have their own.
    """
    own = absolute(root) if root else ""
    if own and not is_s3(metadata) and not Path(metadata).is_dir():
        return {own: {}}, ()
    catalog = load(metadata, cli.environ) if own else metadata_folder.read(cli, metadata)
    places: dict[str, dict[str, TableSpec]] = {own: {}} if own else {catalog.roots.landing: {}}
    if not own:
        places |= {landing: {} for landing in catalog.landings.values()}
    for spec in catalog.tables:
        for folder in LandingFolder.all_of(catalog.roots, spec):
            if folder.root in places:
                places[folder.root].setdefault(folder.table, spec)
    return places, catalog.access


def show(screen: Screen, found: list[Finding], tables: int) -> None:
    """Findings by code: meaning and setting once, with the locations below."""
    for code in dict.fromkeys(finding.code for finding in found):
        mine = [finding for finding in found if finding.code == code]
        screen.say(f"[{code}] {mine[0].message}", _STYLES[mine[0].level])
        screen.say(f"  set: {mine[0].setting}")
        rows: list[list[Cell | str]] = [[one.table, one.file, Cell(one.evidence)] for one in mine]
        screen.table(("table", "file", "seen"), rows)
    ends = f"{counted(len(found), 'finding')} in {counted(tables, 'table')}"
    screen.say(ends if found else f"{counted(tables, 'table')}, no findings", "bold" if found else "green")
