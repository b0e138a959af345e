"""Mistakes of newcomers in the metadata: what `gddl validate` answers to each, whole, as `mistakes.txt` says.

After a message was changed on purpose: `python -m tests.unit.test_mistakes`, and read what differs.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest

from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.main import invoke

GOLDEN = Path(__file__).with_name("mistakes.txt")
ROOTS = "landing: ../landing\nlake: ../lake\n"
ROWS = "source: shop\ntables:\n  - {table: s.a, keys: [id]%s}\n"


def row(extra: str) -> dict[str, str]:
    return {"gddl.yaml": ROOTS, "tables/shop.yaml": ROWS % (", " + extra)}


def settings(extra: str) -> dict[str, str]:
    return {"gddl.yaml": ROOTS + extra, "tables/shop.yaml": ROWS % ""}


MISTAKES: dict[str, dict[str, str]] = {
    "tier": settings("tiers: {smal: {tables_per_job: 3}}\n"),
    "tier field": settings("tiers: {small: {table_per_job: 3}}\n"),
    "tier other": settings("tiers: {huge: {cores: 3}}\n"),
    "lake below": {"gddl.yaml": "landing: ../landing\nlake: ../landing/lake\n", "tables/shop.yaml": ROWS % ""},
    "landing below": {"gddl.yaml": "landing: ../lake/landing\nlake: ../lake\n", "tables/shop.yaml": ROWS % ""},
    "same": {"gddl.yaml": "landing: ../lake\nlake: ../lake\n", "tables/shop.yaml": ROWS % ""},
    "source landing below lake": settings("sources: {crm: {landing: ../lake/crm}}\n"),
    "lake below source landing": settings("sources: {crm: {landing: ..}}\n"),
    "metadata in lake": {"gddl.yaml": "landing: ../landing\nlake: .\n", "tables/shop.yaml": ROWS % ""},
    "freshness": row("freshness: 1m, schedule: '@daily'"),
    "freshness trigger": row("freshness: 1s, trigger: 30s"),
    "txt": {"gddl.yaml": ROOTS, "tables/shop.txt": "table,keys\ns.a,id\n", "tables/shop.yaml": ROWS % ""},
    "yml settings": {"gddl.yml": ROOTS, "tables/shop.yaml": ROWS % ""},
    "both settings": {"gddl.yaml": ROOTS, "gddl.yml": ROOTS, "tables/shop.yaml": ROWS % ""},
    "table folder": {"gddl.yaml": ROOTS, "table/shop.yaml": ROWS % ""},
    "at root": {"gddl.yaml": ROOTS, "shop.yaml": ROWS % ""},
    "cron61": row("schedule: '*/61 * * * *'"),
    "cron hour": row("schedule: '0 */24 * * *'"),
    "cron never": row("schedule: '0 0 30 2 *'"),
    "cron six": row("schedule: '0 0 * * * *'"),
    "cron 25": row("schedule: '0 25 * * *'"),
    "cron preset": row("schedule: '@dayly'"),
    "cron no at": row("schedule: daily"),
    "cron word": row("schedule: every 5 minutes"),
    "cron unquoted": {
        "gddl.yaml": ROOTS,
        "tables/shop.yaml": "source: shop\ntables:\n  - table: s.a\n    keys: [id]\n    schedule: @daily\n",
    },
    "cron range rev": row("schedule: '0 20-5 * * *'"),
    "cron question": row("schedule: '0 0 ? * MON'"),
    "cron step no star": row("schedule: '5/70 * * * *'"),
    "assets": row("schedule: {asset: [a]}"),
    "duration": row("freshness: 30"),
    "duration2": row("freshness: 30 min"),
    "duration3": row("freshness: 1.5h"),
    "duration0": row("freshness: 0s"),
    "vacuum": row("vacuum_retention: 1h"),
    "neg": row("freshness: -5m"),
    "key misspelt": {"gddl.yaml": ROOTS, "tables/shop.yaml": "source: shop\ntables:\n  - {table: s.a, key: [id]}\n"},
    "row field": row("sequenceby: [ts]"),
    "delete": row("delete: sotf"),
    "tie": row("tie_break: delete_win"),
    "size": row("size: smal"),
    "priority": row("priority: urgent"),
    "dialect": row("dialect: dmss"),
    "option": row("options: {op_colum: Op}"),
    "option type": row("options: {types: {a: varchar}}"),
    "option type2": row("options: {types: {a: decimal(50,2)}}"),
    "mask": row("mask: {email: hmc}"),
    "mask list": row("mask: [email]"),
    "evolution": row("schema_evolution: {new_colum: add}"),
    "evolution value": row("schema_evolution: {new_column: adds}"),
    "expect": row("expect: {a: {rul: x > 0}}"),
    "expect rule": row("expect: {a: {rule: 'x >'}}"),
    "at_most": row("expect: {a: {rule: x > 0, at_most: 5%}}"),
    "sweep": row("sweep_limit: 34"),
    "quoted bool": row("history: 'true'"),
    "yes": row("history: yes"),
    "int": row("description: 5"),
    "table no schema": {
        "gddl.yaml": ROOTS,
        "tables/shop.yaml": "source: shop\ntables:\n  - {table: orders, keys: [id]}\n",
    },
    "keys text": {
        "gddl.yaml": ROOTS,
        "tables/shop.yaml": "source: shop\ntables:\n  - {table: s.a, keys: 'id, region'}\n",
    },
    "tables key": {"gddl.yaml": ROOTS, "tables/shop.yaml": "source: shop\ntable:\n  - {table: s.a, keys: [id]}\n"},
    "list": {"gddl.yaml": ROOTS, "tables/shop.yaml": "- {table: s.a, keys: [id]}\n"},
    "tab": {"gddl.yaml": ROOTS, "tables/shop.yaml": "source: shop\ntables:\n\t- {table: s.a, keys: [id]}\n"},
    "twice": {
        "gddl.yaml": ROOTS,
        "tables/shop.yaml": "source: shop\ntables:\n  - {table: s.a, keys: [id]}\n  - {table: S.A, keys: [id]}\n",
    },
    "depends": row("depends_on: [s.b]"),
    "depends self": row("depends_on: [s.a]"),
    "defaults": {
        "gddl.yaml": ROOTS,
        "tables/shop.yaml": "source: shop\ndefaults: {siz: small}\ntables:\n  - {table: s.a, keys: [id]}\n",
    },
    "default section": settings("default: {size: small}\n"),
    "settings key": {"gddl.yaml": "landng: ../landing\nlake: ../lake\n", "tables/shop.yaml": ROWS % ""},
    "runner": settings("runner: databrick\n"),
    "runners": {
        "gddl.yaml": "landing: s3://b/in\nlake: s3://b/lake\nrunner: databricks\n"
        "runners: {databrick: {wheel: /a.whl}}\n",
        "tables/shop.yaml": ROWS % "",
    },
    "runners field": settings("runners: {databricks: {whel: /a.whl}}\n"),
    "runners unused": settings("runners: {databrcks: {wheel: /a.whl}}\n"),
    "memory": settings("tiers: {small: {memory: 4}}\n"),
    "memory2": settings("tiers: {small: {memory: 4GB}}\n"),
    "slots": settings("tiers: {small: {slots: 0}}\n"),
    "source unused": settings("sources: {shp: {landing: ../shp}}\n"),
    "source field": settings("sources: {shop: {landin: ../shp}}\n"),
    "catalog": row("catalog: main"),
    "catalogs": settings("catalogs: {main: {kind: unty}}\n"),
    "unused catalog": settings("catalogs: {main: {kind: glue}}\n"),
    "keys file": {"gddl.yaml": ROOTS, "tables/shop.yaml": ROWS % "", "keys/shop.yaml": "s.b: [id]\n"},
    "secret": row("options: {password: hunter22}"),
    "csv semicolon": {"gddl.yaml": ROOTS, "tables/shop.csv": "table;keys\ns.a;id\n"},
    "csv header": {"gddl.yaml": ROOTS, "tables/shop.csv": "table,key\ns.a,id\n"},
    "property": row("table_properties: {delta.enableChangeDataFed: 'true'}"),
    "cluster five": row("cluster_by: [a, b, c, d, e]"),
    "cluster+part": row("cluster_by: [a], partition_by: [b]"),
    "trigger+schedule": row("trigger: 30s, schedule: '@daily'"),
    "where": row("where: 'a = \"x\"'"),
    "derive": row("derive: {a: 'dat(b)'}"),
    "rename": row("rename: {a: a}"),
    "airflow": row("airflow: packs"),
    "on_bad_row": row("on_bad_row: ignore"),
    "empty": {"gddl.yaml": ROOTS, "tables/shop.yaml": ""},
    "unused keys": {"gddl.yaml": ROOTS, "tables/shop.yaml": ROWS % ", priority: High"},
    "tombstone": row("tombstone_retention: 1"),
    "track": row("track_history_except: [a]"),
    "absent": row("mask: {ssn: hmac}, absent_columns: [snn]"),
    "lake relative": {"gddl.yaml": "landing: s3:/bucket/x\nlake: ../lake\n", "tables/shop.yaml": ROWS % ""},
    "lake home": {"gddl.yaml": "landing: ~/landing\nlake: ../lake\n", "tables/shop.yaml": ROWS % ""},
    "lake scheme": {"gddl.yaml": "landing: s3a://bucket/x\nlake: ../lake\n", "tables/shop.yaml": ROWS % ""},
    "lake gs": {"gddl.yaml": "landing: gs://bucket/x\nlake: ../lake\n", "tables/shop.yaml": ROWS % ""},
    "lake var": {"gddl.yaml": "landing: ${LANDING}/x\nlake: ../lake\n", "tables/shop.yaml": ROWS % ""},
}
UNNOTICED = ("metadata in lake", "cron range rev", "cron question", "empty", "where")
"""Valid, though probably not meant: nothing in the metadata tells."""


def answer(name: str, folder: Path) -> str:
    """Exit status and both outputs of `gddl validate`, warnings marked."""
    for file, text in MISTAKES[name].items():
        path = folder / "metadata" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    out, err = StringIO(), StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        around = CliContext(
            environ={}, now=lambda: datetime(2024, 1, 2, tzinfo=UTC), new_id=str, job_command=("false",)
        )
        status = invoke(["validate"], around)
    lines = [*out.getvalue().splitlines(), *(f"warning: {line}" for line in err.getvalue().splitlines())]
    return "\n".join([f"== {name}: {status}", *lines]).replace(os.path.realpath(folder), "<folder>") + "\n"


def expected() -> dict[str, str]:
    parts = GOLDEN.read_text().split("== ")[1:]
    return {part.partition(":")[0]: f"== {part}" for part in parts}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_answer_to_a_mistake_is_this(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    assert answer(name, tmp_path) == expected()[name]


def test_no_other_mistake_is_accepted_in_silence() -> None:
    silent = [name for name, text in expected().items() if len(text.splitlines()) == 2 and ": 0\n" in text]
    assert sorted(silent) == sorted(UNNOTICED)
    assert expected().keys() == MISTAKES.keys()


if __name__ == "__main__":
    os.environ["COLUMNS"] = "1000"
    texts = []
    for each in MISTAKES:
        with tempfile.TemporaryDirectory() as made:
            texts.append(answer(each, Path(made)))
    GOLDEN.write_text("".join(texts))
