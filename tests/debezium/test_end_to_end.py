"""Debezium's files through a whole run: what the scenarios, made from DMS's rows, have no counterpart of."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec
from spark_jobs.job import run_job
from tests.conftest import LocalPort
from tests.debezium.looking import event, text, wrapped
from tests.engine_port import EnginePort
from tests.spark.breaking import Break, Breaker

_PLACEHOLDER = "__debezium_unavailable_value"


class Lake:
    """A table `shop.t` of Debezium's files."""

    def __init__(self, engine: EnginePort, root: Path, **row: Any) -> None:
        self._engine = engine
        self._roots = Roots(landing=str(root / "landing"), lake=str(root / "lake"))
        self._spec = decode(TableSpec, {"table": "shop.t", "keys": ["id"], "dialect": "debezium", **row})
        self._layout = Layout.of(self._roots, self._spec)
        self._offset = 0

    def land(self, content: str | bytes, ending: str = "json") -> str:
        """Under the name that Confluent's sink would give it."""
        path = Path(self._layout.landing) / f"partition=0/shop.t+0+{self._offset:010d}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        self._offset += 100
        return str(path)

    def run(self, **options: Any) -> JobResult:
        (result,) = self._engine.run(self._job(**options))
        assert result.error is None, result.error
        return result

    def refused(self) -> str:
        """The code with which a run fails."""
        (result,) = self._engine.run(self._job())
        assert result.error is not None
        return result.error.code

    def break_off(self, step: str) -> None:
        """A run that dies once the step is done."""
        breaker = Breaker({self._spec.table: Break(step)})
        port = self._engine
        assert isinstance(port, LocalPort)
        runtime = replace(port.runtime, observe=breaker)
        (outcome,) = run_job(port.tiered(self._job()), runtime, lambda _: None)
        assert (outcome.result.status, breaker.done) == ("failed", {self._spec.table})

    def _job(self, **options: Any) -> JobSpec:
        return JobSpec(run_id="r", roots=self._roots, tables=(self._spec,), options=JobOptions(**options))

    def replica(self, *columns: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row[name] for name in columns) for row in self._engine.read(self._layout.replica))

    def errors(self) -> list[Mapping[str, Any]]:
        return sorted(
            self._engine.read(self._layout.errors), key=lambda row: (row["source_file"], row["position"] or 0)
        )

    def changes(self) -> int:
        return len(self.change_rows())

    def change_rows(self) -> list[dict[str, Any]]:
        return sorted(self._engine.read(self._layout.changes), key=lambda row: row["_gddl"]["position"])

    def columns(self) -> set[str]:
        return {name for row in self._engine.read(self._layout.replica) for name in row}


def warnings_of(result: JobResult) -> list[str]:
    return sorted(warning.code for warning in result.warnings)


def test_values_that_were_not_sent_are_kept(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(event("r", {"id": 1, "v": "a", "big": "one"}), event("r", {"id": 2, "v": "a", "big": "two"})))
    lake.run()
    lake.land(
        text(event("u", {"id": 1, "v": "b", "big": _PLACEHOLDER}, 10), event("u", {"id": 2, "v": "b", "big": None}, 11))
    )
    lake.run()
    assert lake.replica("id", "v", "big") == [(1, "b", "one"), (2, "b", None)]
    lake.land(text(event("u", {"id": 2, "v": "late", "big": "zwei"}, 5)))
    lake.land(gzip.compress(text(event("u", {"id": 1, "v": "c", "big": "uno"}, 12)).encode()), "json.gz")
    lake.run()
    assert lake.replica("id", "v", "big") == [(1, "c", "uno"), (2, "b", None)]
    assert lake.run(full_refresh=True).mode == "refresh"
    assert lake.replica("id", "v", "big") == [(1, "c", "uno"), (2, "b", None)]


