"""Which columns of a table the service that wrote its files has added."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_gddl.contract.extensions import DIALECTS
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.dialects.probe import CARRIED
from spark_jobs.dialects.protocol import dialect_of
from spark_jobs.plan.applied_settings import ChangeSettings, settings_of
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.table_schema import Column, Schema
from spark_jobs.rules.batch_schema import Stored, plan_batch


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
