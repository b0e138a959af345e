"""Warnings about metadata that is valid, but is probably not what was meant; none of them stops a table."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from airflow_gddl.contract.basics import CALENDAR
from airflow_gddl.contract.codes import (
    CRON_STEP,
    FIELD_UNUSED,
    FRESHNESS_TOO_SHORT,
    MASK_GUESSABLE,
    ROOTS_NESTED,
    Code,
)
from airflow_gddl.contract.connections import require_lent
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError, FieldPath, documented, problem_at
from airflow_gddl.contract.names import few
from airflow_gddl.contract.spec import DEFAULT_TIERS, TableSpec
from airflow_gddl.contract.table_spec import lowered
from airflow_gddl.metadata.cron import longest_gap
from airflow_gddl.metadata.folder import FILE
from airflow_gddl.metadata.loading import LoadedMetadata
from airflow_gddl.metadata.problems import Problem

_STEP = re.compile(r"(?:^|,)[^,/]*/(\d+)")
_LIMITS = (("minute", 60), ("hour", 24), ("day of the month", 31), ("month", 12), ("day of the week", 7))
_NAMED = 3
"""Other tables that a warning names."""


def advise(loaded: LoadedMetadata, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Warnings in the order: roots, settings, schedules, freshness, fields, masks, connections; one for a schedule or
    connection, however many tables have it.

    Args:
        environ: of jobs, as far as it is that of this process.
    """
    for check in (_roots, _tiers, _unused, _steps, _freshness, _without_effect, _masks):
        yield from check(loaded)
    yield from _connections(loaded, environ)


def _roots(loaded: LoadedMetadata) -> Iterator[Problem]:
    """`ROOTS_NESTED`: a lake below a landing folder, or the other way round."""
    lake = loaded.roots.lake.rstrip("/")
    landings = {"landing": loaded.roots.landing} | {
        f"sources.{name}.landing": landing
        for name, landing in loaded.landings.items()
        if landing != loaded.roots.landing
    }
    for field, root in landings.items():
        landing = root.rstrip("/")
        for inner, outer, name in ((lake, landing, "lake"), (landing, lake, field)):
            if inner.startswith(f"{outer}/"):
                message = f"{inner} is below {outer}: cleaning or lifecycle rules of one reach the files of the other"
                remedy = "give landing and lake folders beside each other"
                yield _setting(ROOTS_NESTED, name, message, remedy)


def _tiers(loaded: LoadedMetadata) -> Iterator[Problem]:
    """`FIELD_UNUSED`: a tier that no table has, with a name close to one that the package defines."""
    used = {spec.size for spec in loaded.tables}
    for name in sorted(loaded.tiers.keys() - used - DEFAULT_TIERS.keys()):
        near = difflib.get_close_matches(name, DEFAULT_TIERS, n=1)
        if near or not used - DEFAULT_TIERS.keys():
            remedy = f"did you mean {near[0]}?" if near else f"write size: {name} in a metadata row, or remove the tier"
            yield _setting(FIELD_UNUSED, f"tiers.{name}", f"no table has the size {name!r}", remedy)


def _unused(loaded: LoadedMetadata) -> Iterator[Problem]:
    """`FIELD_UNUSED`: a source or a catalog that no row names, such as a misspelt one."""
    named = {name for spec in loaded.tables for name in (spec.source, *spec.shards)}
    used = {"sources": named, "catalogs": {spec.catalog for spec in loaded.tables if spec.catalog is not None}}
    for section, declared in (("sources", loaded.landings), ("catalogs", loaded.catalogs)):
        for name in sorted(declared.keys() - used[section]) if loaded.tables and not loaded.problems else ():
            near = difflib.get_close_matches(name, used[section] - declared.keys(), n=1)
            one = section.removesuffix("s")
            remedy = f"did you mean {near[0]}?" if near else f"write {one}: {name} in a metadata row, or remove it"
            yield _setting(FIELD_UNUSED, f"{section}.{name}", f"no metadata row has this {one}", remedy)


def _without_effect(loaded: LoadedMetadata) -> Iterator[Problem]:
    """`FIELD_UNUSED`: a field that another one of the row would have to switch on."""
    if specs := [spec for spec in loaded.tables if spec.track_history_except and not spec.history]:
        message, remedy = "has no effect without history", "write history: true, or drop the field"
        yield _of_rows(loaded, specs, FIELD_UNUSED, "track_history_except", message, remedy)
    for spec in loaded.tables:
        if unused := lowered(spec.absent_columns) - lowered((*spec.mask, *spec.exclude_columns)):
            message = f"{', '.join(sorted(unused))}: neither mask nor exclude_columns names it"
            yield _of_rows(loaded, [spec], FIELD_UNUSED, "absent_columns", message, "name it as one of the two does")


