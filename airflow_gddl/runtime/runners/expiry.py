"""Removes old submissions: they are needed only while their task can be retried."""

from __future__ import annotations

import logging

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import answers_folder, join, order_path
from airflow_gddl.runtime.runners.attempts import Submission, submissions_folder
from airflow_gddl.stores import Storage, StoredObject, read_document

DAY = 86400.0
KEPT_SECONDS = 30 * DAY
"""Longer than any run may take and than a task is retried."""
MOST = 200
"""Maximum number of tasks removed by one call; the next one continues."""
_MARK = "forgotten.json"
_LOG = logging.getLogger(__name__)


def forget_old(store: Storage, lake: str, pipeline: str, now: float) -> int:
    """Remove submissions of a pipeline older than `KEPT_SECONDS`, once a day; return the number of tasks.

    Errors of the store are logged, and removal is retried the next day.

    Args:
        now: seconds since the epoch.
    """
    folder = submissions_folder(lake, pipeline)
    mark = join(folder, _MARK)
    try:
        if now - _last(store, mark) < DAY:
            return 0
        # Written first, so that only one of several tasks that end together lists.
        store.write(mark, str(int(now)).encode())
        old = _older(store, folder, now - KEPT_SECONDS)
        for paths in old:
            _forget(store, lake, paths)
        return len(old)
    except GddlError as error:
        _LOG.warning("old submissions of %s could not be removed: %s", pipeline, error)
        return 0


def _last(store: Storage, mark: str) -> float:
    try:
        return float(store.read(mark))
    except (FileNotFoundError, ValueError):
        return 0.0


def _older(store: Storage, folder: str, before: float) -> list[list[str]]:
    """Paths of the objects of each task that has no younger one."""
    tasks: dict[str, list[StoredObject]] = {}
    for found in store.list(folder):
        digest, slash, _ = found.name.partition("/")
        if slash:
            tasks.setdefault(digest, []).append(found)
    ages = {digest: max(item.modified for item in found) for digest, found in tasks.items()}
    old = sorted((digest for digest, age in ages.items() if age < before), key=lambda digest: ages[digest])
    return [sorted(item.path for item in tasks[digest]) for digest in old[:MOST]]


def _forget(store: Storage, lake: str, records: list[str]) -> None:
    """Remove a task's jobs, then its records, specs last: after a crash in between, the rest is still found."""
    orders = [path for path in records if path.endswith("-order.json")]
    for order in orders:
        _forget_job(store, lake, order)
    store.delete(*(path for path in records if path not in orders))
    store.delete(*orders)


def _forget_job(store: Storage, lake: str, order: str) -> None:
    submission = read_document(store, order, Submission)
    if submission is not None:
        store.delete(*(found.path for found in store.list(answers_folder(lake, submission.run_id))))
        store.delete(order_path(lake, submission.run_id))
