"""Which columns of a table the service that wrote its files has added."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import DIALECTS
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.applied_settings import ChangeSettings, settings_of
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.table_schema import Column, Schema
from spark_jobs.rooms.dialects.probe import CARRIED
from spark_jobs.rooms.dialects.protocol import dialect_of
from spark_jobs.rules.batch_schema import Stored, plan_batch
from spark_jobs.rules.file_groups import FileGroup


@pytest.mark.parametrize(("dialect", "of_service"), [("dms", True), ("debezium", False)])
def test_names_that_dms_adds_are_the_sources_own_elsewhere(dialect: str, of_service: bool) -> None:
    columns = tuple(Column(name, parse_type("string")) for name in ("id", "AR_H_NOTE"))
    row = dialect_of(TableSpec(table="s.t", keys=("id",), dialect=dialect))
    schema = plan_batch(row, (), Stored(data=Schema(columns), before=None), TableState(batch=1)).table_schema
    assert schema.is_technical("AR_H_NOTE") is of_service


_STORED = Stored(data=Schema((Column("id", parse_type("int")), Column("c", parse_type("string")))), before=None)
_ROW = TableSpec(table="s.t", keys=("id",), sequence_by=("id",), ignore_null_updates=True)


def test_changes_keep_the_settings_under_which_they_came() -> None:
    unusual = {"id": "int", "force_update=c": "void", "tie_break=last_arrival": "void"}
    state = TableState(batch=1, applied=settings_of(_ROW), schemas=({"id": "int", "c": "string"}, unusual))
    found = plan_batch(dialect_of(_ROW), (), _STORED, state)
    usual = ChangeSettings(columns_to_update=CARRIED)
    earlier = {usual: (0,), replace(usual, force_update="c", tie_break="last_arrival"): (1,)}
    assert (found.schemas, found.table_schema.earlier) == (state.schemas, earlier)
    assert found.table_schema.forcing == ("c",)
    assert found.table_schema.controls == (CARRIED, "c")
    assert not found.table_schema.is_technical("c")
    assert found.table_schema.under(ChangeSettings(force_update="c")).is_technical("c")


@pytest.mark.parametrize("name", sorted(DIALECTS.built_in))
def test_row_and_its_dialect_apply_the_same_settings(name: str) -> None:
    """Else each run would take the row for a changed one, and derive the history of all keys again."""
    row = TableSpec(table="s.t", keys=("id",), dialect=name, history=True)
    assert settings_of(dialect_of(row).spec) == settings_of(row)


@pytest.mark.parametrize(("dialect", "sequence", "are_positions"), [
    ("dms", "AR_H_CHANGE_SEQ", False), ("debezium", "_dbz_sequence", True), ("debezium", "_dbz_ts", False),
    ("debezium", "v", False),
])  # fmt: skip
def test_sequences_that_are_positions_in_a_log(dialect: str, sequence: str, are_positions: bool) -> None:
    row = dialect_of(TableSpec(table="s.t", keys=("id",), dialect=dialect))
    state = TableState(batch=1, sequence_by=(sequence,), sequence_type="string", max_sequence='"1"')
    stored = Stored(data=Schema(tuple(Column(n, parse_type("string")) for n in ("id", sequence))), before=None)
    found = plan_batch(row, (), stored, state).table_schema
    assert found.log_positions is are_positions
    assert found.one_change is (sequence == "_dbz_sequence")


@pytest.mark.parametrize("named", [{"sequence_by": ["c"]}, {"force_update": "c"}, {"columns_to_update": "c"}])
def test_columns_that_the_row_names_may_be_absent_from_a_file(named: dict[str, Any]) -> None:
    """They concern the change: no policy of dropped columns does."""
    policy = {"dropped_column": "fail"}
    row = dialect_of(decode(TableSpec, {"table": "s.t", "keys": ["id"], "schema_evolution": policy, **named}))
    kinds = {"id": "int", "v": "string", "c": "string", "transact_seq": "string"}
    whole, lacking = (
        FileGroup(kind="load", columns=tuple((n, k) for n, k in kinds.items() if n not in left), label="f", dialect=row)
        for left in ((), ("c",))
    )
    found = plan_batch(row, (whole, lacking), Stored(data=None, before=None), TableState())
    stored = Stored(data=Schema(found.table_schema.data), before=None)
    again = plan_batch(row, (lacking,), stored, TableState(batch=1, keys=("id",)))
    assert [column.name for column in again.table_schema.data] == [column.name for column in found.table_schema.data]
    assert again.plan.groups[0].ignored == ()


@pytest.mark.parametrize(("policy", "stored", "rescues"), [
    ({}, False, False), ({}, True, True), ({"new_column": "rescue"}, False, True),
    ({"type_change": "rescue"}, False, True),
    ({"new_column": "ignore", "type_change": "widen"}, False, False),
])  # fmt: skip
def test_tables_with_rescued_values(policy: dict[str, str], stored: bool, rescues: bool) -> None:
    row = dialect_of(decode(TableSpec, {"table": "s.t", "keys": ["id"], "schema_evolution": policy}))
    found = plan_batch(row, (), replace(_STORED, rescued=stored), TableState(batch=1)).table_schema
    assert found.rescues is rescues


@pytest.mark.parametrize("name", ["id", "v"])
def test_column_that_the_row_names_is_compared_with_its_type_in_the_live_table(name: str) -> None:
    """While it is replaced: what comes in another type is a change of the source, whether the row names it or not."""
    policy = {"type_change": "fail"}
    row = dialect_of(decode(TableSpec, {"table": "s.t", "keys": ["id"], "schema_evolution": policy}))
    known = Schema((Column("id", parse_type("int")), Column("v", parse_type("int"))))
    kinds = {"id": "int", "v": "int", "transact_seq": "string", name: "bigint"}
    group = FileGroup(kind="change", columns=tuple(kinds.items()), label="f", dialect=row)
    stored = Stored(data=known, before=None, live=known)
    with pytest.raises(FatalError) as caught:
        plan_batch(row, (group,), stored, TableState(batch=1, keys=("id",)))
    assert caught.value.code == "SCHEMA_REFUSED"
