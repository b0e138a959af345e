"""Simulated Debezium files, every trouble among them, against the truth that the simulator keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.simulate.simulation import with_dialect
from airflow_gddl.simulate.simulator import prepare, simulate
from airflow_gddl.simulate.spec import Delivery, SchemaEvent, SimulateSpec, TableShape, Troubles
from airflow_gddl.simulate.table import differences
from airflow_gddl.stores import Storage
from tests.harness.engine_port import EnginePort
from tests.harness.typed_tables import with_typed_columns
from tests.scenarios import delta_log

PEOPLE = pa.table({
    "id": pa.array(range(1, 61), pa.int32()),
    "name": [f"name {i}" for i in range(60)],
    "age": pa.array([20 + i for i in range(60)], pa.int16()),
})  # fmt: skip
TROUBLES = Troubles(
    late=0.3, torn=0.3, repeated=0.3, out_of_order=True, ties=2, tricky_keys=True, unknown_op=1, null_key=1,
    null_sequence=1, unparsable_sequence=1, bad_value=1, truncated_file=True, empty_file=True, clutter=True,
)  # fmt: skip


def simulation(root: Path, **more: Any) -> SimulateSpec:
    given: dict[str, Any] = {"delivery": Delivery(format="json"), "rounds": 3, "changes": 30, **more}
    return SimulateSpec(input={"people": with_typed_columns(PEOPLE)}, landing=root / "landing", schema="hr",
                        tables={"people": TableShape(keys=("id",))}, **given)  # fmt: skip


def test_replica_equals_the_simulated_source(engine: EnginePort, tmp_path: Path) -> None:
    events = (SchemaEvent(round=1, kind="add_column"), SchemaEvent(round=2, kind="rename_case", column="name"),
              SchemaEvent(round=3, kind="widen"))  # fmt: skip
    simulator = prepare(simulation(tmp_path, troubles=TROUBLES, events=events))
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    table = decode(TableSpec, simulator.metadata_row("people"))
    assert table.dialect == "debezium"
    layout, results = Layout.of(roots, table), []
    for number in range(4):
        simulator.land(number)
        results += engine.run(JobSpec(run_id=f"r{number}", roots=roots, tables=(table,)))
        assert results[-1].status == "succeeded", results[-1].error
    rows = engine.read(layout.replica)
    names = list(delta_log.columns(Storage(), layout.replica))
    truth = simulator.truth("people")
    assert not (found := differences(truth, _table(rows, names, truth.schema), ("id",))), found
    report = simulator.report().tables["people"]
    assert sum(result.quarantined for result in results) == report.expected_quarantined
    assert report.troubles["ties"] > 0


def _table(rows: list[dict[str, Any]], names: list[str], like: pa.Schema) -> pa.Table:
    kinds = {field.name.lower(): field.type for field in like}
    columns = {}
    for name in names:
        if name.lower() in kinds:
            kind = kinds[name.lower()]
            columns[name] = pa.array([row[name] for row in rows], kind)
    return pa.table(columns)


def test_simulated_files_match_a_sink(tmp_path: Path) -> None:
    simulate(simulation(tmp_path))
    files = sorted((tmp_path / "landing/hr/people").rglob("*.json"))
    assert files[0].relative_to(tmp_path).as_posix() == "landing/hr/people/partition=0/events+0+0000000000000.json"
    first = json.loads(files[0].read_text().splitlines()[0])
    assert (first["payload"]["op"], first["payload"]["source"]["lsn"]) == ("r", 1)
    assert {part["field"] for part in first["schema"]["fields"]} == {"before", "after", "op"}


@pytest.mark.parametrize("more", [
    {"delivery": Delivery(format="json", before_images="BI_")}, {"delivery": Delivery(format="json.gz", segments=2)},
    {"troubles": Troubles(key_updates=0.1)}, {"reload_rounds": (1,)},
])  # fmt: skip
def test_dms_only_settings_are_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(MetadataError) as caught:
        simulate(simulation(tmp_path, **more))
    assert caught.value.code == "SIMULATE_SPEC_INVALID"


def test_option_selects_the_format() -> None:
    assert with_dialect("debezium", ("late=0.1",)) == ("format=json", "late=0.1")
    assert with_dialect("debezium", ("format=json.gz",)) == ("format=json.gz",)
    assert with_dialect("dms", ("format=csv",)) == ("format=csv",)


@pytest.mark.parametrize(("dialect", "form"), [("debezium", "csv"), ("dms", "json"), ("qlik", "csv")])
def test_invalid_option_value_is_refused(dialect: str, form: str) -> None:
    with pytest.raises(MetadataError) as caught:
        with_dialect(dialect, (f"format={form}",))
    assert caught.value.code == "SIMULATE_SETTING_INVALID"
