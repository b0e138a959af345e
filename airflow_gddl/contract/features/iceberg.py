"""`iceberg`: Iceberg metadata of the replica and the history, for readers without Delta support."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from airflow_gddl.contract.endings import COMMITS, Ending
from airflow_gddl.contract.errors import SpecProblem
from airflow_gddl.contract.extensions import ICEBERG_KINDS, TableKind
from airflow_gddl.contract.features import FeatureDescriptor
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.spec import TableSpec, TierSpec

BEHIND_CODE, REFUSED_CODE = "ICEBERG_BEHIND", "ICEBERG_REFUSED"
_HIDDEN = frozenset({"deletionvectors", "typewidening", "columnmapping"})
"""Features of Delta with which data files alone do not give the table's content."""


def iceberg_folder(lake: str, spec: TableSpec, kind: TableKind = "replica") -> str:
    """Folder of the Iceberg table of one of the Delta tables, `replica` or `history`."""
    folder = join(lake, STATE, "iceberg", spec.schema_name, spec.name)
    return folder if kind == "replica" else f"{folder}__{kind}"


def is_used(spec: TableSpec, _tier: TierSpec) -> bool:
    return spec.iceberg


def problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """Delta features that Iceberg metadata can't represent."""
    if not spec.iceberg:
        return
    for key, value in spec.table_properties.items():
        feature = key.lower().removeprefix("delta.enable").removeprefix("delta.feature.")
        if feature in _HIDDEN and value.lower() != "false":
            message = "Iceberg readers read data files directly and ignore this feature"
            yield SpecProblem(REFUSED_CODE, ("table_properties", key), value, message, "remove it, or iceberg")


def written_by(tier: TierSpec) -> TierSpec:
    """Iceberg readers take data files as they are: no deletion vectors."""
    return replace(tier, deletion_vectors=False)


FEATURE = FeatureDescriptor(
    is_used=is_used,
    check=problems,
    endings={BEHIND_CODE: Ending(COMMITS, "each commit tries again to write the metadata")},
    when_idle=frozenset({BEHIND_CODE}),
    tier=written_by,
    reads=ICEBERG_KINDS,
    shown_as="Iceberg",
    folder=iceberg_folder,
    without="Write Iceberg metadata.",
)
