"""Waits in a user's own DAG until tables are up to date."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseSensorOperator, Context

_SHOWN = 20


class GddlSensor(BaseSensorOperator):
    """Waits until the replicas of tables hold everything that had landed at a moment; it starts no load.

    Args:
        tables: names, `schema.name`; a text is split at commas and blanks.
        select, exclude: selectors of tables, see `GddlLoadOperator`.
        as_of: ISO 8601; the moment, e.g. `{{ data_interval_end }}`; None: when the run was queued.
        metadata: folder or `s3://` URL; None: as for the DAGs, from the configuration.
        mode: `reschedule` by default, so that it holds no slot between two polls.
    """

    template_fields: Sequence[str] = ("tables", "select", "exclude", "as_of", "metadata")
    ui_color = "#dcefe6"

    def __init__(
        self,
        *,
        tables: Sequence[str] | str = (),
        select: Sequence[str] | str = (),
        exclude: Sequence[str] | str = (),
        as_of: str = "{{ dag_run.queued_at or dag_run.start_date }}",
        metadata: str | None = None,
        mode: str = "reschedule",
        **kwargs: Any,
    ) -> None:
        super().__init__(mode=mode, **kwargs)
        self.tables = tables
        self.select = select
        self.exclude = exclude
        self.as_of = as_of
        self.metadata = metadata

    def poke(self, context: Context) -> bool:  # noqa: ARG002 - Airflow's signature
        """
        Raises:
            AirflowFailException: no such table, or one that nothing loads.
            AirflowException: the lake or the metadata can't be read.
        """
        from airflow_gddl.reporting.results import airflow_errors  # noqa: PLC0415 - imported when needed

        with airflow_errors():
            waits = self._behind()
        for line in waits[:_SHOWN]:
            self.log.info("%s", line)
        return not waits

    def _behind(self) -> list[str]:
        """A line for each table that is not up to date."""
        from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed
        from airflow_gddl.runtime.landing.run_request import loaded_by, moment_in, requested  # noqa: PLC0415 - as above
        from airflow_gddl.runtime.state.lake_state import StateReader, table_statuses  # noqa: PLC0415 - as above

        directory = configuration.directory_of(configuration.own_metadata_place(self.metadata))
        homes = loaded_by(requested(directory, self.tables, self.select, self.exclude), directory)
        rows = [row for row in directory.rows if row.table in homes]
        known = StateReader(directory.roots.lake, time.time, configuration.environ_of(directory)).required()
        moment = moment_in(f"as_of {self.as_of!r}", self.as_of, "{{ data_interval_end }}")
        late_rows = [one for one in table_statuses(rows, known, time.time()) if (one.as_of or 0.0) < moment]
        return [_line(one.row.table, one.as_of, one.record.error if one.failed else None) for one in late_rows]


def _line(table: str, as_of: float | None, error: str | None) -> str:
    known = "was never loaded" if as_of is None else f"is as of {datetime.fromtimestamp(as_of, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"{table} {known}" + (f"; its last run failed: {error}" if error else "")
