"""Short Delta logs: whoever opens a table reads what came since its last checkpoint, and each run of a table opens it.

`deltalake` itself makes a checkpoint every hundred commits and looks for expired ones at each.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable, PostCommitHookProperties

COMMITS_PER_CHECKPOINT = 10
"""As Spark's Delta does, unless the table says otherwise."""
COMMITS_PER_CLEANUP = 1000
"""Looking for expired commits lists the whole log: on S3 a call for each thousand."""
LEFT_TO_US = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

_INTERVAL = "delta.checkpointInterval"
_CLEANUP = "delta.enableExpiredLogCleanup"
_LOG = logging.getLogger(__name__)


def keep_log_short(delta: DeltaTable) -> None:
    """After a commit, where it is time: a checkpoint of the version before it, and now and then expired commits go.

    Of the version before, for this one would have to be read first. What goes wrong is told to the log alone: the
    commit stands, and the next checkpoint does for this one too.

    Args:
        delta: at the version before, as the handle is that the commit was made with.
    """
    settings, number = delta.metadata().configuration, delta.version() + 1
    interval = _interval(settings)
    if number % interval:
        return
    try:
        delta.create_checkpoint()
        if number % COMMITS_PER_CLEANUP < interval and str(settings.get(_CLEANUP, "true")).lower() == "true":
            delta.cleanup_metadata()
    except Exception as error:  # noqa: BLE001 - whatever it was, the commit is made
        _LOG.warning("no checkpoint of %s at version %d: %s", delta.table_uri, delta.version(), error)


def _interval(settings: Mapping[str, Any]) -> int:
    told = str(settings.get(_INTERVAL) or "")
    return int(told) if told.isdecimal() and int(told) else COMMITS_PER_CHECKPOINT
