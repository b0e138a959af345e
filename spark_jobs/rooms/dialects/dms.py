"""AWS DMS: rows as parquet or CSV with an operation column; its file names are in `contract.file_names`.

Flat names and the date sequences that begin with the year sort by time: one listing from a name on. The others
(`MMYYYYDD`, `DDMMYYYY`) don't: a listing for each day. Full-load files sort after digits either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal

from airflow_gddl.contract.codes import COLUMN_NAME_RESERVED, FILE_EMPTY, KEY_COLUMN_MISSING
from airflow_gddl.contract.errors import FatalError, QuarantinableError
from airflow_gddl.contract.extensions import COMMIT_TIMES, DATES_IN_ORDER, TOTAL_ORDER, DmsOptions, date_folder
from airflow_gddl.contract.file_names import Names, change_time, classify, is_of_snapshot, repeated_hour, timed_order
from airflow_gddl.contract.names import SOURCE_SUFFIX, landed_name, renamed
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rooms.dialects.probe import CARRIED, is_text, probe, without_rows
from spark_jobs.rooms.dialects.protocol import EVERYTHING, Dialect, InputOpener, Probed, Window, match

SEQUENCE = TOTAL_ORDER[0]
_DAY = timedelta(days=1)
_MOST_DAYS = 60
_AFTER_DIGITS = ":"


def name_in_files(column: str, operation: str) -> str:
    """The name of a source's column in files: another one where change files add a column of its name.

    Args:
        operation: name of the column that holds the operation.
    """
    is_taken = column.lower() == operation.lower() or column.lower().startswith("ar_h_")
    return column + SOURCE_SUFFIX if is_taken else column


@dataclass(frozen=True)
class DmsDialect(Dialect):
    """See `Dialect`."""

    options: DmsOptions

    title = "DMS"
    malformed = "the line has more or fewer fields than columns, or a quotation mark that RFC 4180 does not allow"
    total_order = TOTAL_ORDER

    def classify(self, relative_path: str) -> Names | None:
        """Files of an hour that a clock goes through twice have no order by their names: their modification decides."""
        names = classify(relative_path)
        hour = self._repeated(relative_path) if names is not None and names[0] == "change" else None
        return names if names is None or hour is None else (*names[:2], (hour,))

    def file_order(self, path: str) -> str | None:
        """By the time in the name; files of an hour that a clock goes through twice share one place."""
        return self._repeated(path) or timed_order(path)

    def _repeated(self, path: str) -> str | None:
        """The hour of a name in local time, where it comes twice. Without folders of dates names are in UTC."""
        zone, time = self.options.date_partition_timezone, change_time(path)
        if time is None or (zone is None and self.options.date_partition == "none"):
            return None
        return repeated_hour(time, zone)

    def probe(self, storage: InputOpener, file: PlannedFile) -> Probed:
        """Where the row names a list of its own, the word for a column that is not logged is a text like any other."""
        has_own = self.spec.columns_to_update not in (None, CARRIED)
        options = replace(self.options, csv_no_sup=None) if has_own else self.options
        try:
            probed = probe(storage, file, options, self.inflated_bytes)
        except QuarantinableError as error:
            if error.code != FILE_EMPTY or not is_text(file):
                raise
            return without_rows(file, dict.fromkeys((self.op_column, *self.spec.keys, *self.spec.sequence_by)))
        self._require_free(probed)
        self._require_header(probed)
        return replace(probed, prepared=self.spec.mode == "snapshots" and is_of_snapshot(file.path))

    def _require_free(self, probed: Probed) -> None:
        """Refuse a column of the source that would be read as the list of columns that an update carries.

        Raises:
            FatalError: `COLUMN_NAME_RESERVED`.
        """
        if probed.csv_carried is None and self.spec.columns_to_update == CARRIED:
            names = [renamed(name, self.spec) for name, _ in probed.columns]
            if (column := match(names, CARRIED)) is not None:
                what = f"{self.spec.table}: files have a column {column!r}, a name that this dialect uses itself"
                remedy = f"give it another name: `rename: {{{CARRIED}: carried}}` in the metadata row"
                raise FatalError(COLUMN_NAME_RESERVED, what, where=probed.file.path, remedy=remedy)

    def _require_header(self, probed: Probed) -> None:
        """Refuse a first line that has no name of the row where it should hold the names of the columns.

        Raises:
            FatalError: `KEY_COLUMN_MISSING`.
        """
        if probed.csv is None or not probed.csv.csv_header or not self.spec.keys:
            return
        spec, delivered = self.spec, {name for name, _ in probed.columns}
        known = (*spec.keys, *spec.sequence_by, *(spec.columns or ()), *spec.exclude_columns, *spec.mask, *spec.rename,
                 *self.options.types, self.op_column, *self.total_order, *self.commit_times)  # fmt: skip
        named = {landed_name(form).lower() for name in delivered for form in (name, renamed(name, spec))}
        if named.isdisjoint(landed_name(name).lower() for name in known):
            keys = ", ".join(spec.keys)
            what = f"the first line of the file has no name of a key ({keys}) or of another column of the metadata row"
            remedy = (
                "if the line is a row, set options.csv_header: false and name the columns in options.csv_columns; "
                "else correct keys"
            )
            raise FatalError(KEY_COLUMN_MISSING, what, where=probed.file.path, remedy=remedy)

    @property
    def carried(self) -> str:
        """Only CSV has it. Whatever the options say now: lists that are stored stay lists."""
        return CARRIED

    @property
    def op_column(self) -> str:
        return self.options.op_column

    @cached_property
    def commit_times(self) -> Sequence[str]:
        named = self.options.timestamp_column
        return ((named,) if named else ()) + COMMIT_TIMES

    @property
    def missing_op(self) -> Literal["quarantine", "insert"]:
        return self.options.missing_op

    def windows(self, cursor: str, since: datetime, until: datetime) -> tuple[Window, ...]:
        """Listings that also find the folder's own full-load files.

        Args:
            cursor: relative path of a change file; shows a layout that the options don't state.
            until: a time after which no file has been written, in any time zone once a day is added.
        """
        flat = () if "/" in cursor else (Window(start_after=_name(since)),)
        if self.options.date_partition == "none":
            return flat or EVERYTHING
        # A folder's date may be in another time zone than the names in it: a day earlier or later.
        start, end = since - _DAY, until + _DAY
        if self.options.date_partition in DATES_IN_ORDER:
            return (*flat, Window(start_after=f"{self._folder(start)}/{_name(start)}"))
        if end - start > _MOST_DAYS * _DAY:
            return EVERYTHING
        numbers = range((end.date() - start.date()).days + 1)
        days = (Window(folder=self._folder(start + number * _DAY)) for number in numbers)
        return (*flat, *days, Window(start_after=_AFTER_DIGITS))

    def _folder(self, time: datetime) -> str:
        return date_folder(self.options.date_partition, self.options.date_delimiter, time)


def _name(time: datetime) -> str:
    """Whole seconds: sorts before every name of that second, however many digits follow."""
    return f"{time:%Y%m%d-%H%M%S}"
