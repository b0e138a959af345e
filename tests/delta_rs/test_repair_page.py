"""Each repair that docs/repair.md promises, done as the page says, on the situation that it names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.table.outcome import TableOutcome
from tests.delta_rs.small_lake import SmallLake
from tests.landing import write

ROOT = Path(__file__).parents[2]
SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",))
VERBS = {
    "gddl rebuild --table T": JobOptions(full_refresh=True),
    "gddl reload --from-files --table T": JobOptions(reload=True),
    "gddl resync --table T --source-connection NAME": JobOptions(resync=True),
}


def promised() -> dict[str, str]:
    """Situation to command, of the table on the page."""
    page = (ROOT / "docs" / "repair.md").read_text(encoding="utf-8")
    part = page.partition("## Rebuild, reload or resync")[2]
    rows = re.findall(r"^\| (.+?) \| (.*?)`(gddl [^`]+)` \|$", part, re.MULTILINE)
    return {f"{what}: {before}".rstrip(": "): command for what, before, command in rows}


def filled(root: Path) -> SmallLake:
    lake = SmallLake(root)
    lake.load(SPEC, 4)
    lake.change(SPEC, 1, [("U", 0, "new"), ("D", 3, None)])
    lake.done(SPEC)
    return lake


def landing(lake: SmallLake) -> Path:
    return Path(lake.layout(SPEC).landing)


def emptied(lake: SmallLake) -> None:
    for path in landing(lake).iterdir():
        path.unlink()


def damaged(root: Path) -> None:
    lake = filled(root)
    right = lake.replica(SPEC)
    DeltaTable(lake.layout(SPEC).replica).delete("id = 1")
    verdict = lake.run(SPEC, JobOptions(action="verify"))
    assert isinstance(verdict, TableOutcome)
    assert verdict.result.error is not None
    assert verdict.result.error.code == "VERIFY_DIFFERENT"
    emptied(lake)
    lake.done(SPEC, VERBS["gddl rebuild --table T"])
    assert lake.replica(SPEC) == right


def changed_row(root: Path) -> None:
    lake = filled(root)
    emptied(lake)
    other = replace(SPEC, mask={"v": "hash"}, partition_by=("id",))
    refused = lake.run(other, JobOptions(full_listing=True))
    assert isinstance(refused, TableOutcome)
    assert refused.result.error is not None
    assert refused.result.error.code in ("MASK_CHANGED", "PARTITION_CHANGED")
    lake.done(other, VERBS["gddl rebuild --table T"])
    assert {len(value) for value in lake.replica(other).values()} == {64}


def truncated(root: Path) -> None:
    lake = filled(root)
    emptied(lake)
    lake.change(SPEC, 9, [("I", 9, "after the truncate")])
    asked = lake.run(SPEC, VERBS["gddl reload --from-files --table T"])
    assert isinstance(asked, TableOutcome)
    assert asked.result.error is not None
    assert asked.result.error.code == "RELOAD_UNCONFIRMED"
    lake.done(SPEC, replace(VERBS["gddl reload --from-files --table T"], confirmed=True))
    assert lake.replica(SPEC) == {9: "after the truncate"}


def wrong_types(root: Path) -> None:
    lake = filled(root)
    emptied(lake)
    right = pa.table({"id": pa.array([0, 1], pa.int32()), "v": pa.array([10, 11], pa.int64())})
    write(landing(lake), "LOAD00000001.parquet", right)
    lake.done(SPEC, replace(VERBS["gddl reload --from-files --table T"], confirmed=True))
    assert lake.replica(SPEC) == {0: 10, 1: 11}
    assert DeltaTable(lake.layout(SPEC).replica).to_pyarrow_table().schema.field("v").type == pa.int64()


def like_its_source(root: Path) -> None:
    """With a source: `test_repairs.py`; without a connection it is refused."""
    refused = filled(root).run(SPEC, VERBS["gddl resync --table T --source-connection NAME"])
    assert isinstance(refused, TableOutcome)
    assert refused.result.error is not None
    assert refused.result.error.code == "RESYNC_REFUSED"


PLAYED: dict[str, tuple[str, Callable[[Path], None]]] = {
    "the replica was damaged": ("gddl rebuild --table T", damaged),
    "`keys`, `sequence_by`, `mask`": ("gddl rebuild --table T", changed_row),
    "the source was truncated": ("gddl reload --from-files --table T", truncated),
    "a file's types or columns were wrong": ("gddl reload --from-files --table T", wrong_types),
    "the table must equal its source": ("gddl resync --table T --source-connection NAME", like_its_source),
}


def test_every_repair_of_the_page_is_played() -> None:
    found = promised()
    assert len(found) == len(PLAYED)
    for situation, command in found.items():
        (wanted,) = [verb for begin, (verb, _) in PLAYED.items() if situation.startswith(begin)]
        assert command == wanted


@pytest.mark.parametrize("situation", PLAYED)
def test_repair(situation: str, tmp_path: Path) -> None:
    PLAYED[situation][1](tmp_path)
