"""Features that a row switches on: what both sides know of each, a module for each with its `FEATURE`.

The module of a feature is found in this package by its name. What a job does for it is the package of that name in
`spark_jobs.rooms.features`. A field of `TableSpec` that belongs to a feature is marked with its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from airflow_gddl.contract.codes import FEATURE_MISSING
from airflow_gddl.contract.errors import SpecProblem
from airflow_gddl.contract.extensions import TableKind, part
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.contract.table_spec import TableSpec


@dataclass(frozen=True, kw_only=True)
class FeatureDescriptor:
    """What both sides know of a feature.

    Attributes:
        check_values: problems of single values of a row, also of defaults.
        check: further problems of a row.
        tier: function of a row that uses it and of its tier that gives the tier by which its tables are written.
        properties: function of a row and one of its tables that gives properties of this Delta table; empty where the
            row does not use the feature.
        reads: tables whose data files its readers use, also files that Delta does not need any more.
        shown_as: format of the metadata that it makes of a row's tables, for readers of another format.
        folder: function of the lake, a row and one of its tables that gives the folder of that metadata.
        without: what a job without airflow-gddl does not do for a row that uses it, as a sentence.
    """

    check_values: Callable[[TableSpec], Iterable[SpecProblem]]
    check: Callable[[TableSpec], Iterable[SpecProblem]]
    tier: Callable[[TableSpec, TierSpec], TierSpec]
    properties: Callable[[TableSpec, TableKind], Mapping[str, str]]
    reads: tuple[TableKind, ...]
    shown_as: str
    folder: Callable[[str, TableSpec, TableKind], str]
    without: str


ROW_TRACKING = "delta.enableRowTracking"
"""Property of a Delta table; `true`: its rows have ids."""
WIDENS = "gddl.widensTypes"
"""As before; `false`: wider columns are written again, without Delta's type widening."""


def used_by(spec: TableSpec) -> Mapping[str, FeatureDescriptor]:
    """Features of this installation that a row uses, by name, in the order in which they are called."""
    names = sorted({*spec.features.values()})
    return {name: one for name in names if (one := part(f"{__name__}.{name}", "FEATURE"))}


def properties_of(spec: TableSpec, kind: TableKind) -> dict[str, str]:
    """Properties that the row's features ask for in one of its Delta tables."""
    return {name: value for one in used_by(spec).values() for name, value in one.properties(spec, kind).items()}


def with_properties(spec: TableSpec) -> TableSpec:
    """The row with the properties of its replica that its features ask for."""
    return replace(spec, table_properties={**spec.table_properties, **properties_of(spec, "replica")})


def folders(lake: str, spec: TableSpec, kind: TableKind) -> Mapping[str, str]:
    """By format, folders of the metadata that the row's features make of one of its tables for other readers."""
    return {one.shown_as: one.folder(lake, spec, kind) for one in used_by(spec).values()}


def value_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """What features refuse of single values; `FEATURE_MISSING` for each field whose feature this installation lacks."""
    used = used_by(spec)
    for name, feature in spec.features.items():
        if feature not in used:
            message = f"this installation lacks the feature {feature}"
            remedy = f"install all of airflow-gddl, or drop {name}"
            yield SpecProblem(FEATURE_MISSING, (name,), getattr(spec, name), message, remedy)
    for one in used.values():
        yield from one.check_values(spec)


def problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """What features refuse of a row."""
    for one in used_by(spec).values():
        yield from one.check(spec)
