"""`gddl check`: what Airflow's configuration, or an environment of MWAA, lets run at once, against what rows need."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from airflow_gddl.capacity.commands import metadata_of
from airflow_gddl.capacity.day import busiest
from airflow_gddl.capacity.parallelism import (
    ACTIVE_RUNS,
    ACTIVE_TASKS,
    CAPACITY,
    PARALLELISM,
    WORKER_TASKS,
    GivenSettings,
    parallelism_of,
    shortfalls,
)
from airflow_gddl.capacity.plan import UPKEEP_DAGS
from airflow_gddl.capacity.rules import AIRFLOW, MWAA, figures_of
from airflow_gddl.cli import airflow_home
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.metadata.loading import LoadedMetadata

SHORT_CODE = "PARALLELISM_SHORT"
_DEFAULTS = {PARALLELISM: 32, ACTIVE_TASKS: 16, ACTIVE_RUNS: 8, CAPACITY: 1_000}
"""Of Airflow 3 and of this package."""
_HIDDEN = ("cmd", "secret")
"""Suffixes of options that tell where the value is found, which is not looked at."""
_AUTOSCALE = "celery.worker_autoscale"
_OLD_CAPACITY = "triggerer.default_capacity"


def of_airflow(environ: Mapping[str, str]) -> GivenSettings:
    """The Airflow of this Python, by its variables and its file.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    values = {
        name: _number(name, _written(environ, name)) or usual
        for name, usual in _DEFAULTS.items()
        if not any(_written(environ, f"{name}_{kind}") for kind in _HIDDEN)
    }
    if PARALLELISM in values and _written(environ, "core.executor") in ("", "LocalExecutor"):
        values[WORKER_TASKS] = values[PARALLELISM]
    is_deferrable = _written(environ, "gddl.deferrable").lower() != "false"
    return GivenSettings(where="Airflow's configuration", values=values, deferrable=is_deferrable)


def _written(environ: Mapping[str, str], name: str) -> str:
    section, _, option = name.partition(".")
    return airflow_home.written(environ, section, option).strip()


def _number(name: str, text: str) -> int | None:
    """Null: it is not set."""
    if not text:
        return None
    if not text.isdigit():
        raise MetadataError("OPTION_INVALID", f"{name} is {text!r}, not a number", remedy="write digits, e.g. 32")
    return int(text)


def of_mwaa(text: str) -> GivenSettings:
    """An environment of MWAA.

    Options that it does not set have values that AWS chooses; the number of triggers of a triggerer is one of them.

    Args:
        text: what `aws mwaa get-environment` prints.

    Raises:
        MetadataError: `MWAA_ENVIRONMENT_INVALID`, `OPTION_INVALID`.
    """
    try:
        found: Mapping[str, Any] = json.loads(text)["Environment"]
        name, made = str(found["Name"]), MWAA[str(found["EnvironmentClass"])]
        workers, schedulers = int(found["MaxWorkers"]), int(found["Schedulers"])
        options = {str(key): str(value) for key, value in (found.get("AirflowConfigurationOptions") or {}).items()}
        if min(workers, schedulers) < 1:
            raise ValueError(f"MaxWorkers is {workers}, Schedulers is {schedulers}")  # noqa: TRY301 - told as the others
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        what = f"no answer of `aws mwaa get-environment`: {type(error).__name__}: {error}"
        remedy = "give the whole JSON that `aws mwaa get-environment --name NAME` prints"
        raise MetadataError("MWAA_ENVIRONMENT_INVALID", what, remedy=remedy) from error
    most, _, _ = options.get(_AUTOSCALE, "").partition(",")
    each = _number(_AUTOSCALE, most.strip()) or made.tasks
    options.setdefault(CAPACITY, options.get(_OLD_CAPACITY, ""))
    options.setdefault(ACTIVE_RUNS, str(_DEFAULTS[ACTIVE_RUNS]))
    numbers = {key: _number(key, options.get(key, "").strip()) for key in _DEFAULTS}
    return GivenSettings(
        where=f"MWAA's environment {name}",
        values={**{key: value for key, value in numbers.items() if value is not None}, WORKER_TASKS: workers * each},
        schedulers=schedulers,
        deferrable=options.get("gddl.deferrable", "True").strip().lower() != "false",
        dags=made.dags,
    )


def read_environment(place: str) -> GivenSettings:
    """
    Args:
        place: a file with the answer of `aws mwaa get-environment`; `-`: standard input.

    Raises:
        MetadataError: as `of_mwaa`.
    """
    try:
        text = sys.stdin.read() if place == "-" else Path(place).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"aws mwaa get-environment --name NAME > {place}"
        raise MetadataError("MWAA_ENVIRONMENT_INVALID", str(error), where=place, remedy=remedy) from error
    return of_mwaa(text)


def compared(loaded: LoadedMetadata, given: GivenSettings, today: date) -> tuple[bool, str]:
    """Whether that is enough for the busiest day, and the finding."""
    metadata = metadata_of(loaded)
    if not metadata.pipelines:
        return True, f"{given.where}: no enabled table"
    day = busiest(metadata, today)
    dags = len(metadata.pipelines) + UPKEEP_DAGS
    figures = {figure.name: figure for figure in figures_of(day, AIRFLOW, dags)}
    needed = parallelism_of(day, figures, given.schedulers, deferrable=given.deferrable)
    short = [
        f"{one.setting} is {given.values[one.setting]:,}, at least {one.least:,}" for one in shortfalls(needed, given)
    ]
    if given.dags is not None and dags > given.dags:
        short.append(f"its class is documented for {given.dags:,} DAGs, there are {dags:,}")
    if short:
        remedy = "raise them, or lower `slots` and spread schedules; `gddl plan` says what needs them"
        return False, f"[{SHORT_CODE}] {given.where}: {'; '.join(short)}: runs wait for each other. Remedy: {remedy}"
    known = [one.setting for one in needed.needs if one.setting in given.values]
    unknown = [one.setting for one in needed.needs if one.setting not in given.values]
    rest = f"; not known: {', '.join(unknown)}" if unknown else ""
    return True, f"{given.where} is enough: {', '.join(known)}{rest}"
