"""`iceberg`: Iceberg metadata of the replica and the history, for readers without Delta support."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from airflow_gddl.contract.codes import FIELD_VALUE, ICEBERG_REFUSED
from airflow_gddl.contract.errors import SpecProblem
from airflow_gddl.contract.extensions import ICEBERG_KINDS, TableKind
from airflow_gddl.contract.features import ROW_TRACKING, WIDENS, FeatureDescriptor
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.spec import TableSpec, TierSpec

V2, V3 = 2, 3
"""Versions of Iceberg's format."""
_VECTORS = "deletionvectors"
_HIDDEN = frozenset({"typewidening", "columnmapping"})
"""Features of Delta with which data files alone do not give the table's content."""
RESERVED = frozenset(
    {"_row_id", "_last_updated_sequence_number", "_file", "_pos", "_deleted", "_spec_id", "_partition", "_change_type",
     "_change_ordinal", "_commit_snapshot_id"}
)  # fmt: skip
"""Columns that readers of version 3 add to each table."""
_COLUMNS = ("keys", "sequence_by", "columns", "partition_by", "cluster_by")
"""Fields of a row that name its columns."""


def iceberg_folder(lake: str, spec: TableSpec, kind: TableKind = "replica") -> str:
    """Folder of the Iceberg table of one of the Delta tables, `replica` or `history`."""
    folder = join(lake, STATE, "iceberg", spec.schema_name, spec.name)
    return folder if kind == "replica" else f"{folder}__{kind}"


def format_version(spec: TableSpec) -> int:
    """Version of Iceberg's format that the row asks for; 0: none."""
    return V2 if spec.iceberg is True else int(spec.iceberg)


def value_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    if format_version(spec) not in (0, V2, V3):
        message, remedy = "no version of Iceberg's format", "write true (version 2), 3 or false"
        yield SpecProblem(FIELD_VALUE, ("iceberg",), spec.iceberg, message, remedy)


def problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """Delta features that Iceberg metadata can't represent, and columns that it reserves."""
    version = format_version(spec)
    if not version:
        return
    hidden = _HIDDEN if version == V3 else {*_HIDDEN, _VECTORS}
    for key, value in spec.table_properties.items():
        feature = key.lower().removeprefix("delta.enable").removeprefix("delta.feature.")
        if feature in hidden and value.lower() != "false":
            message = "Iceberg readers read data files directly and ignore this feature"
            yield SpecProblem(ICEBERG_REFUSED, ("table_properties", key), value, message, "remove it, or iceberg")
        if version == V3 and key.lower() == ROW_TRACKING.lower() and value.lower() == "false":
            message = "Iceberg's version 3 has ids of rows, which are those of Delta's row tracking"
            yield SpecProblem(ICEBERG_REFUSED, ("table_properties", key), value, message, "remove it, or iceberg: true")
    if version == V3:
        yield from _reserved(spec)


def _reserved(spec: TableSpec) -> Iterator[SpecProblem]:
    for name in _COLUMNS:
        for i, column in enumerate(getattr(spec, name) or ()):
            if column.lower() in RESERVED:
                message = "a column that readers of Iceberg's version 3 add to each table"
                remedy = "rename it in the source, exclude the column, or write iceberg: true"
                yield SpecProblem(ICEBERG_REFUSED, (name, i), column, message, remedy)


def written_by(spec: TableSpec, tier: TierSpec) -> TierSpec:
    """Version 2 has no deletion vectors that Delta's could be copied to: its readers take data files as they are."""
    return tier if format_version(spec) == V3 else replace(tier, deletion_vectors=False)


def properties(spec: TableSpec, kind: TableKind) -> Mapping[str, str]:
    """Version 3 has row ids. Its readers know no type widening of Delta, so files are written again instead."""
    asked = {ROW_TRACKING: "true", WIDENS: "false"}
    return asked if kind in ICEBERG_KINDS and format_version(spec) == V3 else {}


FEATURE = FeatureDescriptor(
    check_values=value_problems,
    check=problems,
    tier=written_by,
    properties=properties,
    reads=ICEBERG_KINDS,
    shown_as="Iceberg",
    folder=iceberg_folder,
    without="Write Iceberg metadata.",
)
