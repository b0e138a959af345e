"""Checks of a spec with valid types: the contract's checks, and those that need the catalog."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from croniter import croniter
from croniter.croniter import CroniterError

from airflow_gddl.contract.checks import check_table, check_values
from airflow_gddl.contract.errors import FatalError, SpecProblem
from airflow_gddl.contract.extensions import DIALECTS
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.expression_text import expression_problems
from airflow_gddl.metadata.validation import TABLE, options_of

PRESETS = ("@once", "@hourly", "@daily", "@weekly", "@monthly", "@yearly", "continuous")
_CRON_REMEDY = f"write five cron fields, e.g. '*/15 * * * *', or one of {', '.join(PRESETS)}, or null for none"
_CRON_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_RANDOM = re.compile(r"[HhRr]([(/,]|$)")
# A fixed start: whether a cron line ever fires must not depend on the day of the parse.
_START = datetime(2024, 1, 1, tzinfo=UTC)


def check_spec(spec: TableSpec, tiers: Collection[str]) -> tuple[SpecProblem, ...]:
    """All problems of one row, independent of other rows."""
    return (*check_table(spec), *expression_problems(spec), *_fields(spec, tiers))


def check_defaults(defaults: Mapping[str, Any], tiers: Collection[str]) -> tuple[SpecProblem, ...]:
    """All problems of a `defaults` section, independent of rows."""
    for name in ("table", "keys"):
        if name in defaults:
            remedy = "move it into each row"
            message = "not a default: every table has its own"
            return (SpecProblem("FIELD_REFUSED", (name,), defaults[name], message, remedy),)
    spec = TABLE.build({**defaults, "table": "schema.name", "keys": ["id"]})
    return (
        (*check_values(spec), *expression_problems(spec), *_fields(spec, tiers))
        if isinstance(spec, TableSpec)
        else spec
    )


def _fields(spec: TableSpec, tiers: Collection[str]) -> Iterator[SpecProblem]:
    if spec.size not in tiers:
        remedy = f"write one of {', '.join(tiers)}, or add the tier to gddl.yaml under tiers"
        yield SpecProblem("SIZE_UNKNOWN", ("size",), spec.size, "no such tier", remedy)
    yield from _schedule(spec)
    if spec.dialect not in DIALECTS.built_in and spec.dialect not in DIALECTS.names():
        allowed = " or ".join(map(repr, DIALECTS.names()))
        remedy = f"write one of {allowed}, or install the package that provides it"
        yield SpecProblem("FIELD_VALUE", ("dialect",), spec.dialect, f"must be {allowed}", remedy)
    elif spec.options or spec.dialect not in DIALECTS.built_in:
        yield from _options(spec)


def _options(spec: TableSpec) -> Iterator[SpecProblem]:
    try:
        shape = options_of(spec.dialect)
    except FatalError as error:
        yield SpecProblem(error.code, ("dialect",), spec.dialect, error.what, error.remedy)
        return
    options = shape.build(spec.options, ("options",))
    yield from options if isinstance(options, tuple) else ()


def _schedule(spec: TableSpec) -> Iterator[SpecProblem]:
    schedule = spec.schedule
    if isinstance(schedule, str):
        if fault := cron_fault(schedule):
            near = difflib.get_close_matches(schedule.lower(), PRESETS, n=1, cutoff=0.8)
            remedy = f"did you mean '{near[0]}'? Else {_CRON_REMEDY}" if near else _CRON_REMEDY
            yield SpecProblem("CRON_INVALID", ("schedule",), schedule, fault, remedy)
    elif schedule is not None:
        names = schedule.get("assets", ())
        if set(schedule) != {"assets"} or not names or not all(name.strip() for name in names):
            message = "a mapping here has assets alone, with at least one name"
            meant = difflib.get_close_matches(next(iter(schedule), ""), ("assets",), n=1)
            remedy = f"{'did you mean assets? ' if meant and meant[0] not in schedule else ''}write {{assets: [name]}}"
            yield SpecProblem("SCHEDULE_INVALID", ("schedule",), schedule, message, remedy)


@functools.lru_cache(maxsize=4096)
def cron_fault(schedule: str) -> str:
    """Why this text is not a schedule; empty when it is one."""
    if schedule in PRESETS:
        return ""
    if schedule.startswith("@"):
        return "no such preset"
    cells = schedule.split()
    if len(cells) != 5:
        return "neither a preset nor five cron fields"
    if any(_RANDOM.match(cell) for cell in cells):
        return "H and R give a different time in each parse"
    try:
        croniter(schedule, _START).get_next()
    except (CroniterError, ValueError, TypeError, KeyError, IndexError, OverflowError):
        return next(_out_of_range(cells), "not a cron line that ever fires")
    return ""


def _out_of_range(cells: Sequence[str]) -> Iterator[str]:
    """What a cell of five holds that its field can't be."""
    for cell, (name, least, most) in zip(cells, _CRON_FIELDS, strict=True):
        for part in cell.split(","):
            span, _, step = part.partition("/")
            for number in (int(text) for text in span.split("-") if text.isdecimal()):
                if not least <= number <= most:
                    yield f"the {name} {number} is {f'above {most}' if number > most else f'below {least}'}"
            if step == "0":
                yield f"the {name} has a step of 0"
