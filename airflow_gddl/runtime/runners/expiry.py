"""Removes old submissions: they are needed only while their task can be retried."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from airflow_gddl.contract.codec import from_json
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import answers_folder, join, order_path
from airflow_gddl.runtime.runners.attempts import Submission, submissions_folder
from airflow_gddl.stores import Storage, StoredObject

DAY = 86400.0
KEPT_SECONDS = 30 * DAY
"""Longer than any run may take and than a task is retried."""
MOST = 200
"""Maximum number of tasks removed by one call; the next one continues."""
_MARK = "forgotten.json"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Forgetting:
    """Submissions of one pipeline.

    Attributes:
        now: seconds since the epoch.
    """

    store: Storage
    lake: str
    pipeline: str
    now: float

    def once_a_day(self) -> int:
        """Remove submissions older than `KEPT_SECONDS`, once a day; return the number of tasks.

        Errors of the store are logged, and removal is retried the next day.
        """
        try:
            if self.now - self._last() < DAY:
                return 0
            # Written first, so that only one of several tasks that end together lists.
            self.store.write(self._mark, str(int(self.now)).encode())
            old = self._old()
            for paths in old:
                self._forget(paths)
            return len(old)
        except GddlError as error:
            _LOG.warning("old submissions of %s could not be removed: %s", self.pipeline, error)
            return 0

    @property
    def _folder(self) -> str:
        return submissions_folder(self.lake, self.pipeline)

    @property
    def _mark(self) -> str:
        return join(self._folder, _MARK)

    def _last(self) -> float:
        try:
            return float(self.store.read(self._mark))
        except (FileNotFoundError, ValueError):
            return 0.0

    def _old(self) -> list[list[str]]:
        """Paths of the objects of each task that has no younger one."""
        tasks: dict[str, list[StoredObject]] = {}
        for found in self.store.list(self._folder):
            digest, slash, _ = found.name.partition("/")
            if slash:
                tasks.setdefault(digest, []).append(found)
        before = self.now - KEPT_SECONDS
        ages = {digest: max(item.modified for item in found) for digest, found in tasks.items()}
        old = sorted((digest for digest, age in ages.items() if age < before), key=lambda digest: ages[digest])
        return [sorted(item.path for item in tasks[digest]) for digest in old[:MOST]]

    def _forget(self, records: list[str]) -> None:
        """Remove a task's jobs, then its records, specs last: after a crash in between, the rest is still found."""
        orders = [path for path in records if path.endswith("-order.json")]
        for order in orders:
            self._forget_job(order)
        self.store.delete(*(path for path in records if path not in orders))
        self.store.delete(*orders)

    def _forget_job(self, order: str) -> None:
        try:
            run_id = from_json(Submission, self.store.read(order).decode(errors="replace")).run_id
        except FileNotFoundError:
            return
        except GddlError as error:
            if error.code != "SPEC_INVALID":
                raise
            return
        folder = answers_folder(self.lake, run_id)
        self.store.delete(*(found.path for found in self.store.list(folder)))
        self.store.delete(order_path(self.lake, run_id))