def _steps(loaded: LoadedMetadata) -> Iterator[Problem]:
    """`CRON_STEP`: a step as long as its field's range, which fires once a range: `*/61` is hourly."""
    for schedule, specs in _by_schedule(loaded.tables).items():
        for text, (unit, limit) in zip(schedule.split(), _LIMITS, strict=False):
            if any(int(step) >= limit for step in _STEP.findall(text)):
                message = (
                    f"{text!r} of {schedule!r} fires at its first {unit} alone: a step starts anew with each range"
                )
                remedy = f"write one {unit} instead, or another schedule"
                yield _of_rows(loaded, specs, CRON_STEP, "schedule", message, remedy)


def _freshness(loaded: LoadedMetadata) -> Iterator[Problem]:
    """`FRESHNESS_TOO_SHORT`: a table is allowed to lag less than the time between its runs."""
    for spec in loaded.tables:
        if spec.trigger and spec.freshness and seconds(spec.freshness) < spec.look_seconds:
            message = f"polls are {spec.trigger} apart, more than freshness allows"
            remedy = f"raise freshness ({spec.freshness}), or poll the table more often"
            yield _of_rows(loaded, [spec], FRESHNESS_TOO_SHORT, "freshness", message, remedy)
    for schedule, specs in _by_schedule(loaded.tables).items():
        distance = longest_gap(CALENDAR.get(schedule, schedule).format(m=0))
        late = [spec for spec in specs if spec.freshness and seconds(spec.freshness) < distance]
        if late:
            message = f"runs of {schedule!r} are up to {distance / 3600:.3g} hours apart, more than freshness allows"
            remedy = f"raise freshness ({late[0].freshness}), or run the table more often"
            yield _of_rows(loaded, late, FRESHNESS_TOO_SHORT, "freshness", message, remedy)


def _masks(loaded: LoadedMetadata) -> Iterator[Problem]:
    """`MASK_GUESSABLE` for each table with columns under `hash`."""
    for spec in loaded.tables:
        if names := [column for column, method in spec.mask.items() if method == "hash"]:
            message = f"hash of {', '.join(map(repr, names))} can be guessed: 22,000 e-mail addresses take 0.04 s"
            remedy = (
                f"write hmac, and set GDDL_MASK_KEY where jobs run; see {documented('security.md', 'personal-data')}"
            )
            yield _of_rows(loaded, [spec], MASK_GUESSABLE, "mask", message, remedy)


def _connections(loaded: LoadedMetadata, environ: Mapping[str, str]) -> Iterator[Problem]:
    """`SOURCE_CONNECTION_REFUSED` for each connection that a job with this environment would refuse."""
    named: dict[str, list[TableSpec]] = {}
    for spec in loaded.tables:
        if name := spec.options.get("verify_connection"):
            named.setdefault(str(name), []).append(spec)
    for name, specs in named.items():
        try:
            require_lent(name, environ)
        except FatalError as error:
            yield _of_rows(loaded, specs, error.code, ("options", "verify_connection"), error.what, error.remedy)


def _by_schedule(tables: Sequence[TableSpec]) -> dict[str, list[TableSpec]]:
    """Tables with a cron line or a preset of the calendar, by it."""
    by_schedule: dict[str, list[TableSpec]] = {}
    for spec in tables:
        if isinstance(spec.cadence, str) and spec.cadence not in ("continuous", "@once"):
            by_schedule.setdefault(spec.cadence, []).append(spec)
    return by_schedule


def _of_rows(
    loaded: LoadedMetadata, specs: Sequence[TableSpec], code: Code, path: str | FieldPath, message: str, remedy: str
) -> Problem:
    """At the row of the first table; names the others that have it, too."""
    others = [spec.table for spec in specs[1:]]
    also = f" (also {few(others, _NAMED)})" if others else ""
    placed = loaded.placed(problem_at(specs[0], path, f"{message}{also}", remedy, code), specs[0].table)
    return replace(placed, value="")


def _setting(code: Code, field: str, message: str, remedy: str) -> Problem:
    return Problem(code=code, message=message, remedy=remedy, file=FILE, field=field)
