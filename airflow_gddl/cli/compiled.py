"""The metadata as it was compiled when it last changed: for commands that are asked again and again."""

from __future__ import annotations

import time
from pathlib import Path

from airflow_gddl.cli.context import CliContext
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.runtime.snapshot import Directory, MetadataSnapshot, SnapshotSettings


def directory(around: CliContext, folder: str) -> Directory | None:
    """Every table in a short row; compiled now if the metadata has changed since the last time.

    Returns:
        null where rows are wrong, the metadata can't be read, or nothing can be kept: whoever reads all of it tells.
    """
    cache = _cache(around)
    if cache is None:
        return None
    place = folder if "://" in folder else str(Path(folder).absolute())
    # Whoever asks wants it as it is now: nothing is left to settle, and a remote folder is listed anew.
    settings = SnapshotSettings(
        metadata=place, cache=cache, environ=around.environ, clock=time.time, refresh_seconds=0.0, settle_seconds=0.0
    )
    try:
        serving = MetadataSnapshot.current(settings)
        good = serving.generation is not None and not serving.state.why and not serving.problems()
        return serving.directory() if good else None
    except (GddlError, OSError):
        return None


def _cache(around: CliContext) -> Path | None:
    """Null where the environment names no place for it."""
    given, home = around.environ.get("XDG_CACHE_HOME"), around.environ.get("HOME")
    if given:
        return Path(given, "gddl")
    return Path(home, ".cache", "gddl") if home else None
