"""docs/lake-files.md names every kind of document that jobs keep below `_gddl`, and no other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from airflow_gddl.contract.actions import Erase, Maintain, Reload
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.spec import JobOptions
from tests.catalogs.world import CatalogWorld, row
from tests.harness.lake import Lake, spec_of
from tests.unit.pages import SOURCES, found_kinds, kinds_of_lake, trees, unknown_to_page

ERASE = JobOptions(action=Erase(key={"id": "1"}, asked_by="eve"))
_PARAMETERS = {"sources", "sharded"}
"""First folders that the code passes on, see `TargetRecords`."""


def first_folders(tree: ast.Module) -> Iterator[str]:
    """Folders that the code joins to `_gddl`."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        names = [ast.unparse(argument) for argument in call.args]
        at = next((n for n, name in enumerate(names) if name in ("STATE", "'_gddl'")), None)
        if at is not None and getattr(call.func, "id", "") == "join":
            folder = call.args[at + 1]
            yield from [folder.value] if isinstance(folder, ast.Constant) else _PARAMETERS


def test_page_names_all_folders() -> None:
    used = {folder for tree in trees(SOURCES) for folder in first_folders(tree)}
    assert {name.partition("/")[0] for name in kinds_of_lake()} == used


def test_page_names_what_runs_keep(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(history=True)
    lake.load(spec)
    lake.done(spec)
    lake.change(spec, 1, [("D", 0, None), ("?", 9, "bad"), ("I", 4, "x")])
    lake.done(spec)
    for options in (ERASE, JobOptions(action=Maintain()), JobOptions(action=Reload(confirmed=True))):
        lake.done(spec, options)
    declared = spec_of("d", source="crm", source_table="public.d", landing=str(tmp_path / "crm"))
    lake.load(declared)
    lake.done(declared)
    assert unknown_to_page(tmp_path / "lake") == []
    assert found_kinds(tmp_path / "lake") >= {
        "ledger/<table>/commits/<n>.json", "ledger/<table>/claims/<n>.json", "ledger/<table>/seen.json",
        "tombstones/<table>/…", "runs/<table>/<time>-<run>.json",
        "erased/<table>/<id>.json", "erased/<table>/keyed-by", "erased/salt.json", "targets/<table>.json",
        "sources/<source>/<table>.json", "folders/<id>.json",
    }  # fmt: skip


def test_page_names_what_a_catalog_keeps(tmp_path: Path) -> None:
    world = CatalogWorld(tmp_path / "a", catalogs={"main": CatalogSpec(kind="glue", endpoint="http://127.0.0.1:1")})
    spec = row()
    world.lake.load(spec)
    world.run(spec)
    assert unknown_to_page(tmp_path / "a" / "lake") == []
    assert "catalogs/<catalog>/<table>.json" in found_kinds(tmp_path / "a" / "lake")
