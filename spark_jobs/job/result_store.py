"""Results put where whoever ordered the job can read them: for jobs whose standard output nobody hears."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_gddl.contract import codec
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import answer_name, answers_folder, join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import Storage

_READ_WITHIN = 90.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResultStore:
    """The answers of one job. What can't be put down is missed by the reader, who then orders the table again."""

    storage: Storage
    folder: str
    is_continuous: bool = False
    clock: Callable[[], float] = time.monotonic
    _done: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, job: JobSpec, storage: Storage) -> ResultStore:
        return cls(storage, answers_folder(job.roots.lake, job.run_id), job.options.continuous is not None)

    def put(self, result: JobResult) -> None:
        """Where a platform starts the same job twice, that a table had nothing new does not hide what was loaded."""
        path = join(self.folder, answer_name(result.table))
        data = codec.to_json(result).encode()
        if self.is_continuous and self._is_too_soon(result):
            return
        try:
            keeps = result.status == "skipped" and not self.is_continuous
            if keeps and not self.storage.create(path, data) and not self._is_failed(path):
                return
            self.storage.write(path, data)
        except GddlError as error:
            _LOG.warning("the result of %s could not be put down: %s", result.table, error)

    def _is_too_soon(self, result: JobResult) -> bool:
        """Of a continuous job, an idle look is told too, but not over a result that may not have been read yet."""
        if result.status != "skipped":
            self._done[result.table] = self.clock()
        return result.status == "skipped" and self.clock() - self._done.get(result.table, float("-inf")) < _READ_WITHIN

    def _is_failed(self, path: str) -> bool:
        try:
            return bool(json.loads(self.storage.read(path)).get("status") == "failed")
        except (FileNotFoundError, ValueError):
            return True
