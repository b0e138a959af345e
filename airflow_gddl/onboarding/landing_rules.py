"""Facts of a table from its landing folder; pure, on footers already read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any

from airflow_gddl.contract.checks import table_name_fault
from airflow_gddl.contract.dms import COMMIT_TIMES, DATE_DELIMITERS, TOTAL_ORDER
from airflow_gddl.contract.name_times import change_time, moment
from airflow_gddl.devtools.simulate.proposing import key_rank
from airflow_gddl.onboarding.facts import Activity, KeyFact, Notice, TableFacts
from airflow_gddl.onboarding.landing_files import Footer, LandedName, TableFolder

SERVICE = ("Op", *TOTAL_ORDER, *COMMIT_TIMES, "AR_H_OPERATION", "AR_H_STREAM_POSITION", "AR_H_CHANGE_OPER")
"""Columns added by the CDC service or a task's rules."""
BEFORE_PREFIXES = ("BI_", "bi_", "BEFORE_", "before_image_")
OPERATIONS = ("operation", "cdc_operation", "dml_type", "op_type", "__op", "AR_H_OPERATION", "AR_H_CHANGE_OPER")
_TIMES = (
    "commit_timestamp",
    "commit_time",
    "commit_ts",
    "committed_at",
    "dms_commit_timestamp",
    "cdc_timestamp",
    "dms_ts",
)
_SEQUENCE = re.compile(r"(^|_)(change_?seq|seq|sequence|scn|lsn|change_number)$", re.IGNORECASE)
_DATED = re.compile(r"\d{4}(?P<by>[-_/]?)\d\d(?P<day>(?P=by)\d\d)?(?P<hour>(?P=by)\d\d)?")
_MOST_CANDIDATES = 6
_DELIMITER_NAMES = {delimiter: name for name, delimiter in DATE_DELIMITERS.items()}
_UNFIT = re.compile(r"^(float|double|halffloat|list|large_list|map|struct|binary|large_binary|time32|time64|bool)")


def facts_of(folder: TableFolder, key: KeyFact | None, now: float) -> TableFacts:
    """
    Args:
        key: key measured in the full load; null: none.
        now: seconds since the epoch.
    """
    fields, evidence = _fields(folder)
    loads = folder.of("load")
    return TableFacts(
        table=folder.table,
        columns=_source_columns(folder),
        key=key,
        rows=landing_rows(loads, folder.footers_of("load")),
        size_bytes=sum(file.size for file in loads) if loads else None,
        activity=_activity(folder, now),
        fields=fields if folder.footers_of("change") else None,
        evidence=evidence,
    )


def notices_of(folder: TableFolder) -> Iterable[Notice]:
    """Notices about a folder, including reasons that it can't become a table."""
    if fault := table_name_fault(folder.table):
        remedy = "rename the table in the task's mapping rules (`rename-table`), or exclude it"
        yield Notice(table=folder.table, code="TABLE_NAME_INVALID", message=fault, remedy=remedy)
    if any(file.format == "csv" for file in folder.files):
        message = "CSV states neither types nor, without a header, names: columns and keys can't be read"
        remedy = "set options.csv_header or options.csv_columns, and options.types; or have the service write parquet"
        yield Notice(table=folder.table, code="ONBOARD_CSV", message=message, remedy=remedy)
    for name, why in list(folder.unreadable.items())[:1]:
        message = f"{len(folder.unreadable)} of the sampled files can't be read, e.g. {name}: {why}"
        yield Notice(table=folder.table, code="ONBOARD_FILE_UNREADABLE", message=message, remedy="rewrite it")


def key_candidates(folder: TableFolder) -> tuple[str, ...]:
    """Columns of the full load that may identify a row, likely ones first; a time only beside others."""
    loads = folder.footers_of("load")
    if not loads:
        return ()
    name = folder.table.partition(".")[2]
    service = {column.lower() for column in (*SERVICE, *before_columns(loads[0].columns))}
    fit = [
        column
        for column, kind in loads[0].columns.items()
        if column.lower() not in service
        and not _UNFIT.match(kind)
        and all(column in footer.columns and not footer.nulls.get(column, 0) for footer in loads)
    ]
    times = [column for column in fit if is_time(loads[0].columns[column])]
    ranked = sorted((c for c in fit if c not in times), key=lambda c: (key_rank(c, name), fit.index(c)))
    return (*ranked[: _MOST_CANDIDATES - len(times[:1])], *times[:1])


