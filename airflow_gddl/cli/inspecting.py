"""The course of `gddl inspect`, once pyarrow is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.screen import Cell, Screen, ScreenColumn
from airflow_gddl.cli.text import counted
from airflow_gddl.contract.checks import table_name_fault
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.loading import load
from airflow_gddl.onboarding.inspection.findings import Finding
from airflow_gddl.onboarding.inspection.reading import look_into
from airflow_gddl.onboarding.inspection.rules import judge
from airflow_gddl.onboarding.landing_files import Landing

_STYLES = {"error": "red", "warning": "yellow"}


def carry_out(
    around: CliContext, metadata: str, root: str, tables: frozenset[str], *, as_json: bool
) -> tuple[Finding, ...]:
    """All findings, shown as they are found.

    Args:
        root: empty: `landing` of the metadata, which then has to be there.
        tables: only these; empty: all.

    Raises:
        MetadataError: `TABLE_NAME_INVALID`, `METADATA_MISSING`, `INSPECT_NOTHING_FOUND`.
        GddlError: the root can't be listed.
    """
    for table in sorted(tables):
        if fault := table_name_fault(table):
            raise MetadataError("TABLE_NAME_INVALID", f"{table!r:.80}: {fault}", remedy="write schema.name")
    place, specs = _place(around, metadata, root)
    landing = Landing(place, around.environ)
    # What files of another service should look like, no rule here knows.
    others = {table for table, spec in specs.items() if spec.dialect != "dms"}
    folders = [folder for folder in landing.folders(tables) if folder.table not in others]
    if not folders:
        remedy = "check the root and --table; files lie in <landing>/<schema>/<table>/, named as DMS names them"
        raise MetadataError("INSPECT_NOTHING_FOUND", "no table has files of AWS DMS there", where=place, remedy=remedy)
    found: list[Finding] = []
    for folder in folders:
        for finding in judge(look_into(landing, folder, specs.get(folder.table))):
            found.append(finding)
            if as_json:
                around.screen.record(finding)
    if not as_json:
        show(around.screen, found, len(folders))
    return tuple(found)


def _place(around: CliContext, metadata: str, root: str) -> tuple[str, Mapping[str, TableSpec]]:
    """The landing root, and the rows that are known; a root of one's own needs no metadata."""
    if root and not is_s3(metadata) and not Path(metadata).is_dir():
        return _absolute(root), {}
    catalog = metadata_folder.read(around, metadata) if not root else load(metadata, around.environ)
    return (_absolute(root) if root else catalog.roots.landing), {spec.table: spec for spec in catalog.tables}


def _absolute(root: str) -> str:
    return root if is_s3(root) else os.path.normpath(Path(root).absolute())


def show(screen: Screen, found: list[Finding], tables: int) -> None:
    """Findings by code: what it means and what to set once, the places below it."""
    for code in dict.fromkeys(finding.code for finding in found):
        mine = [finding for finding in found if finding.code == code]
        screen.say(f"[{code}] {mine[0].message}", _STYLES[mine[0].level])
        screen.say(f"  set: {mine[0].setting}")
        rows: list[list[Cell | str]] = [[one.table, one.file, Cell(one.evidence)] for one in mine]
        screen.table([ScreenColumn("table"), ScreenColumn("file"), ScreenColumn("seen")], rows)
    ends = f"{counted(len(found), 'finding')} in {counted(tables, 'table')}"
    screen.say(ends if found else f"{counted(tables, 'table')}, no findings", "bold" if found else "green")
