"""Airflow's own configuration for this package, section `[gddl]`, and the snapshot it leads to."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gddl.capabilities import conf
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.provider import DEFAULTS
from airflow_gddl.snapshot import Snapshot, SnapshotSettings

if TYPE_CHECKING:
    from airflow_gddl.landing.following import Following

SECTION = "gddl"


def text(option: str) -> str:
    return str(conf.get(SECTION, option, fallback=DEFAULTS[option]) or "").strip()


def number(option: str) -> float:
    """
    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    try:
        return float(text(option))
    except ValueError as error:
        raise _wrong(option, "not a number", f"write e.g. {DEFAULTS[option]}") from error


def is_on(option: str) -> bool:
    return text(option).lower() in ("true", "1", "yes", "on", "t", "y")


def job_command() -> tuple[str, ...]:
    """Program and first arguments of the embedded job.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    written = text("job_command")
    if not written:
        return (sys.executable, "-m", "spark_jobs.main")
    try:
        command = json.loads(written)
    except ValueError:
        command = None
    if not isinstance(command, list) or not command or not all(isinstance(part, str) for part in command):
        raise _wrong("job_command", "not a JSON list of texts", 'write e.g. ["/opt/spark-venv/bin/gddl-job"]')
    return tuple(command)


def metadata_place(given: str | Path | None = None, beside: str | Path | None = None) -> str:
    """Where the metadata is: as given, as configured, or a folder `metadata` beside a DAG file or beside its folder."""
    chosen = str(given or text("metadata") or os.environ.get("GDDL_METADATA", ""))
    if not chosen:
        near = Path(beside).resolve().parent if beside else Path.cwd()
        found = (place for place in (near / "metadata", near.parent / "metadata") if place.is_dir())
        chosen = str(next(found, near / "metadata"))
    return chosen.rstrip("/") if "://" in chosen else str(Path(chosen).absolute())


def dags_folder() -> str:
    return str(conf.get("core", "dags_folder"))


def snapshot(metadata: str) -> Snapshot:
    """The snapshot that serves now.

    Raises:
        FatalError: `CACHE_UNUSABLE`.
    """
    cache = text("cache_dir") or str(Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "gddl")
    return Snapshot.current(
        SnapshotSettings(
            metadata=metadata,
            cache=Path(cache),
            environ=os.environ,
            clock=time.time,
            refresh_seconds=number("refresh_seconds"),
        )
    )


def following() -> Following | None:
    """Where news of files come from; null: from listing the landing folders."""
    url = text("events_queue")
    return _following(url, number("full_listing_seconds")) if url else None


@functools.cache
def _following(url: str, full_listing_seconds: float) -> Following:
    from airflow_gddl.landing.following import Following  # noqa: PLC0415 - DAG files, parsed often, need no queue
    from airflow_gddl.landing.queue import SqsQueue  # noqa: PLC0415 - as above

    return Following(queue=SqsQueue(url), full_listing_seconds=full_listing_seconds)


def _wrong(option: str, what: str, remedy: str) -> MetadataError:
    where = f"[{SECTION}] {option}"
    return MetadataError("OPTION_INVALID", f"{what}: {text(option)!r:.80}", where=where, remedy=remedy)
