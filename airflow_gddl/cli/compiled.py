"""Compiled metadata for commands that run often."""

from __future__ import annotations

import time
from pathlib import Path

from airflow_gddl.cli.context import CliContext
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.runtime.snapshot import Directory, MetadataSnapshot, SnapshotSettings


def directory(cli: CliContext, folder: str) -> Directory | None:
    """A short row for every table; compiled again if the metadata has changed.

    Returns:
        null where rows are invalid, the metadata can't be read, or the cache can't be written.
    """
    cache = _cache(cli)
    if cache is None:
        return None
    place = folder if "://" in folder else str(Path(folder).absolute())
    # Commands need the current metadata: no settling time, and a remote folder is listed again.
    settings = SnapshotSettings(
        metadata=place, cache=cache, environ=cli.environ, clock=time.time, refresh_seconds=0.0, settle_seconds=0.0
    )
    try:
        serving = MetadataSnapshot.current(settings)
        good = serving.generation is not None and not serving.state.why and not serving.problems()
        return serving.directory() if good else None
    except (GddlError, OSError):
        return None


def _cache(cli: CliContext) -> Path | None:
    """Null where the environment names no cache folder."""
    given, home = cli.environ.get("XDG_CACHE_HOME"), cli.environ.get("HOME")
    if given:
        return Path(given, "gddl")
    return Path(home, ".cache", "gddl") if home else None
