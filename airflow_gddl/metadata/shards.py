"""Rows whose table several sources hold: what their `shards` resolve to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from airflow_gddl.contract.layout import LandingFolder
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import SpecProblem
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from airflow_gddl.metadata.sources import Source

_OWN_OPTIONS = ("verify_connection",)
"""Options that each source has for itself."""


def with_shards(spec: TableSpec, sources: Mapping[str, Source]) -> TableSpec | tuple[SpecProblem, ...]:
    """The spec with the landing root of each of its sources, and their name as the first key column.

    Args:
        sources: those of the settings, by short name.
    """
    if not spec.shards:
        return spec
    if problems := tuple(_problems(spec, sources)):
        return problems
    landings = {shard: sources[shard].landing for shard in spec.shards}
    return replace(spec, keys=(SHARD_COLUMN, *spec.keys), shard_landings=landings)


def _problems(spec: TableSpec, sources: Mapping[str, Source]) -> Iterator[SpecProblem]:
    folders: dict[str, str] = {}
    for i, shard in enumerate(spec.shards):
        path, source = ("shards", i), sources.get(shard)
        if source is None:
            known = ", ".join(sorted(sources)) or "none"
            message = f"no source of gddl.yaml has this name; there are: {known}"
            yield SpecProblem("SHARD_UNKNOWN", path, shard, message, "declare it in gddl.yaml under sources")
            continue
        folder = LandingFolder(source.landing, spec.name_in_source).path.lower()
        if folder in folders:
            message = f"its files and those of {folders[folder]} land in one folder, {folder}"
            remedy = "give each source in gddl.yaml a landing root of its own"
            yield SpecProblem("LANDING_SHARED", path, shard, message, remedy)
        folders[folder] = shard
        if difference := _difference(spec, source):
            remedy = "give the row's sources one dialect and equal options, or load each into a table of its own"
            yield SpecProblem("SHARD_DIFFERS", path, shard, difference, remedy)


def _difference(spec: TableSpec, source: Source) -> str:
    """What of the source is not as the row has it; empty: nothing."""
    values = source.layer.values
    if values.get("dialect", spec.dialect) != spec.dialect:
        return f"its dialect is {values['dialect']}, that of the row {spec.dialect}"
    options = values.get("options")
    for name, value in (options if isinstance(options, Mapping) else {}).items():
        if name not in _OWN_OPTIONS and spec.options.get(name) != value:
            return f"its options.{name} is {value!r}, that of the row {spec.options.get(name)!r}"
    return ""