def is_time(kind: str) -> bool:
    """Whether an Arrow type, as text, is a date or a time stamp."""
    return kind.startswith(("timestamp", "date"))


def before_prefix(columns: Iterable[str]) -> str | None:
    """The prefix of before images; null where no column is one."""
    names = list(columns)
    for prefix in BEFORE_PREFIXES:
        if any(name.startswith(prefix) and name[len(prefix) :] in names for name in names):
            return prefix
    return None


def before_columns(columns: Iterable[str]) -> tuple[str, ...]:
    names = list(columns)
    prefix = before_prefix(names)
    return tuple(name for name in names if prefix and name.startswith(prefix) and name[len(prefix) :] in names)


def _fields(folder: TableFolder) -> tuple[dict[str, Any], dict[str, str]]:
    changes = folder.footers_of("change")
    fields: dict[str, Any] = {}
    evidence: dict[str, str] = {}

    def take(field: str, value: object, words: str) -> None:
        if value is not None:
            fields[field], evidence[field] = value, words

    columns = dict(changes[-1].columns) if changes else {}
    where = changes[-1].file.name if changes else ""
    sequence = _sequence(changes, columns)
    take("sequence_by", None if sequence is None else (sequence,), f"column {sequence} of {where}")
    prefix = before_prefix(columns)
    take("before_image_prefix", prefix, f"columns {prefix}… beside their own in {where}")
    operation = None if _has(columns, ("Op",)) else next((name for name in columns if name in OPERATIONS), None)
    take("options.op_column", operation, f"no Op in {where}, but {operation}")
    time = None if _has(columns, COMMIT_TIMES) else next((name for name in columns if name.lower() in _TIMES), None)
    take("options.timestamp_column", time, f"column {time} of {where}")
    for name, value in _partition(folder.of("change")).items():
        take(name, value, f"folders of the change files, e.g. {where or folder.of('change')[-1].name}")
    return fields, evidence


def _has(columns: Iterable[str], names: Iterable[str]) -> bool:
    wanted = {name.lower() for name in names}
    return any(column.lower() in wanted for column in columns)


def _sequence(changes: Sequence[Footer], columns: Mapping[str, str]) -> str | None:
    """A column named like a sequence that is never null; null where the dialect has a default."""
    if not changes or _has(columns, TOTAL_ORDER):
        return None
    found = [name for name in columns if _SEQUENCE.search(name) and not before_prefix((name, name[3:]))]
    sure = [name for name in found if all(footer.nulls.get(name) == 0 for footer in changes)]
    return sure[0] if len(sure) == 1 else None


def _partition(files: Sequence[LandedName]) -> dict[str, str]:
    """Date folders that begin with the year; other formats are ambiguous."""
    folders = {file.name.rpartition("/")[0] for file in files}
    found = [_DATED.fullmatch(folder) for folder in folders]
    if not found or not all(found):
        return {}
    matches = [match for match in found if match is not None]
    kinds = {(match["by"], bool(match["day"]), bool(match["hour"])) for match in matches}
    if len(kinds) != 1:
        return {}
    by, day, hour = kinds.pop()
    partition = {"options.date_partition": "YYYYMM" + ("DD" if day else "") + ("HH" if hour else "")}
    return partition | ({} if by == "/" else {"options.date_delimiter": _DELIMITER_NAMES[by]})


def _source_columns(folder: TableFolder) -> dict[str, str]:
    columns: dict[str, str] = {}
    for footer in folder.footers:
        columns = {**footer.columns, **columns}
    service = {name.lower() for name in (*SERVICE, *before_columns(columns))}
    return {name: kind for name, kind in columns.items() if name.lower() not in service}


def landing_rows(files: Sequence[LandedName], footers: Sequence[Footer]) -> int | None:
    """Estimated rows of all files, extrapolated from known footers; null: not known."""
    known = sum(footer.file.size for footer in footers)
    rows = sum(footer.rows for footer in footers)
    if not footers or not known:
        return None
    total = sum(file.size for file in files)
    return rows if len(footers) == len(files) else round(rows * total / known)


def _activity(folder: TableFolder, now: float) -> Activity | None:
    changes = folder.of("change")
    times = [found for file in changes if (found := moment(change_time(file.name) or "")) is not None]
    if not times:
        return None
    since = min(times).replace(tzinfo=UTC).timestamp()
    return Activity(changes=landing_rows(changes, folder.footers_of("change")) or 0, since=since, until=now)
