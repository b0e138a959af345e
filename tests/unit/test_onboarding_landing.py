"""Facts of landing folders: names, footers, and keys that only the full load can tell."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.tools.onboarding.landing import Landing, read_landing
from airflow_gddl.tools.onboarding.rules import DAY, SourceFacts, TableFacts
from airflow_gddl.tools.simulate.simulator import simulate
from airflow_gddl.tools.simulate.spec import SimulateSpec, TableShape
from tests.harness.dms_forms import DmsForm, rewrite

ORDERS = pa.table(
    {
        "note": ["n"] * 60,
        "amount": [i * 1.5 for i in range(60)],
        "order_id": pa.array(range(60), pa.int32()),
        "at": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 60, pa.timestamp("us", "UTC")),
    }
)
LINES = pa.table({"order_id": [i // 3 for i in range(60)], "line": [i % 3 for i in range(60)], "text": ["x"] * 60})
BAG = pa.table({"a": [1, 1, None], "b": [1, 1, 2]})
NOW = datetime(2024, 1, 31, tzinfo=UTC).timestamp()


def landed(folder: Path, rounds: int = 2, **form: Any) -> Path:
    spec = SimulateSpec(
        input={"orders": ORDERS, "lines": LINES},
        landing=folder,
        schema="shop",
        tables={"orders": TableShape(keys=("order_id",)), "lines": TableShape(keys=("order_id", "line"))},
        rounds=rounds,
        changes=10,
    )
    simulate(spec)
    rewrite(folder, DmsForm(**form))
    return folder


def found(folder: Path, *names: str) -> SourceFacts:
    return read_landing(Landing(str(folder), {}), frozenset(), frozenset(names), NOW)


def orders(folder: Path) -> TableFacts:
    return next(table for table in found(folder).tables if table.table == "shop.orders")


def put(folder: Path, name: str, rows: pa.Table) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)


def test_tables_are_known_by_their_folders_and_files(tmp_path: Path) -> None:
    facts = found(landed(tmp_path))
    assert [table.table for table in facts.tables] == ["shop.lines", "shop.orders"]
    one = facts.tables[1]
    assert (one.rows, list(one.columns)) == (60, ["note", "amount", "order_id", "at"])
    assert one.size_bytes == sum(path.stat().st_size for path in (tmp_path / "shop/orders").glob("LOAD*"))
    assert one.fields == {}
    assert facts.notices == ()


def test_keys_are_measured_and_a_float_is_none(tmp_path: Path) -> None:
    keys = {table.table: table.key for table in found(landed(tmp_path)).tables}
    reported = "measured: unique in all 60 rows of the full load"
    assert {name: key and (key.columns, key.evidence) for name, key in keys.items()} == {
        "shop.orders": (("order_id",), reported),
        "shop.lines": (("order_id", "line"), reported),
    }


def test_a_time_is_a_key_only_beside_others(tmp_path: Path) -> None:
    moments = pa.array([datetime(2024, 1, 1 + i // 2, tzinfo=UTC) for i in range(6)], pa.timestamp("us", "UTC"))
    put(tmp_path, "shop/weather/LOAD00000001.parquet", pa.table({"at": moments, "origin": ["a", "b"] * 3}))
    put(tmp_path, "shop/log/LOAD00000001.parquet", pa.table({"at": moments.take(pa.array([0, 2, 4])), "n": [1, 1, 1]}))
    assert {one.table: one.key and one.key.columns for one in found(tmp_path).tables} == {
        "shop.weather": ("origin", "at"),
        "shop.log": None,
    }


def test_int96_timestamps_of_all_years_are_measured(tmp_path: Path) -> None:
    """In nanoseconds, 9999 and 1816 would be one moment: no key where there is one."""
    moments = [datetime(9999, 12, 31), datetime(1816, 3, 29, 5, 56, 8, 66277), datetime(1500, 1, 1)]  # noqa: DTZ001 - of timestamps without a zone
    rows = pa.table({"n": [1, 1, 1], "since": pa.array(moments, pa.timestamp("us"))})
    folder = tmp_path / "shop" / "orders"
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "LOAD00000001.parquet", use_deprecated_int96_timestamps=True)
    landing = Landing(str(tmp_path), {})
    (looked,) = landing.folders(frozenset({"shop.orders"}))
    (read,) = landing.read("shop.orders", looked.of("load"), ["since"])
    assert read.column("since").to_pylist() == moments
    assert looked.footers[0].columns == {"n": "int64", "since": "timestamp[us]"}


@pytest.mark.parametrize("rows", [BAG, BAG.slice(0, 1), BAG.slice(0, 0)])
def test_what_proves_no_key_proposes_none(tmp_path: Path, rows: pa.Table) -> None:
    put(tmp_path, "shop/bag/LOAD00000001.parquet", rows)
    assert found(tmp_path).tables[0].key is None


def test_a_key_must_hold_over_all_files_of_the_load(tmp_path: Path) -> None:
    put(tmp_path, "shop/t/LOAD00000001.parquet", pa.table({"id": [1, 2], "no": [1, 2]}))
    put(tmp_path, "shop/t/LOAD00000002.parquet", pa.table({"id": [2, 3], "no": [3, 4]}))
    key = found(tmp_path).tables[0].key
    assert key is not None
    assert key.columns == ("no",)


@pytest.mark.parametrize(
    ("form", "fields"),
    [
        ({"sequence": "change_scn"}, {"sequence_by": ("change_scn",)}),
        ({"before_images": "BI_"}, {"before_image_prefix": "BI_"}),
        ({"time": "committed_at"}, {"options.timestamp_column": "committed_at"}),
        ({"ar_h": True}, {}),
        ({"gzipped": True}, {}),
        ({"segment": "SEGMENT1"}, {}),
        ({"date_partition": "YYYYMMDD"}, {"options.date_partition": "YYYYMMDD"}),
        (
            {"date_partition": "YYYYMMDDHH", "date_delimiter": "dash"},
            {"options.date_partition": "YYYYMMDDHH", "options.date_delimiter": "dash"},
        ),
        (
            {"date_partition": "YYYYMM", "date_delimiter": "none"},
            {"options.date_partition": "YYYYMM", "options.date_delimiter": "none"},
        ),
        ({"date_partition": "DDMMYYYY"}, {}),
    ],
)
def test_settings_of_the_service_are_detected(tmp_path: Path, form: dict[str, Any], fields: dict[str, Any]) -> None:
    one = orders(landed(tmp_path, **form))
    assert (one.fields, one.key and one.key.columns) == (fields, ("order_id",))


def test_an_operation_under_another_name_is_seen(tmp_path: Path) -> None:
    put(tmp_path, "shop/t/20240101-000000000.parquet", pa.table({"operation": ["I"], "id": [1], "transact_seq": ["1"]}))
    assert found(tmp_path).tables[0].fields == {"options.op_column": "operation"}


def test_activity_is_rows_of_changes_since_the_first_of_them(tmp_path: Path) -> None:
    activity = orders(landed(tmp_path)).activity
    assert activity is not None
    assert (activity.changes, activity.until) == (20, NOW)
    assert 29 < (NOW - activity.since) / DAY < 30


def test_only_requested_tables_are_read(tmp_path: Path) -> None:
    facts = found(landed(tmp_path), "shop.lines")
    assert [table.table for table in facts.tables] == ["shop.lines"]


def test_folders_with_invalid_names_csv_and_unreadable_files_are_reported(tmp_path: Path) -> None:
    put(tmp_path, "shop/na\u00efve/LOAD00000001.parquet", LINES)
    put(tmp_path, "shop/a.b/LOAD00000001.parquet", LINES)
    (tmp_path / "shop" / "text").mkdir()
    (tmp_path / "shop/text/LOAD00000001.csv").write_text("1,a\n")
    (tmp_path / "shop" / "torn").mkdir()
    (tmp_path / "shop/torn/LOAD00000001.parquet").write_bytes(b"PAR1 half of it")
    (tmp_path / "shop" / "empty").mkdir()
    facts = found(tmp_path)
    assert [(notice.table, notice.code) for notice in facts.notices] == [
        ("shop.a.b", "FIELD_VALUE"),
        ("shop.na\u00efve", "FIELD_VALUE"),
        ("shop.text", "ONBOARD_CSV"),
        ("shop.torn", "ONBOARD_FILE_UNREADABLE"),
    ]
    assert [(table.table, table.key) for table in facts.tables] == [("shop.text", None), ("shop.torn", None)]
