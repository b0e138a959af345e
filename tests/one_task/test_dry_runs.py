"""What a command refuses before its first write, its dry run refuses, too, with the same code."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.main import get_command

from airflow_gddl.cli.commands import app
from airflow_gddl.contract.actions import Erase, Explain, Load, Maintain, Plan, Rebuild, Reload
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import LandingRetention
from tests.conftest import LocalPort
from tests.harness.asked import with_asked
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write
from tests.harness.sharded import Sharded
from tests.spark.children import killed_child
from tests.unit.pages import commands

SPEC = spec_of()
RUN, REBUILD = JobOptions(full_listing=True), JobOptions(action=Rebuild(), full_listing=True)
RELOAD = JobOptions(action=Reload(confirmed=True), full_listing=True)
MAINTAIN, ERASE = JobOptions(action=Maintain()), JobOptions(action=Erase(key={"id": "1"}))


def dry(options: JobOptions) -> JobOptions:
    """What `--dry-run` of the command asks its job for."""
    match options.action:
        case Erase(key=key):
            return replace(options, action=Explain(key=key, before_erasure=True))
        case Maintain():
            return replace(options, action=Maintain(dry_run=True))
    assert isinstance(options.action, Load)
    return replace(options, action=Plan(of=options.action))


@dataclass(frozen=True)
class Refusal:
    """Attributes:
    arrange: makes the lake of a loaded table one for which the command is refused; returns the row as it is then.
    """

    code: str
    options: tuple[JobOptions, ...]
    arrange: Callable[[Lake], TableSpec]


def filled(lake: Lake, spec: TableSpec = SPEC) -> TableSpec:
    lake.load(spec)
    lake.change(spec, 1, [("U", 1, "new")])
    lake.done(spec)
    return spec


def waits(lake: Lake, spec: TableSpec = SPEC) -> TableSpec:
    lake.change(spec, 9, [("I", 9, "waits")])
    return spec


def without_root(lake: Lake) -> TableSpec:
    filled(lake)
    shutil.rmtree(lake.root / "landing")
    return SPEC


def without(kind: str) -> Callable[[Lake], TableSpec]:
    def arrange(lake: Lake) -> TableSpec:
        filled(lake)
        shutil.rmtree(getattr(lake.layout(SPEC), kind))
        return waits(lake)

    return arrange


def behind(lake: Lake) -> TableSpec:
    filled(lake)
    state = Path(lake.layout(SPEC).state)
    shutil.copytree(state, lake.root / "copy")
    lake.change(SPEC, 2, [("I", 7, "later")])
    lake.done(SPEC)
    shutil.rmtree(state)
    (lake.root / "copy").rename(state)
    return SPEC


def behind_without_files(lake: Lake) -> TableSpec:
    behind(lake)
    return without_files(lake)


def without_files(lake: Lake) -> TableSpec:
    for path in lake.landing(SPEC).iterdir():
        path.unlink()
    return SPEC


def emptied(lake: Lake) -> TableSpec:
    filled(lake)
    return without_files(lake)


def foreign(lake: Lake) -> TableSpec:
    filled(lake)
    changes = lake.layout(SPEC).changes
    rows = DeltaTable(changes).to_pyarrow_table().slice(0, 1).drop_columns(["_gddl"])
    write_deltalake(changes, rows, mode="append", schema_mode="merge")
    return waits(lake)


def of_another_job(lake: Lake) -> TableSpec:
    lake.load(SPEC)
    write_deltalake(lake.layout(SPEC).replica, pa.table({"id": pa.array([1], pa.int32())}))
    return SPEC


def ambiguous(lake: Lake) -> TableSpec:
    """A load file some hours younger than changes, and no ledger says which came first."""
    lake.load(SPEC)
    lake.change(SPEC, 1, [("U", 1, "new")])
    for name, hours in (("20240101-000000001.parquet", 9), ("LOAD00000001.parquet", 5)):
        at = time.time() - 3600 * hours
        os.utime(lake.landing(SPEC) / name, (at, at))
    return SPEC


def rekeyed(lake: Lake) -> TableSpec:
    return replace(filled(lake), keys=("v",))


def erased(lake: Lake) -> TableSpec:
    filled(lake)
    lake.done(SPEC, JobOptions(action=Erase(key={"id": "2"})))
    return waits(lake)


def erased_by_other_keys(lake: Lake) -> TableSpec:
    return replace(erased(lake), keys=("id", "v"))


def salt(lake: Lake) -> Path:
    return Path(lake.layout(SPEC).erased).parents[1] / "salt.json"


def without_salt(lake: Lake) -> TableSpec:
    erased(lake)
    salt(lake).unlink()
    return SPEC


def without_salt_of_another(lake: Lake) -> TableSpec:
    without_salt(lake)
    return filled(lake, spec_of("other"))


def misfits(lake: Lake) -> TableSpec:
    """A stored value that the row's new type can't hold."""
    return replace(filled(lake), options={"types": {"v": "int"}})


def null_keys(lake: Lake) -> TableSpec:
    lake.change(SPEC, 1, [("I", 1, None)])
    lake.done(SPEC)
    return replace(SPEC, keys=("v",))


def unmasked(lake: Lake) -> TableSpec:
    filled(lake, replace(SPEC, mask={"v": "hash"}))
    return SPEC


def sharded(lake: Lake) -> Sharded:
    one = Sharded(lake.root, ("crm_eu", "crm_us"))
    for shard in one.shards:
        one.load(shard, {1: shard})
    lake.done(one.spec)
    return one


def of_shards(lake: Lake) -> TableSpec:
    return sharded(lake).spec


def masked_shards(lake: Lake) -> TableSpec:
    return replace(sharded(lake).spec, mask={"v": "hash"})


def shards_without_changes(lake: Lake) -> TableSpec:
    one = sharded(lake)
    shutil.rmtree(lake.layout(one.spec).changes)
    return one.spec


def one_source_of_several(lake: Lake) -> TableSpec:
    sharded(lake)
    lake.load(SPEC)
    return SPEC


def unfinished(lake: Lake) -> TableSpec:
    filled(lake)
    lake.change(SPEC, 2, [("I", 9, "half")])
    assert killed_child(lake.job([SPEC], run_id="dies"), "append").status == -9
    return SPEC


def without_keys(lake: Lake) -> TableSpec:
    spec = replace(SPEC, keys=())
    lake.load(spec)
    lake.done(spec)
    return spec


def other_row(**fields: object) -> Callable[[Lake], TableSpec]:
    def arrange(lake: Lake) -> TableSpec:
        filled(lake)
        waits(lake)
        return replace(SPEC, **fields)  # type: ignore[arg-type] # any field of a row

    return arrange


LOADS = (RUN, REBUILD, RELOAD)
OTHER_KEY = with_asked(ERASE, key={"none": "1"})
REFUSALS = [
    Refusal("LANDING_MISSING", (RUN,), without_root),
    Refusal("KEYS_CHANGED", (RUN, ERASE), rekeyed),
    Refusal("LEDGER_MISSING", (RUN,), without("state")),
    Refusal("TABLES_MISSING", (RUN,), without("changes")),
    Refusal("TABLES_MISSING", (RUN,), without("replica")),
    Refusal("LEDGER_BEHIND", (RUN,), behind),
    Refusal("FOREIGN_ROWS", (RUN,), foreign),
    Refusal("TABLE_NOT_OURS", LOADS, of_another_job),
    Refusal("GENERATIONS_UNKNOWN", (RUN,), ambiguous),
    Refusal("ERASED_BY_OTHER_KEYS", (REBUILD, RELOAD), erased_by_other_keys),
    Refusal("ERASURE_SALT_MISSING", (*LOADS, ERASE), without_salt),
    Refusal("ERASURE_SALT_MISSING", (ERASE,), without_salt_of_another),
    Refusal("SHARDS_CHANGED", LOADS, one_source_of_several),
    Refusal("FEATURE_MISSING", (RUN,), other_row(iceberg=True)),
    Refusal("DIALECT_UNKNOWN", LOADS, other_row(dialect="none")),
    Refusal("MASK_KEY_MISSING", (*LOADS, MAINTAIN, ERASE), other_row(mask={"v": "hmac"})),
    Refusal("REBUILD_REFUSED", (REBUILD,), misfits),
    Refusal("REBUILD_REFUSED", (REBUILD,), null_keys),
    Refusal("REBUILD_NEEDS_FILES", (REBUILD,), unmasked),
    Refusal("NOTHING_TO_REFRESH", (RELOAD,), emptied),
    Refusal("NOTHING_TO_REFRESH", (REBUILD,), behind_without_files),
    Refusal("SHARDS_UNSUPPORTED", (RELOAD,), of_shards),
    Refusal("SHARDS_UNSUPPORTED", (REBUILD,), masked_shards),
    Refusal("SHARDS_UNSUPPORTED", (REBUILD,), shards_without_changes),
    Refusal("FIELD_VALUE", (MAINTAIN,), other_row(vacuum_retention="1h")),
    Refusal(
        "RETENTION_UNREADABLE",
        (MAINTAIN, ERASE),
        other_row(table_properties={"delta.deletedFileRetentionDuration": "a month"}),
    ),
    Refusal(
        "LANDING_RETENTION_REFUSED",
        (MAINTAIN,),
        lambda lake: other_row(
            landing_retention=LandingRetention(after="30d", action="move", to=str(lake.root / "lake/old"))
        )(lake),
    ),
    Refusal("KEY_INVALID", (OTHER_KEY,), filled),
    Refusal("TABLE_WITHOUT_KEYS", (ERASE,), without_keys),
    Refusal("BATCH_UNFINISHED", (ERASE,), unfinished),
]
PLAYED = [(one, options) for one in REFUSALS for options in one.options]


def called(played: tuple[Refusal, JobOptions]) -> str:
    refusal, options = played
    return f"{refusal.code}-{options.action.name}"


def files_of(root: Path) -> set[tuple[str, int]]:
    """Names with times, but of what any listing of a landing folder notes."""
    return {
        (str(path), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file() and path.name != "seen.json"
    }


@pytest.mark.parametrize("played", PLAYED, ids=map(called, PLAYED))
def test_a_dry_run_says_what_the_run_refuses(
    played: tuple[Refusal, JobOptions], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusal, options = played
    lake = Lake(tmp_path)
    spec = refusal.arrange(lake)
    if refusal.code == "FEATURE_MISSING":
        monkeypatch.setattr(TableSpec, "features", {"iceberg": "absent"})
    before = files_of(tmp_path)
    said = lake.result(spec, dry(options))
    assert said.error is not None, f"the dry run gives {said.status}"
    assert (said.error.code, files_of(tmp_path) ^ before) == (refusal.code, set())
    done = lake.result(spec, options)
    assert done.error is not None
    assert (done.error.code, done.error.message) == (said.error.code, said.error.message)


@pytest.mark.parametrize(
    ("options", "arrange", "code"),
    [(REBUILD, misfits, "REBUILD_REFUSED"), (RUN, behind, "LEDGER_BEHIND"), (RUN, waits, ""), (REBUILD, filled, "")],
)
def test_both_engines_plan_and_refuse(
    options: JobOptions, arrange: Callable[[Lake], TableSpec], code: str, engine: LocalPort, tmp_path: Path
) -> None:
    lake = Lake(tmp_path)
    spec = arrange(lake)
    said = lake.results(engine, lake.job([spec], dry(options)))[spec.table]
    assert (said.error.code if said.error is not None else "", said.status) == (code, "failed" if code else "succeeded")


def test_each_command_with_a_dry_run_is_played() -> None:
    """`adopt` has an action of its own for both forms (tests/adopt/test_adopt.py)."""
    played = {"run", "rebuild", "reload", "maintain", "erase"}
    with_dry_run = {name for name, options in commands(get_command(app)) if "--dry-run" in options}
    assert with_dry_run == {f"gddl {name}" for name in (*played, "adopt")}


def test_a_dry_run_names_load_files_that_the_last_run_could_not_read(tmp_path: Path) -> None:
    """They are read again, so that only the run knows whether they can be read now."""
    lake = Lake(tmp_path)
    write(lake.landing(SPEC), "LOAD00000001.parquet", pa.table({"id": [1]}))
    (lake.landing(SPEC) / "LOAD00000001.parquet").write_bytes(b"PAR1 cut")
    failed = lake.result(SPEC)
    assert failed.error is not None
    assert failed.error.code == "FIRST_LOAD_UNREADABLE"
    said = lake.done(SPEC, dry(RUN))
    assert [(warning.code, warning.count) for warning in said.warnings] == [("FILE_UNREADABLE", 1)]


def test_a_dry_run_takes_no_file_behind_a_held_truncate(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    filled(lake)
    columns = {"Op": ["T"], "seq": [900], "id": pa.array([None], pa.int32()), "v": pa.array([None], pa.string())}
    write(lake.landing(SPEC), "20240101-000000009.parquet", pa.table(columns))
    held = lake.done(SPEC)
    assert [warning.code for warning in held.warnings] == ["TRUNCATE_HELD"]
    said = lake.done(SPEC, dry(RUN))
    assert (said.details["batches"], [warning.code for warning in said.warnings]) == ([], ["TRUNCATE_HELD"])


def test_a_dry_run_of_a_rebuild_shows_the_batch_of_each_source(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    one = sharded(lake)
    one.change("crm_us", ("U", 1, "changed"))
    batches = lake.done(one.spec, dry(REBUILD)).details["batches"]
    assert [(batch["shard"], batch["mode"], len(batch["files"])) for batch in batches] == [
        ("crm_eu", "refresh", 0), ("crm_us", "refresh", 0), ("crm_us", "incremental", 1),
    ]  # fmt: skip
    assert lake.done(one.spec, REBUILD).batches == 3