@pytest.mark.parametrize("step", ["plan", "quarantine", "append", "tombstones", "merge", "commit"])
def test_a_run_that_broke_off_is_gone_on_with(engine: EnginePort, tmp_path: Path, step: str) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(*(event("r", {"id": number, "v": "a", "big": "one"}) for number in (1, 2, 3))))
    lake.run()
    update = event("u", {"id": 1, "v": "b", "big": _PLACEHOLDER}, 10)
    lake.land(
        text(
            update, event("d", {"id": 2}, 11), None, event("c", {"id": 4, "v": "d", "big": "four"}, 12), {"no": "event"}
        )
    )
    lake.break_off(step)
    lake.run()
    assert lake.replica("id", "v", "big") == [(1, "b", "one"), (3, "a", "one"), (4, "d", "four")]
    assert [error["code"] for error in lake.errors()] == ["ROW_MALFORMED"]
    assert lake.changes() == 6


def test_an_updated_key_moves_the_row(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(event("r", {"id": 1, "v": "a"})))
    lake.land(text(event("d", {"id": 1, "v": None}, 10), None, event("c", {"id": 2, "v": "a"}, 10)))
    lake.run()
    assert lake.replica("id", "v") == [(2, "a")]


def test_bad_records_go_to_the_quarantine_as_they_came(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lost = event("c", {"id": 6, "v": "b"}, 6) | {"source": {"connector": "postgresql"}}
    odd = text(event("t", None, 3), event("m", {"id": 3}, 4), event("d", None, 5), lost)
    lake.land(text(event("c", {"id": 1, "v": "a"}), {"neither": "nor"}) + "broken\n" + odd)
    result = lake.run()
    assert (result.rows_read, result.changes_written, result.quarantined) == (7, 1, 6)
    found = [(row["position"], row["code"]) for row in lake.errors()]
    assert found == [(1, "ROW_MALFORMED"), (2, "ROW_MALFORMED"), (3, "OP_UNKNOWN"), (4, "OP_UNKNOWN"), (5, "KEY_NULL"),
                     (6, "SEQUENCE_NULL")]  # fmt: skip
    records = [json.loads(row["record"]) for row in lake.errors()]
    assert [record.get("line") for record in records[:3]] == ['{"neither": "nor"}', "broken", None]
    assert "truncate (t) empties nothing" in lake.errors()[2]["reason"]
    assert lake.replica("id", "v") == [(1, "a")]


def test_a_mask_keeps_texts_out_that_nobody_could_mask(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, mask={"pin": "hash"})
    lake.land(text(event("c", {"id": 1, "pin": "1234"}), {"pin": "secret"}))
    lake.run()
    (error,) = lake.errors()
    assert error["code"] == "ROW_MALFORMED"
    assert "secret" not in str(error)


def test_events_that_were_sent_again_change_nothing(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    events = text(event("c", {"id": 1, "v": "a"}, 1), event("u", {"id": 1, "v": "b"}, 2))
    lake.land(events)
    lake.run()
    lake.land(events)
    result = lake.run()
    assert (result.redelivered, result.changes_written, lake.changes()) == (2, 0, 2)


def test_a_change_is_known_again_beside_changes_with_more_columns(engine: EnginePort, tmp_path: Path) -> None:
    """What it carries is told otherwise there: its file has a column that it lacks."""
    lake = Lake(engine, tmp_path)
    update = event("u", {"id": 1, "v": "b"}, 2)
    lake.land(text(event("c", {"id": 1, "v": "a"}), update))
    lake.run()
    lake.land(text(update, event("u", {"id": 1, "v": "c", "w": 1}, 3)))
    result = lake.run()
    assert (result.redelivered, lake.changes(), warnings_of(result)) == (1, 3, [])
    assert lake.replica("id", "v", "w") == [(1, "c", 1)]


def test_a_source_without_places_is_ordered_by_time_and_then_offset(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    source = {"connector": "vitess", "ts_ms": 1000}
    for value in ("a", "b", "c"):
        lake.land(text(event("u" if value > "a" else "c", {"id": 1, "v": value}) | {"source": source}))
    result = lake.run()
    assert lake.replica("id", "v") == [(1, "c")]
    assert warnings_of(result) == ["ORDER_NOT_TOTAL", "SEQUENCE_TIE"]


def test_a_file_of_nothing_but_tombstones_and_truncates(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(event("c", {"id": 1, "v": "a"})))
    lake.land(text(None, None))
    lake.land(text(event("t", None, 9)))
    assert lake.run().quarantined == 1
    assert lake.replica("id", "v") == [(1, "a")]


def test_a_table_begins_with_its_first_row(engine: EnginePort, tmp_path: Path) -> None:
    """Of tombstones alone nobody knows the type of its key."""
    lake = Lake(engine, tmp_path)
    lake.land(text(None, None))
    lake.run()
    assert lake.replica("id") == []
    lake.land(text(event("c", {"id": 1, "v": "a"})))
    lake.run()
    assert (lake.replica("id", "v"), lake.run().batches) == ([(1, "a")], 0)


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_types_that_the_schema_names(engine: EnginePort, tmp_path: Path, form: str) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(_named_json() if form == "json" else _named_parquet(), form)
    lake.run()
    ((identity, at, day),) = lake.replica("id", "at", "day")
    assert (identity, at.isoformat(), day.isoformat()) == (1, "2024-01-01T00:00:00.123456", "2024-01-01")


_FIELDS: dict[str, dict[str, Any]] = {
    "id": {"type": "int32"},
    "at": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "day": {"type": "int32", "name": "io.debezium.time.Date"},
}
_ROW = {"id": 1, "at": 1704067200123456, "day": 19723}


@pytest.mark.parametrize("source", [
    {"connector": "mysql", "file": "bin.000001", "pos": 4, "row": 0, "ts_ms": 2},
    {"connector": "sqlserver", "commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003",
     "ts_ms": 2},
])  # fmt: skip
def test_places_in_another_kind_of_log_are_refused(engine: EnginePort, tmp_path: Path, source: dict[str, Any]) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(event("c", {"id": 1, "v": "a"})))
    lake.run()
    other = lake.land(text({**event("u", {"id": 1, "v": "b"}), "source": source}))
    assert lake.refused() == "SEQUENCE_WIDTH"
    assert lake.replica("v") == [("a",)]
    Path(other).unlink()
    lake.land(text(event("u", {"id": 1, "v": "c"}, 2)))
    lake.run()
    assert lake.replica("v") == [("c",)]


def test_another_kind_of_source_goes_on_with_times_first(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, sequence_by=["_dbz_ts", "_dbz_sequence"])
    lake.land(text(event("c", {"id": 1, "v": "a"})))
    mysql = {"connector": "mysql", "file": "bin.000001", "pos": 4, "row": 0, "ts_ms": 2}
    lake.land(text({**event("u", {"id": 1, "v": "b"}), "source": mysql}))
    lake.run()
    assert lake.replica("v") == [("b",)]


def test_files_of_something_else_stand_beside_good_ones(engine: EnginePort, tmp_path: Path) -> None:
    """Topics that a sink has put into the table's folder; the next version of the file is looked at again."""
    lake = Lake(engine, tmp_path)
    lake.land(text(event("c", {"id": 1, "v": "a"})))
    lake.land(text({"ts_ms": 5}))
    lake.land(text({"status": "BEGIN", "id": "571:53195829", "event_count": None, "ts_ms": 5}))
    lake.land(text({"source": {"server": "shop"}, "databaseName": "shop", "ddl": "CREATE TABLE t (id int)"}))
    torn = Path(lake.land(text(event("u", {"id": 1, "v": "b"}, 2), event("u", {"id": 1, "v": "c"}, 3))[:-9]))
    bare = {name: part for name, part in event("c", {"id": 2, "v": "x"}).items() if name != "source"}
    lake.land(text(bare))
    assert warnings_of(lake.run()) == ["FILE_UNREADABLE"]
    assert [error["code"] for error in lake.errors()] == ["FILE_UNREADABLE"] * 5
    assert lake.replica("id", "v") == [(1, "a")]
    torn.write_text(text(event("u", {"id": 1, "v": "b"}, 2), event("u", {"id": 1, "v": "c"}, 3)))
    lake.run()
    assert lake.replica("id", "v") == [(1, "c")]
    assert [error["resolved_at"] is None for error in lake.errors()].count(False) == 1


def test_a_file_of_another_table_stops_this_one_alone(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(event("c", {"id": 1, "v": "a"})))
    lake.run()
    other = lake.land(text(event("c", {"customer": 1, "name": "x"}, 2)))
    lake.land(text(event("u", {"id": 1, "v": "b"}, 3)))
    assert lake.refused() == "KEY_COLUMN_MISSING"
    Path(other).unlink()
    lake.run()
    assert lake.replica("id", "v") == [(1, "b")]


def test_deletes_that_tell_no_key_go_to_the_quarantine(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(event("c", {"id": 1, "v": "a"})))
    lake.land(text(event("d", None, 2)))
    assert lake.run().quarantined == 1
    assert [error["code"] for error in lake.errors()] == ["KEY_NULL"]
    assert lake.replica("id") == [(1,)]


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_before_images_are_kept_and_move_rows(engine: EnginePort, tmp_path: Path, form: str) -> None:
    """The table's key is not the topic's: Debezium tells of its update as of any other column's."""
    lake = Lake(engine, tmp_path, keys=["mail"], before_image_prefix="BI_")
    lake.land(text(event("c", {"id": 1, "mail": "a", "v": "x"})))
    update = event("u", {"id": 1, "mail": "b", "v": "y"}, 2) | {"before": {"id": 1, "mail": "a", "v": "x"}}
    lake.land(text(update) if form == "json" else enveloped(update), form)
    lake.run()
    assert lake.replica("mail", "v") == [("b", "y")]
    assert "BI_mail" not in lake.columns()
    assert [(row["v"], row["BI_mail"], row["BI_v"]) for row in lake.change_rows()] == [
        ("x", None, None), ("y", "a", "x"),
    ]  # fmt: skip


def enveloped(*events: Mapping[str, Any]) -> bytes:
    """Parquet as Confluent's sink writes it."""
    return _parquet(pa.Table.from_pylist([dict(found) for found in events]))


def test_tombstones_in_parquet_are_nothing(engine: EnginePort, tmp_path: Path) -> None:
    """Aiven's sink puts the record beside its key and offset."""
    lake = Lake(engine, tmp_path)
    lake.land(_parquet(pa.Table.from_pylist([
        {"offset": 1, "value": event("c", {"id": 1, "v": "a"})}, {"offset": 2, "value": None},
    ])), "parquet")  # fmt: skip
    assert (lake.run().rows_read, lake.replica("id", "v"), lake.errors()) == (1, [(1, "a")], [])


def _named_json() -> str:
    return wrapped(_FIELDS, event("c", _ROW))


def _named_parquet() -> bytes:
    """With the Avro schema that the sink's writer leaves; `after` refers to the record that `before` defines."""
    row = pa.struct([("id", pa.int32()), ("at", pa.int64()), ("day", pa.int32())])
    avro = [{"name": name, "type": ["null", {"type": "long", "connect.name": kind.get("name")}]}
            for name, kind in _FIELDS.items()]  # fmt: skip
    schema = {"type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": avro}]},
        {"name": "after", "type": ["null", "Value"]}]}  # fmt: skip
    source = pa.struct([("connector", pa.string()), ("file", pa.string()), ("pos", pa.int64()), ("row", pa.int32())])
    table = pa.table({
        "before": pa.array([None], row), "after": pa.array([_ROW], row), "op": pa.array(["c"]),
        "source": pa.array([{"connector": "mysql", "file": "bin.000001", "pos": 4, "row": 0}], source),
    }).replace_schema_metadata({"parquet.avro.schema": json.dumps(schema)})  # fmt: skip
    return _parquet(table)


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
