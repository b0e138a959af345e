"""`gddl validate`: what each mistake of a newcomer is answered with, whole."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.main import invoke
from airflow_gddl.metadata.settings import NAMES, misspelt
from tests.unit.metadata_folder import NO_TABLE, loaded, row_file, write

Gddl = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[2]
ROOTS = "landing: ../landing\nlake: ../lake\n"


@pytest.fixture
def gddl(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Gddl:
    """Runs a command line in `tmp_path`: its status, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **environ: str) -> tuple[int, str, str]:
        around = CliContext(
            environ={"PATH": os.environ["PATH"], **environ},
            now=lambda: datetime(2024, 1, 2, 12, tzinfo=UTC),
            new_id=lambda: "aa",
            job_command=("false",),
        )
        status = invoke(arguments, around)
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def test_all_problems_are_a_line_each(tmp_path: Path, gddl: Gddl) -> None:
    rows = row_file(
        "{table: s.bad, delete: never, tier: huge, freshness: 30, keys: [id, ID], depends_on: s.gone}",
        "{table: s.large, keys: id, size: huge, freshness: '30', settle: 5, before_image_prefix: ''}",
    )
    write(tmp_path / "metadata", {"gddl.yaml": ROOTS + "tiers: {small: {memory: '4'}}\n", "tables/shop.yaml": rows})
    assert gddl("validate") == (
        2,
        (
            "metadata/gddl.yaml:3:17: FIELD_VALUE tiers.small.memory: not an amount of memory (value '4') — write the "
            "unit: 4g, 4m, 4k or 4t\n1 problem in the metadata\n"
        ),
        "",
    )
    write(tmp_path / "metadata", {"gddl.yaml": ROOTS})
    expected = [
        ("3:20: FIELD_VALUE s.bad.delete: must be 'hard' or 'soft' (value 'never') — write one of 'hard' or 'soft'"),
        "3:35: FIELD_UNKNOWN s.bad.tier: no such field (value 'huge') — the field is `size`",
        "3:47: FIELD_TYPE s.bad.freshness: must be text (value 30) — write the unit: 30s, 30m, 30h or 30d",
        (
            "3:73: FIELD_VALUE s.bad.keys[1]: the same key column twice (case does not count) (value 'ID') "
            "— name each key column once"
        ),
        (
            "3:78: FIELD_VALUE s.bad.depends_on[0]: no metadata row has this table (value 's.gone') — name a "
            "table that some metadata row has, as schema.name"
        ),
        (
            "4:32: FIELD_VALUE s.large.size: no such tier (value 'huge') — write one of small, medium, large, "
            "or add the tier to gddl.yaml under tiers"
        ),
        ("4:44: FIELD_VALUE s.large.freshness: not a duration (value '30') — write the unit: 30s, 30m, 30h or 30d"),
        "4:61: FIELD_TYPE s.large.settle: must be text (value 5) — write the unit: 5s, 5m, 5h or 5d",
        (
            "4:72: FIELD_VALUE s.large.before_image_prefix: an empty prefix makes every column a before "
            "image (value '') — write the prefix of the task's before-image columns, e.g. BI_, or null"
        ),
    ]
    lines = [f"metadata/tables/shop.yaml:{line}" for line in expected]
    status, out, err = gddl("validate")
    assert (status, out.splitlines(), err) == (2, [*lines, "9 problems in the metadata"], "")


def test_the_same_problem_of_many_rows_is_one_line_and_a_count(tmp_path: Path, gddl: Gddl) -> None:
    rows = row_file(*(f"{{table: s.t{n:02d}, keys: id, size: smal}}" for n in range(50)), "{table: s.x, keys: 1}")
    write(tmp_path / "metadata", {"gddl.yaml": ROOTS, "tables/shop.yaml": rows})
    _, out, _ = gddl("validate")
    first, other, count = out.splitlines()
    assert first.startswith("metadata/tables/shop.yaml:3:")
    assert first.endswith("The same in 49 more rows: s.t01, s.t02, s.t03 and 46 others.")
    assert ("s.x" in other, count) == (True, "51 problems in the metadata")
    assert len(gddl("validate", "--json")[1].splitlines()) == 51, "programs get each"
    few = row_file(*(f"{{table: s.t{n:02d}, keys: id, size: smal}}" for n in range(3)))
    write(tmp_path / "metadata", {"gddl.yaml": ROOTS, "tables/shop.yaml": few})
    assert len(gddl("validate")[1].splitlines()) == 4


