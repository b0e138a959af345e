"""`gddl plan --diff`: what an edit of the metadata does, compared with what jobs accept."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import Field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_identity import BUILT_FIELDS, COLUMN_FIELDS
from airflow_gddl.metadata.loading import load
from airflow_gddl.runtime.state.table_runs import TableRecord
from airflow_gddl.tools.capacity.metadata_diff import Deployment, as_markdown, compare
from airflow_gddl.tools.capacity.plan import Metadata
from spark_jobs.plan.applied_settings import settings_of
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.plan.planned_batch import TableState
from tests.unit.metadata_folder import loaded, row_file, write

AROUND = CliContext(environ={}, now=lambda: datetime(2026, 11, 1, 12, tzinfo=UTC), new_id=lambda: "aa", job_command=())
COLUMNS = {"id": "int", "region": "string", "email": "string", "qty": "int", "seq": "bigint", "bi_id": "int"}
EDITS = {
    "nothing": ("", ""),
    "keys": ("", "keys: [id, region]"),
    "case of a key": ("", "keys: [ID]"),
    "sequence": ("sequence_by: [seq]", "sequence_by: [qty]"),
    "mask": ("", "mask: {email: hmac}"),
    "another mask": ("mask: {email: hmac}", "mask: {email: 'null'}"),
    "no mask": ("mask: {email: hmac}", ""),
    "excluded": ("", "exclude_columns: [email]"),
    "let in again": ("exclude_columns: [email]", ""),
    "some columns": ("", "columns: [qty]"),
    "fewer columns": ("columns: [qty, email, region]", "columns: [qty]"),
    "more columns": ("columns: [qty]", "columns: [qty, email]"),
    "all columns": ("columns: [qty]", ""),
    "partitions": ("", "partition_by: [region]"),
    "derived": ("", "derive: {twice: qty * 2}"),
    "otherwise derived": ("derive: {twice: qty * 2}", "derive: {twice: qty + qty}"),
    "filter": ("", "where: qty > 0"),
    "another filter": ("where: qty > 0", "where: qty > 1"),
    "no filter": ("where: qty > 0", ""),
    "renamed": ("", "rename: {email: mail}"),
    "before images": ("", "before_image_prefix: bi_"),
    "filter written otherwise": ("where: qty > 0", "where: (qty)  >  0"),
    "case of a partition": ("partition_by: [region]", "partition_by: [REGION]"),
    "case of a name": ("rename: {email: mail}", "rename: {EMAIL: Mail}"),
    "mode": ("", "mode: snapshots, options: {path_format: \"'dt='yyyy-MM-dd\"}"),
    "history": ("", "history: true"),
    "delete": ("", "delete: soft"),
    "clustered": ("", "cluster_by: [region]"),
    "size": ("", "size: large"),
    "schedule": ("", "schedule: '@daily'"),
    "description": ("", "description: orders"),
    "tags": ("", "tags: {team: a}"),
    "expectation": ("", "expect: {positive: {rule: qty > 0}}"),
    "retention": ("", "vacuum_retention: 9d"),
}


def spec_with(folder: Path, extra: str) -> TableSpec:
    keys = "" if "keys:" in extra else ", keys: [id]"
    catalog = loaded(folder, {"tables/t.yaml": row_file(f"{{table: shop.a{keys}{', ' * bool(extra)}{extra}}}")})
    assert catalog.problems == ()
    return catalog.tables[0]


def refusal(was: TableSpec, now: TableSpec) -> FatalError | None:
    """With which a job refuses a row, where tables of `COLUMNS` were built by another one."""
    state = TableState(batch=1, keys=was.keys, sequence_by=was.sequence_by, schemas=[COLUMNS], applied=settings_of(was))
    try:
        require_same_identity(now, state)
    except FatalError as error:
        return error
    return None


VALUES = {
    "table": "shop.a", "keys": ("id", "region"), "sequence_by": ("qty",), "dialect": "debezium", "size": "large",
    "columns": ("qty",), "before_image_prefix": "bi_", "mode": "snapshots",
}  # fmt: skip


def another(field: Field[Any], value: Any) -> Any:
    """A value of the field that no other field has to know of: of a column, `email`."""
    if field.name in VALUES:
        return VALUES[field.name]
    if isinstance(value, bool | float):
        return not value if isinstance(value, bool) else value / 2
    if isinstance(value, Mapping):
        return {"email": "hash" if field.name == "mask" else "mail"}
    return ("email",) if isinstance(value, tuple) else "email"


@pytest.mark.parametrize("field", fields(TableSpec), ids=lambda field: field.name)
@pytest.mark.parametrize("removed", [False, True], ids=["set", "taken back"])
def test_what_jobs_refuse_of_any_field_is_named_with_its_command(
    tmp_path: Path, field: Field[Any], *, removed: bool
) -> None:
    was = replace(spec_with(tmp_path, ""), sequence_by=("seq",))
    now = replace(was, **{field.name: another(field, getattr(was, field.name))})
    was, now = (now, was) if removed else (was, now)
    if refusal(was, now) is None:
        return
    one = replace(loaded(tmp_path, {}), tables=(was,))
    (found,) = compare(Deployment(one, (), None), Deployment(replace(one, tables=(now,)), (), None), None, "x").tables
    assert [effect.split(":")[0] for effect in found.effects] == [field.name]
    assert len(found.commands) == 1


def test_each_field_that_needs_a_repair_is_refused_by_the_code_that_it_names(tmp_path: Path) -> None:
    was = replace(spec_with(tmp_path, ""), sequence_by=("seq",))
    for name, built in {**BUILT_FIELDS, **COLUMN_FIELDS}.items():
        (field,) = (one for one in fields(TableSpec) if one.name == name)
        refused = refusal(was, replace(was, **{name: another(field, getattr(was, name))}))
        assert refused is not None, name
        assert refused.code == built.code


@pytest.mark.parametrize("edit", EDITS)
def test_a_repair_is_named_where_and_only_where_jobs_refuse_the_new_row(tmp_path: Path, edit: str) -> None:
    was, now = (spec_with(tmp_path / name, extra) for name, extra in zip("ab", EDITS[edit], strict=True))
    refused = refusal(was, now)
    sides = [Deployment(loaded(tmp_path / name, {}), (), None) for name in "ab"]
    (found,) = compare(*sides, None, "main").tables or (None,)
    assert (found is not None) == (edit != "nothing")
    commands = () if found is None else found.commands
    assert bool(commands) == (refused is not None), (commands, refused)
    if refused is not None:
        repair = "gddl rebuild --table" if "rebuild" in commands[0] else "gddl reload --from-files"
        assert repair in (refused.remedy or "")


def table(number: str, extra: str = "") -> str:
    return f"{{table: shop.{number}, keys: [id]{extra}}}"


def committed(folder: Path) -> None:
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)


@pytest.fixture
def edited(tmp_path: Path) -> Path:
    """A folder in a repository, with an edit of each kind."""
    folder = tmp_path / "metadata"
    rows = [table("changed"), table("gone"), table("size"), table("bad"), table("named"), table("same"), table("off")]
    write(folder, {"tables/t.yaml": row_file(*rows)})
    committed(tmp_path)
    rows = [
        table("changed", ", mask: {email: hmac}, description: 'a | @b `c`'"), table("size", ", size: large"),
        table("bad", ", delete: never"), table("named", ", target: lake.named"), table("same"), table("new"),
        table("off", ", enabled: false"),
    ]  # fmt: skip
    settings = "landing: landing\nlake: lake\ntiers: {small: {slots: 3}}\n"
    write(folder, {"tables/t.yaml": row_file(*rows), "gddl.yaml": settings})
    return folder


Gddl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def gddl(edited: Path, capsys: pytest.CaptureFixture[str]) -> Gddl:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = invoke(["plan", "--metadata", str(edited), "--no-records", *arguments], AROUND)
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def test_each_kind_of_edit_is_shown_with_what_to_run(gddl: Gddl) -> None:
    status, out, err = gddl("--diff", "HEAD")
    assert (status, "FIELD_VALUE shop.bad.delete" in err) == (2, True)
    first = out.splitlines()[0]
    assert first.startswith("changes since HEAD: ")
    assert sorted(first.removeprefix("changes since HEAD: ").split(", ")) == [
        "1 invalid", "1 new", "1 removed", "1 renamed", "1 setting", "1 to repair", "3 changed",
    ]  # fmt: skip
    until = "until they are rebuilt, runs may fail if the column is stored"
    blocks = {lines[0].split()[0]: lines for block in out.split("\n\n")[1:-2] if (lines := block.splitlines())}
    assert blocks == {
        "lake.named": [
            "lake.named  renamed",
            "  target  'shop.named' → 'lake.named'",
            "  it is loaded again into lake.named; shop.named stays, and is no longer written",
        ],
        "shop.bad": [
            "shop.bad  invalid",
            "  its metadata row is invalid: it is no longer loaded; its tables in the lake stay",
        ],
        "shop.changed": [
            "shop.changed  changed",
            "  mask.email  not set → 'hmac'",
            "  description  not set → 'a | @b `c`'",
            f"  mask: its tables are built with the former value; {until}",
            "  run  gddl rebuild --table shop.changed",
        ],
        "shop.gone": ["shop.gone  removed", "  it is no longer loaded; its tables in the lake stay"],
        "shop.new": ["shop.new  new", "  its first load takes all files of its landing folder"],
        "shop.off": [
            "shop.off  changed",
            "  enabled  True → False",
            "  it is no longer loaded; its tables in the lake stay",
        ],
        "shop.size": [
            "shop.size  changed",
            "  size  'small' → 'large'",
            "  DAG gddl.shop.size loads it, no longer gddl_pack.shop.small.1",
        ],
    }
    assert "  gddl.yaml tiers.small.slots  " in out
    assert out.split("\n\n")[-2].startswith("No record of a run was read from the lake")
    assert [line.split()[0] for line in out.split("\n\n")[-1].splitlines()[2:]] == ["tables", "DAGs", "runs"]


def test_a_comment_is_a_table_in_which_values_are_code(gddl: Gddl) -> None:
    _, out, _ = gddl("--diff", "HEAD", "--markdown")
    lines = out.splitlines()
    row = next(line for line in lines if line.startswith("| `shop.changed`"))
    assert r"`description` `not set → 'a \| @b 'c''`" in row
    assert lines[lines.index("```sh") + 1 :][:2] == [
        "gddl rebuild --table shop.changed",
        "```",
    ]
    assert "**1 new problem in the metadata**" in lines
    assert "| tables | 7 | 5 | -2 |" in lines
    assert (
        "No record of a run was read from the lake: each table that has a row before the edit counts as loaded."
        in lines
    )


def test_json_has_the_same(gddl: Gddl) -> None:
    status, out, _ = gddl("--diff", "HEAD", "--json")
    found = json.loads(out)
    assert (status, found["revision"], found["cost"]["tables"], found["solved"]) == (2, "HEAD", [7, 5], 0)
    assert {one["table"]: one["kind"] for one in found["tables"]}["lake.named"] == "renamed"
    assert [one["code"] for one in found["problems"]] == ["FIELD_VALUE"]


@pytest.mark.parametrize("revision", ["nope", "--output=x", "HEAD:gddl.yaml"])
def test_a_revision_that_cannot_be_read_is_named(gddl: Gddl, revision: str) -> None:
    status, out, err = gddl(f"--diff={revision}")
    assert (status, out, "[REVISION_UNREADABLE]" in err, revision in err) == (2, "", True, True)


def test_a_table_that_is_not_loaded_needs_no_repair(tmp_path: Path) -> None:
    for name, extra in (("a", ""), ("b", "mask: {email: hmac}")):
        spec_with(tmp_path / name, extra)
    sides = [Deployment(loaded(tmp_path / name, {}), (), None) for name in "ab"]
    for record, commands in ((TableRecord(), 0), (TableRecord(succeeded=1.0, rows=1_000), 1)):
        diff = compare(*sides, {"shop.a": record, "shop.b": record}, "main")
        assert "No record of a run" not in as_markdown(diff)
        (found,) = diff.tables
        assert (len(found.commands), found.rows) == (commands, 1_000 if commands else None)


@pytest.mark.parametrize("form", [[], ["--markdown"], ["--json"]])
def test_a_row_that_gives_the_other_tables_another_view_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    """The 51st row: the groups of all 50 others go from the grid."""
    folder = tmp_path / "metadata"
    write(folder, {"tables/t.yaml": row_file(*(table(f"t{n}") for n in range(50)))})
    committed(tmp_path)
    write(folder, {"tables/t.yaml": row_file(*(table(f"t{n}") for n in range(51)))})
    invoke(["plan", "--metadata", str(folder), "--no-records", "--diff", "HEAD", *form], AROUND)
    out = capsys.readouterr().out
    if "--json" in form:
        assert json.loads(out)["views"] == {"gddl_pack.shop.small.1": ["group", "mapped"]}
    else:
        assert "gddl_pack.shop.small.1: Airflow shows its tables as mapped, no longer as group" in out
    rows = load(folder, {})
    before = Metadata(tables=rows.tables[:50], tiers=rows.tiers)
    after = replace(before, tables=rows.tables, before=before.arrangement.placement)
    assert (before.changed_views, after.changed_views) == ({}, {"gddl_pack.shop.small.1": ("group", "mapped")})
