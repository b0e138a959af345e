"""`gddl eject` on the command line: files, what a row loses, and rows that a plain job would load wrong."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract import packages
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.eject import files_of
from tests.commands.test_cli import Shop, shop

__all__ = ["shop"]
SPEC = TableSpec(table="shop.orders", keys=("id",), sequence_by=("seq",))
ROOTS = Roots(landing="s3://raw/dms", lake="s3://lake/tables")


def files(spec: TableSpec = SPEC, columns: tuple[str, ...] = ()) -> dict[str, str]:
    return files_of(spec, Layout.of(ROOTS, spec), columns, "@hourly")


def test_command_writes_three_files_once(shop: Shop, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shop.write("metadata/tables/sales.yaml", "tables: [{table: sales.orders, keys: [id], sequence_by: [seq]}]\n")
    answer = shop.gddl("eject", "--table", "sales.orders", "--out", str(folder))
    assert (answer.status, sorted(path.name for path in folder.iterdir())) == (0, ["README.md", "dag.py", "job.py"])
    assert str(shop.folder / "landing/sales/orders") in (folder / "job.py").read_text()
    (folder / "job.py").write_text("mine")
    again = shop.gddl("eject", "--table", "sales.orders", "--out", str(folder))
    assert (again.status, "[EJECT_EXISTS]" in again.err) == (2, True)
    assert (folder / "job.py").read_text() == "mine"


def test_files_are_python_that_names_nothing_of_this_package() -> None:
    made = files()
    for name in ("job.py", "dag.py"):
        names = [
            alias.name if isinstance(node, ast.Import) else f"{node.module}"
            for node in ast.walk(ast.parse(made[name]))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        ]
        assert not [one for one in names if one.startswith(("airflow_gddl", "spark_jobs"))]
    assert 'LANDING = "s3a://raw/dms/shop/orders"' in made["job.py"]
    assert "$" not in "".join(made.values())


@pytest.mark.parametrize(
    ("installed", "package"),
    [
        ("4.0.2", "io.delta:delta-spark_4.0_2.13:4.4.0"),
        ("4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
        (None, "io.delta:delta-spark_4.2_2.13:4.4.0"),
        ("9.0.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    ],
)
def test_files_name_the_delta_that_runs_on_the_spark_of_this_python(
    installed: str | None, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "installed_version", lambda _: installed)
    made = files()
    assert all(f"--packages {package} " in made[name] for name in ("job.py", "dag.py"))
    assert f"Spark {package.split('_')[1]}" in made["README.md"]


def test_usual_columns_order_a_row_that_names_none() -> None:
    assert "SEQUENCE = ['transact_seq']" in files(replace(SPEC, sequence_by=()), ("id", "transact_seq"))["job.py"]


def test_readme_says_what_the_row_loses() -> None:
    readme = files(replace(SPEC, history=True, mask={"email": "hash"}))["README.md"]
    assert "`__history`" in readme
    assert "email" in readme
    assert "`__history`" not in files()["README.md"]


UNSUPPORTED: dict[str, dict[str, Any]] = {
    "debezium": {"dialect": "debezium"}, "snapshots": {"mode": "snapshots"}, "no keys": {"keys": ()},
    "shards": {"shards": ("a", "b")}, "parts": {"ignore_null_updates": True}, "listed": {"columns_to_update": "cols"},
    "filter": {"where": "id > 1"}, "soft": {"delete": "soft"}, "masked key": {"mask": {"id": "hash"}},
    "moved keys": {"before_image_prefix": "BI_"}, "csv": {"options": {"csv_header": True}},
    "no order": {"sequence_by": ()},
}  # fmt: skip


@pytest.mark.parametrize("fields", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_rows_that_a_plain_job_would_load_wrong_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FatalError) as refused:
        files(replace(SPEC, **fields))
    assert refused.value.code == "EJECT_UNSUPPORTED"