def test_no_settings_file_is_answered_with_two_lines_that_work(tmp_path: Path, gddl: Gddl) -> None:
    write(tmp_path / "metadata", {"tables/shop.yaml": row_file("{table: s.a, keys: id}")})
    (tmp_path / "metadata" / "gddl.yaml").unlink()
    remedy = "write it with these two lines, or set GDDL_LANDING and GDDL_LAKE:"
    status, out, _ = gddl("validate")
    assert (status, out.splitlines()) == (
        2,
        [
            f"metadata/gddl.yaml: SETTINGS_MISSING: there is no such file — {remedy}",
            "landing: ../landing",
            "lake: ../lake",
            "1 problem in the metadata",
        ],
    )
    (tmp_path / "metadata" / "gddl.yaml").write_text("\n".join(out.splitlines()[1:3]) + "\n")
    assert gddl("validate") == (0, "1 table, no problems\n", "")


def test_no_line_is_wrapped_within_a_word_at_any_width(
    tmp_path: Path, gddl: Gddl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    write(tmp_path / "metadata", {"tables/a.yaml": row_file("{table: s.a, keys: [id], history: yes}")})
    line = "metadata/tables/a.yaml:3:30: FIELD_TYPE s.a.history: must be true or false (value 'yes') — write true or "
    assert gddl("validate")[1].splitlines() == [f"{line}false, without quotes", "1 problem in the metadata"]


def test_problems_are_printed_in_formats_for_programs(tmp_path: Path, gddl: Gddl) -> None:
    write(tmp_path / "metadata", {"gddl.yaml": "landing: ftp://x\n"})
    place = "file=metadata/gddl.yaml,line=1,col=1,title=FIELD_VALUE"
    status, out, _ = gddl("validate", "--format", "github", GDDL_LAKE="ftp://%,y")
    why = "not a usable root: it is neither a local path nor s3:// (s3a:// and s3n:// are written s3://)"
    remedy = "with an absolute path or s3://bucket/prefix in gddl.yaml, or set"
    assert (status, out.splitlines()) == (
        2,
        [
            f"::error {place}::landing: {why} (value 'ftp://x') — write landing: {remedy} GDDL_LANDING",
            f"::error title=FIELD_VALUE::lake: {why} (value 'ftp://%25,y') — write lake: {remedy} GDDL_LAKE",
        ],
    )
    status, out, _ = gddl("validate", "--format", "json", GDDL_LAKE="/lake")
    assert [json.loads(line) for line in out.splitlines()] == [
        {
            "code": "FIELD_VALUE",
            "message": why,
            "remedy": f"write landing: {remedy} GDDL_LANDING",
            "file": "gddl.yaml",
            "line": 1,
            "column": 1,
            "table": None,
            "field": "landing",
            "value": "'ftp://x'",
        }
    ]


def test_a_misspelt_variable_is_named_and_those_of_others_are_not(tmp_path: Path, gddl: Gddl) -> None:
    write(tmp_path / "metadata", {"gddl.yaml": ROOTS})
    status, out, err = gddl("validate", GDDL_LANDNIG="/x", GDDL_SHOP_DB="y", GDDL_SOURCE_SHOP="z")
    warned = "environment variable GDDL_LANDNIG: VARIABLE_UNKNOWN: nothing reads it — did you mean GDDL_LANDING?\n"
    assert (status, out, err) == (0, NO_TABLE, warned)


CRON = (
    "write five cron fields, e.g. '*/15 * * * *', or one of @once, @hourly, @daily, @weekly, @monthly, @yearly, "
    "continuous, or null for none"
)
MISTAKES = [
    ("sweep_limit: 34%", ("FIELD_TYPE s.a.sweep_limit: must be a number (value '34%') — write a number from 0 to 1, "
     "e.g. 0.34")),
    ("sweep_limit: much", ("FIELD_TYPE s.a.sweep_limit: must be a number (value 'much') — write a number from 0 to 1, "
     "e.g. 0.34")),
    ("schedule: {asset: x}", ("FIELD_VALUE s.a.schedule: a mapping here has assets alone, with at least one name "
     "(value {'asset': ('x',)}) — did you mean assets? write {assets: [name]}")),
    ("schedule: hourly", ("FIELD_VALUE s.a.schedule: neither a preset nor five cron fields (value 'hourly') — did you "
     f"mean '@hourly'? Else {CRON}")),
    ("schedule: 0 25 * * *", f"FIELD_VALUE s.a.schedule: the hour 25 is above 23 (value '0 25 * * *') — {CRON}"),
    ("schedule: 0 0 1-40/2 * *",
     f"FIELD_VALUE s.a.schedule: the day 40 is above 31 (value '0 0 1-40/2 * *') — {CRON}"),
    ("schedule: 0 0 0 * *", f"FIELD_VALUE s.a.schedule: the day 0 is below 1 (value '0 0 0 * *') — {CRON}"),
    ("schedule: '*/0 * * * *'",
     f"FIELD_VALUE s.a.schedule: the minute has a step of 0 (value '*/0 * * * *') — {CRON}"),
    ("depends_on: [shop.plane]", ("FIELD_VALUE s.a.depends_on[0]: no metadata row has this table (value "
     "'shop.plane') — did you mean shop.planes?")),
    ("mask: [email]", ("FIELD_TYPE s.a.mask: must be a mapping (value ['email']) — write {email: hmac}; null instead "
     "of hmac removes the values")),
    ("owner: me, owner: you", "DOCUMENT_INVALID s.a.owner: written twice in the same mapping — keep one 'owner'"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "message"), MISTAKES, ids=[field for field, _ in MISTAKES])
def test_mistakes_of_a_row(field: str, message: str, tmp_path: Path) -> None:
    rows = row_file("{table: shop.planes, keys: id}", f"{{table: s.a, keys: id, {field}}}")
    (problem,) = loaded(tmp_path, {"tables/a.yaml": rows}).problems
    place, _, text = problem.compiler_line("metadata").partition(": ")
    assert (place.rpartition(":")[0], text) == ("metadata/tables/a.yaml:4", message)


def test_keys_that_are_null_are_missing_unless_a_keys_file_has_them(tmp_path: Path) -> None:
    rows = row_file("{table: s.a, keys: null}", "{table: s.b, keys: null}")
    catalog = loaded(tmp_path, {"tables/a.yaml": rows, "keys/k.yaml": "keys: {s.b: [id]}"})
    assert [problem.compiler_line("m") for problem in catalog.problems] == [
        (
            "m/tables/a.yaml:3:18: KEYS_MISSING s.a.keys: no keys, neither in the metadata row nor in a "
            "keys file — add keys: "
            "[column, ...] to the row; [] makes an append-only replica"
        )
    ]
    assert [(spec.table, spec.keys) for spec in catalog.tables] == [("s.b", ("id",))]


def test_mistakes_of_whole_files_are_reported(tmp_path: Path, gddl: Gddl) -> None:
    files: dict[str, str | bytes] = {
        "gddl.yaml": ROOTS,
        "tables/a.yaml": row_file("{table: shop.planes, keys: id}"),
        "tables/b.csv": "table;keys\ns.a;id\n",
        "tables/c.yaml": "- {table: s.b, keys: id}\n",
        "tables/d.yaml": row_file("{table: Shop.planes, keys: id}"),
    }
    write(tmp_path / "metadata", files)
    assert gddl("validate")[1].splitlines()[:-1] == [
        (
            "metadata/tables/b.csv:1: FIELD_UNKNOWN: the header names an unknown field: table;keys — separate the "
            "cells by commas, not by ';'"
        ),
        (
            "metadata/tables/c.yaml:1:1: FIELD_TYPE: must be a mapping; no metadata row of this file is loaded (value "
            "[{'table': 's.b', 'keys': 'id'}]) — put `tables:` in a line above the list"
        ),
        (
            "metadata/tables/d.yaml:3:6: TABLE_DUPLICATE Shop.planes.table: this table has a row already, at "
            "metadata/tables/a.yaml:3 (case does not count) (value 'Shop.planes') — remove one of the two rows"
        ),
    ]


def test_a_runner_without_its_settings_is_answered_with_them(tmp_path: Path, gddl: Gddl) -> None:
    write(tmp_path / "metadata", {"gddl.yaml": "landing: s3://b/in\nlake: s3://b/lake\nrunner: databricks\n"})
    assert gddl("validate")[1].splitlines()[0] == (
        "metadata/gddl.yaml:1:1: FIELD_MISSING runners.databricks.wheel: must be given — add runners: {databricks: "
        "{wheel: ...}}"
    )


def test_misplaced_files_are_named(tmp_path: Path, gddl: Gddl) -> None:
    files = ("table/shop.yaml", "table/crm.csv", "more.yaml", "gddl.yml", "models/a.json", "schema/tables.json", "x.md")
    write(tmp_path / "metadata", {"gddl.yaml": ROOTS, "tables/a.yaml.bak": "", **dict.fromkeys(files, "")})
    what = "FILE_NOT_READ: looks like metadata, but is not read —"
    warned = [
        (
            f"metadata/tables/a.yaml.bak: {what} rename it to .yaml or .json (tables: or .csv), copy the files of a "
            "linked folder, or remove it"
        ),
        f"metadata/gddl.yml: {what} did you mean gddl.yaml?",
        f"metadata/models/a.json: {what} move it below tables or keys/, or away",
        f"metadata/more.yaml: {what} move it below tables or keys/, or away",
        f"metadata/table/crm.csv: {what} did you mean tables/? (2 such files in table/)",
    ]
    status, out, err = gddl("validate")
    assert (status, out, err.splitlines()) == (0, NO_TABLE, warned)


def test_keys_of_no_row_are_a_warning_at_their_line(tmp_path: Path, gddl: Gddl) -> None:
    keys = "keys:\n  shop.plane: [id]\n  crm.gone: id\n"
    rows = row_file("{table: shop.planes, keys: id}")
    write(tmp_path / "metadata", {"gddl.yaml": ROOTS, "tables/shop.yaml": rows, "keys/k.yaml": keys})
    last = "correct the name, add a metadata row for the table, or remove the keys"
    assert gddl("validate") == (
        0,
        "1 table, no problems\n",
        (
            "metadata/keys/k.yaml:3:3: KEYS_UNUSED crm.gone.keys: no metadata row has this table (value "
            f"['id']) — {last}\n"
            "metadata/keys/k.yaml:2:3: KEYS_UNUSED shop.plane.keys: no metadata row has this table (value "
            "['id']) — did you "
            "mean shop.planes?\n"
        ),
    )
    _, out, _ = gddl("validate", "--format", "github")
    assert out.splitlines()[0] == (
        "::warning file=metadata/keys/k.yaml,line=3,col=3,title=KEYS_UNUSED::crm.gone.keys: no metadata "
        "row has this table "
        f"(value ['id']) — {last}"
    )
    _, out, _err = gddl("validate", "--json")
    assert [json.loads(line) for line in out.splitlines()][1] == {
        "code": "KEYS_UNUSED",
        "message": "no metadata row has this table",
        "remedy": "did you mean shop.planes?",
        "file": "keys/k.yaml",
        "line": 2,
        "column": 3,
        "table": "shop.plane",
        "field": "keys",
        "value": "['id']",
        "level": "warning",
    }


def test_variables_that_the_code_reads_are_known() -> None:
    sources = [path for root in ("airflow_gddl", "spark_jobs") for path in (ROOT / root).rglob("*.py")]
    read = {name for path in sources for name in re.findall(r'"(GDDL_[A-Z_]*[A-Z])"', path.read_text())}
    assert read <= set(NAMES)
    assert list(misspelt(dict.fromkeys(NAMES, "x"))) == []


def test_one_name_is_a_list_of_one(tmp_path: Path) -> None:
    keys = {"keys/k.yaml": "keys: {s.c: n}\n"}
    one = row_file(
        "{table: s.a, keys: id, sequence_by: seq, columns: v, cluster_by: id, schedule: {assets: x}}",
        "{table: s.b, keys: id, depends_on: s.a, options: {csv_columns: c}}",
        "{table: s.c, keys: n}",
    )
    many = row_file(
        "{table: s.a, keys: [id], sequence_by: [seq], columns: [v], cluster_by: [id], schedule: {assets: [x]}}",
        "{table: s.b, keys: [id], depends_on: [s.a], options: {csv_columns: [c]}}",
        "{table: s.c, keys: [n]}",
    )
    runner = "runners: {spark_submit: {master: yarn, jars: JARS}}\n"
    first = loaded(tmp_path / "1", {"gddl.yaml": ROOTS + runner.replace("JARS", "a.jar"), "tables/a.yaml": one, **keys})
    second = loaded(
        tmp_path / "2", {"gddl.yaml": ROOTS + runner.replace("JARS", "[a.jar]"), "tables/a.yaml": many, **keys}
    )
    assert first.problems == ()
    assert (first.tables, first.runners) == (second.tables, second.runners)


def test_valid_metadata_that_is_probably_not_meant(tmp_path: Path, gddl: Gddl) -> None:
    rows = row_file(
        "{table: s.daily, keys: [id], freshness: 90m, schedule: '@daily'}",
        "{table: s.night, keys: [id], freshness: 1d, schedule: '0 22 * * 1-5'}",
        "{table: s.well, keys: [id], freshness: 2h, schedule: '*/20 7-19/2 * * *', size: wide}",
        "{table: s.a, keys: [id], schedule: '*/61 * * * *'}",
        "{table: s.b, keys: [id], schedule: '*/61 * * * *'}",
        "{table: s.c, keys: [id], freshness: 1m, schedule: continuous}",
    )
    settings = "landing: ../data\nlake: ../data/lake\ntiers: {smal: {slots: 2}, wide: {slots: 2}, unlike: {slots: 2}}\n"
    write(tmp_path / "metadata", {"gddl.yaml": settings, "tables/s.yaml": rows, "tables/more.txt": rows})
    status, out, err = gddl("validate")
    root = tmp_path / "data"
    assert (status, out) == (0, "6 tables, no problems\n")
    expected = f"""
metadata/tables/more.txt: FILE_NOT_READ: looks like metadata, but is not read — rename it to .yaml or .json (tables: or
.csv), copy the files of a linked folder, or remove it
metadata/gddl.yaml: ROOTS_NESTED lake: {root}/lake is below {root}: cleaning or lifecycle rules of one reach the files
of the other — give landing and lake folders beside each other
metadata/gddl.yaml: FIELD_UNUSED tiers.smal: no table has the size 'smal' — did you mean small?
metadata/tables/s.yaml:6:30: CRON_STEP s.a.schedule: '*/61' of '*/61 * * * *' fires at its first minute alone: a step
starts anew with each range (also s.b) — write one minute instead, or another schedule
metadata/tables/s.yaml:3:34: FRESHNESS_TOO_SHORT s.daily.freshness:
runs of '@daily' are up to 24 hours apart, more than freshness
allows — raise freshness (90m), or run the table more often
metadata/tables/s.yaml:4:34: FRESHNESS_TOO_SHORT s.night.freshness:
runs of '0 22 * * 1-5' are up to 72 hours apart, more than
freshness allows — raise freshness (1d), or run the table more often
metadata/tables/s.yaml:5:33: FRESHNESS_TOO_SHORT s.well.freshness:
runs of '*/20 7-19/2 * * *' are up to 11.3 hours apart, more than
freshness allows — raise freshness (2h), or run the table more often
"""
    assert err.split() == expected.split()
