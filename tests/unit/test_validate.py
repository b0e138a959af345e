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
from airflow_gddl.metadata.variables import NAMES, misspelt
from tests.unit.metadata_folder import loaded, row_file, write

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
            "3:73: KEYS_DUPLICATE s.bad.keys[1]: the same key column twice (case does not count) (value 'ID') "
            "— name each key column once"
        ),
        (
            "3:78: DEPENDS_ON_UNKNOWN s.bad.depends_on[0]: no row has this table (value 's.gone') — name a "
            "table that some row has, as schema.name"
        ),
        (
            "4:32: SIZE_UNKNOWN s.large.size: no such tier (value 'huge') — write one of small, medium, large, "
            "or add the tier to gddl.yaml under tiers"
        ),
        (
            "4:44: DURATION_INVALID s.large.freshness: not a duration (value '30') — write the unit: "
            "30s, 30m, 30h or 30d"
        ),
        "4:61: FIELD_TYPE s.large.settle: must be text (value 5) — write the unit: 5s, 5m, 5h or 5d",
        (
            "4:72: PREFIX_INVALID s.large.before_image_prefix: an empty prefix makes every column a before "
            "image (value '') — write the prefix of the task's before-image columns, e.g. BI_, or null"
        ),
    ]
    lines = [f"metadata/tables/shop.yaml:{line}" for line in expected]
    status, out, err = gddl("validate")
    assert (status, out.splitlines(), err) == (2, [*lines, "9 problems in the metadata"], "")


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


def test_formats_for_programs(tmp_path: Path, gddl: Gddl) -> None:
    write(tmp_path / "metadata", {"gddl.yaml": "landing: ftp://x\n"})
    place = "file=metadata/gddl.yaml,line=1,col=1,title=ROOT_INVALID"
    status, out, _ = gddl("validate", "--format", "github", GDDL_LAKE="ftp://%,y")
    why = "not a usable root: it is neither a local path nor s3:// (s3a:// and s3n:// are written s3://)"
    remedy = "with an absolute path or s3://bucket/prefix in gddl.yaml, or set"
    assert (status, out.splitlines()) == (
        2,
        [
            f"::error {place}::landing: {why} (value 'ftp://x') — write landing: {remedy} GDDL_LANDING",
            f"::error title=ROOT_INVALID::lake: {why} (value 'ftp://%25,y') — write lake: {remedy} GDDL_LAKE",
        ],
    )
    status, out, _ = gddl("validate", "--format", "json", GDDL_LAKE="/lake")
    assert [json.loads(line) for line in out.splitlines()] == [
        {
            "code": "ROOT_INVALID",
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
    told = "environment variable GDDL_LANDNIG: VARIABLE_UNKNOWN: nothing reads it — did you mean GDDL_LANDING?\n"
    assert (status, out, err) == (0, "0 tables, no problems\n", told)


def test_variables_that_the_code_reads_are_known() -> None:
    sources = [path for root in ("airflow_gddl", "spark_jobs") for path in (ROOT / root).rglob("*.py")]
    read = {name for path in sources for name in re.findall(r'"(GDDL_[A-Z_]*[A-Z])"', path.read_text())}
    assert read <= set(NAMES)
    assert list(misspelt(dict.fromkeys(NAMES, "x"))) == []


def test_one_name_is_a_list_of_one(tmp_path: Path) -> None:
    keys = {"keys/k.yaml": "keys: {s.c: n}\n"}
    one = row_file(
        "{table: s.a, keys: id, sequence_by: seq, columns: v, cluster_by: id, schedule: {assets: x}}",
        "{table: s.b, keys: id, depends_on: s.a, options: {csv_columns: Op}}",
        "{table: s.c, keys: n}",
    )
    many = row_file(
        "{table: s.a, keys: [id], sequence_by: [seq], columns: [v], cluster_by: [id], schedule: {assets: [x]}}",
        "{table: s.b, keys: [id], depends_on: [s.a], options: {csv_columns: [Op]}}",
        "{table: s.c, keys: [n]}",
    )
    runner = "runners: {spark_submit: {master: yarn, jars: JARS}}\n"
    first = loaded(tmp_path / "1", {"gddl.yaml": ROOTS + runner.replace("JARS", "a.jar"), "tables/a.yaml": one, **keys})
    second = loaded(
        tmp_path / "2", {"gddl.yaml": ROOTS + runner.replace("JARS", "[a.jar]"), "tables/a.yaml": many, **keys}
    )
    assert first.problems == ()
    assert (first.tables, first.runners) == (second.tables, second.runners)
