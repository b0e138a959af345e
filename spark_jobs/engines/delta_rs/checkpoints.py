"""Checkpoints and log clean-up: opening a table reads all commits since its last checkpoint, and each run opens it.

`deltalake` itself makes a checkpoint every hundred commits and searches expired ones each time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable

COMMITS_PER_CHECKPOINT = 10
"""Default of Delta on Spark, unless the table sets an interval."""
COMMITS_PER_CLEANUP = 100
"""A search for expired commits lists the whole log: on S3 one call per thousand."""

_INTERVAL = "delta.checkpointInterval"
_CLEANUP = "delta.enableExpiredLogCleanup"
_LOG = logging.getLogger(__name__)


def keep_log_short(delta: DeltaTable) -> None:
    """After a commit, if due: write a checkpoint of the version before it, and remove expired commits now and then.

    The version before is at hand; this one would have to be read first. Failures are only logged: the
    commit is made, and the next checkpoint covers this one.

    Args:
        delta: at the version before, the handle that made the commit.
    """
    settings, number = delta.metadata().configuration, delta.version() + 1
    interval = _interval(settings)
    if number % interval:
        return
    try:
        delta.create_checkpoint()
        if number % COMMITS_PER_CLEANUP < interval and str(settings.get(_CLEANUP, "true")).lower() == "true":
            delta.cleanup_metadata()
    except Exception as error:  # noqa: BLE001 - the commit is made in any case
        _LOG.warning("no checkpoint of %s at version %d: %s", delta.table_uri, delta.version(), error)


def _interval(settings: Mapping[str, Any]) -> int:
    interval = str(settings.get(_INTERVAL) or "")
    return int(interval) if interval.isdecimal() and int(interval) else COMMITS_PER_CHECKPOINT
