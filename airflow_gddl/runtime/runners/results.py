"""Results that a remote job has written, one object for each table."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_gddl.contract.layout import answers_folder
from airflow_gddl.contract.result import JobResult
from airflow_gddl.stores import Storage, read_document


class ResultReader:
    """Results of one job; each is returned once, unless it was replaced.

    Raises (every method):
        RetriableError: `STORAGE_BUSY`.
    """

    def __init__(self, store: Storage, lake: str, run_id: str) -> None:
        self._store, self._folder = store, answers_folder(lake, run_id)
        self._seen: set[tuple[str, str]] = set()

    def new(self) -> Iterator[JobResult]:
        """Results written since the last poll; objects that are not a JobResult are skipped."""
        for found in sorted(self._store.list(self._folder), key=lambda found: found.name):
            if (found.name, found.etag) in self._seen or not found.name.endswith(".json"):
                continue
            self._seen.add((found.name, found.etag))
            result = read_document(self._store, found.path, JobResult)
            if result is not None:
                yield result
