"""Schedules of pipelines: the row's schedule, with presets spread over the hour."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_gddl.metadata.topology.placement import number

Schedule = str | Mapping[str, tuple[str, ...]] | None
_CRONS = {
    "@hourly": "{m} * * * *",
    "@daily": "{m} 0 * * *",
    "@weekly": "{m} 0 * * 0",
    "@monthly": "{m} 0 1 * *",
    "@yearly": "{m} 0 1 1 *",
}


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Schedule of a pipeline.

    Attributes:
        kind: `never` runs only manually.
        cron: five fields; empty for the other kinds.
        written: the row's own text; empty for the other kinds.
        assets: names or URIs whose updates, all of them, start a run; empty for the other kinds.
    """

    kind: Literal["cron", "once", "continuous", "assets", "never"]
    cron: str = ""
    written: str = ""
    assets: tuple[str, ...] = ()


def timing(schedule: Schedule, dag_id: str) -> Timing:
    """A row's schedule as a timing; a preset's minute is the DAG id's own, an explicit cron line stays as it is."""
    if schedule is None:
        return Timing(kind="never")
    if not isinstance(schedule, str):
        return Timing(kind="assets", assets=tuple(sorted(set(schedule["assets"]))))
    if schedule in ("continuous", "@once"):
        return Timing(kind="continuous" if schedule == "continuous" else "once")
    cron = _CRONS.get(schedule, schedule).format(m=number(dag_id, 60))
    return Timing(kind="cron", cron=cron, written=schedule)


def slug(schedule: Schedule) -> str:
    """A short unique name of a schedule for DAG ids."""
    if schedule is None:
        return "manual"
    if isinstance(schedule, str):
        plain = schedule.removeprefix("@")
        return plain if plain.isalpha() else f"cron-{_cron_words(plain)}"
    names = sorted(set(schedule["assets"]))
    return f"assets-{_short_hash(chr(10).join(names))}"


def _cron_words(cron: str) -> str:
    """`*/15 * * * *` as `x-15_x_x_x_x-1f2e3d`: the hash says what the letters can't."""
    words = "_".join(re.sub(r"[^A-Za-z0-9]+", "-", field.replace("*", "x")) for field in cron.split())
    return f"{words[:40]}-{_short_hash(' '.join(cron.split()))}"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
