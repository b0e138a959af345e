"""Simulated change data capture: files as DMS or Debezium write them from any tables, and the expected content of the
replica.

Needs pyarrow; nothing else of the package imports this one at its top.
"""

from airflow_gddl.simulate.simulator import Simulator, prepare, simulate
from airflow_gddl.simulate.source import DEMO_SHAPES, demo_spec, demo_tables, find_tables, propose_keys, read_table
from airflow_gddl.simulate.spec import Delivery, OpMix, SchemaEvent, SimulateSpec, TableShape, Troubles
from airflow_gddl.simulate.table import Differences, SimulateReport, TableReport, differences

__all__ = [
    "DEMO_SHAPES",
    "Delivery",
    "Differences",
    "OpMix",
    "SchemaEvent",
    "SimulateReport",
    "SimulateSpec",
    "Simulator",
    "TableReport",
    "TableShape",
    "Troubles",
    "demo_spec",
    "demo_tables",
    "differences",
    "find_tables",
    "prepare",
    "propose_keys",
    "read_table",
    "simulate",
]
