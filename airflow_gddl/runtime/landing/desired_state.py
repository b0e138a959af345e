"""Desired state of a pipeline's continuous job, kept equal to the metadata; see `contract.desired_state`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract.codec import to_document
from airflow_gddl.contract.desired_state import DesiredState, order_path, stop_path
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import standing_folder
from airflow_gddl.contract.spec import Roots
from airflow_gddl.stores import open_store

FRESH_SECONDS = 10.0
_LOG = logging.getLogger(__name__)


@dataclass
class DesiredStateKeeper:
    """Writes the desired state when it changes. One writer at a time, since a pipeline has one run at a time.

    Attributes:
        name: of the pipeline.
        fetch: the desired state by the current metadata; null: the metadata can't be read, or lacks the tables, so that
            the last written state holds. May raise any GddlError, which is logged.
        now: seconds, monotonic.
    """

    roots: Roots
    name: str
    fetch: Callable[[], DesiredState | None]
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    now: Callable[[], float] = time.monotonic
    _written: DesiredState | None = None
    _next: float = float("-inf")

    @property
    def folder(self) -> str:
        return standing_folder(self.roots.lake, self.name)

    @property
    def tables(self) -> frozenset[str] | None:
        """Tables of the last written state; null: none was written."""
        return None if self._written is None else frozenset(spec.table for spec in self._written.tables)

    def put(self, order: DesiredState) -> None:
        """
        Raises:
            GddlError: as `Store`.
        """
        open_store(self.environ).write(order_path(self.folder), to_document(order).encode())
        self._written, self._next = order, self.now() + FRESH_SECONDS

    def refresh(self) -> None:
        """Fetch, and write changes; rate-limited, and never raises."""
        if self.now() < self._next:
            return
        self._next = self.now() + FRESH_SECONDS
        try:
            order = self.fetch()
            if order is not None and order != self._written:
                self.put(order)
        except GddlError as error:
            _LOG.warning("the desired state of %s could not be updated: %s", self.name, error)

    def stop(self, run_id: str) -> None:
        """Ask the job of that id to finish its current batch and end.

        Raises:
            GddlError: as `Store`.
        """
        open_store(self.environ).write(stop_path(self.folder, run_id), b"")

    def remove(self) -> None:
        """Remove all objects: there will be no other job of this name. Failures are logged."""
        try:
            store = open_store(self.environ)
            store.delete(*(found.path for found in store.list(self.folder)))
        except GddlError as error:
            _LOG.warning("%s could not be removed: %s", self.folder, error)

    def forget(self, run_id: str) -> None:
        """Remove the stop request of a job that has ended.

        Raises:
            GddlError: as `Store`.
        """
        open_store(self.environ).delete(stop_path(self.folder, run_id))
