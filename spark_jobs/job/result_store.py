"""Results in the lake, for jobs whose standard output the submitter can't read."""

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
    """The results of one job. The reader submits a table again if its result could not be written."""

    storage: Storage
    folder: str
    is_continuous: bool = False
    clock: Callable[[], float] = time.monotonic
    _done: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, job: JobSpec, storage: Storage) -> ResultStore:
        return cls(storage, answers_folder(job.roots.lake, job.run_id), job.options.continuous is not None)

    def put(self, result: JobResult) -> None:
        """If a platform starts the same job twice, an idle result does not replace that of a load."""
        path = join(self.folder, answer_name(result.table))
        data = codec.to_json(result).encode()
        if self.is_continuous and self._is_too_soon(result):
            return
        try:
            keeps = result.status == "skipped" and not self.is_continuous
            if keeps and (self.storage.create(path, data) or not self._is_failed(path)):
                return
            self.storage.write(path, data)
        except GddlError as error:
            _LOG.warning("the result of %s could not be written: %s", result.table, error)

    def _is_too_soon(self, result: JobResult) -> bool:
        """Whether an idle result of a continuous job would replace a result that may not have been read."""
        if result.status != "skipped":
            self._done[result.table] = self.clock()
        return result.status == "skipped" and self.clock() - self._done.get(result.table, float("-inf")) < _READ_WITHIN

    def _is_failed(self, path: str) -> bool:
        try:
            return bool(json.loads(self.storage.read(path)).get("status") == "failed")
        except (FileNotFoundError, ValueError):
            return True
