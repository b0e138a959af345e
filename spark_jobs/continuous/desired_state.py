"""Requests to a running job: new rows, and to stop. See `airflow_gddl.contract.desired_state`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from airflow_gddl.contract import codec
from airflow_gddl.contract.desired_state import ORDER, DesiredState, stop_name
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import Storage
from spark_jobs.job.stop import Stop

POLL_SECONDS = 5.0
_LOG = logging.getLogger(__name__)


@dataclass
class DesiredStateReader:
    """The job's current spec. A folder that can't be read changes nothing: the last state stays valid.

    Attributes:
        now: seconds, monotonic.
    """

    job: JobSpec
    storage: Storage
    stop: Stop
    now: Callable[[], float]
    _read: str | None = None
    _next: float = field(default=float("-inf"))

    def poll(self) -> bool:
        """Whether the job's tables or tiers have changed; read every few seconds, with requests to stop."""
        folder = self.job.options.continuous.folder if self.job.options.continuous is not None else ""
        if not folder or self.now() < self._next:
            return False
        self._next = self.now() + POLL_SECONDS
        try:
            found = {item.name: item for item in self.storage.list(folder)}
            if stop_name(self.job.run_id) in found:
                self.stop.ask("the word to stop")
            if ORDER not in found or found[ORDER].etag == self._read:
                return False
            order = codec.from_json(DesiredState, self.storage.read(found[ORDER].path).decode())
        except (GddlError, FileNotFoundError, UnicodeDecodeError) as error:
            _LOG.warning("the desired state can't be read, the previous one stays valid: %s", error)
            return False
        self._read = found[ORDER].etag
        before, self.job = (
            self.job,
            replace(self.job, tables=order.tables, tiers=order.tiers, catalogs=order.catalogs, access=order.access),
        )
        return before != self.job
