"""What an adoption would do: which files are in the table, what orders its rows, what is added; nothing is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from airflow_gddl.contract.actions import Adopt
from airflow_gddl.contract.codes import ADOPT_ERASED, ADOPT_NO_SEQUENCE
from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.names import few
from airflow_gddl.contract.result import RunWarning, Warnings
from airflow_gddl.contract.sql_types import DecimalType, SqlType, parse_type, parts_of
from spark_jobs.batch import notices
from spark_jobs.batch.pending import moment
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.adoption import Adoption
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.baseline import Baseline
from spark_jobs.plan.planned_batch import PlannedFile, TableState, first_batch
from spark_jobs.plan.sequence import fit_together
from spark_jobs.plan.table_schema import Schema
from spark_jobs.plan.types import lossless, widened_number
from spark_jobs.plan.waiting_files import Discovery
from spark_jobs.rooms.actions.adopt_checks import (
    log_of,
    named,
    refused,
    require_columns,
    require_keys,
    require_new_tables,
)
from spark_jobs.rooms.actions.adopt_proof import prove
from spark_jobs.rooms.dialects.probe import probe_all
from spark_jobs.rooms.dialects.protocol import match, sequence_type
from spark_jobs.rules.arrays import DeltaSchema, schema_of
from spark_jobs.rules.baseline_rows import BaselineFigures
from spark_jobs.rules.batch_schema import BatchSchema, Stored
from spark_jobs.tables.decoding import Decoding, are_all_deletes, landed
from spark_jobs.tables.engine import Engine

_SAMPLE = 20


def asked_of(run: TableRun) -> str:
    """See `Adoption.asked`."""
    asked, spec = run.job.options.asked(Adopt), run.spec
    return json.dumps(
        [
            asked.files_until, spec.keys, spec.sequence_by, spec.partition_by, asked.source_connection,
        ]
    )  # fmt: skip


def propose(run: TableRun, ledger: Ledger, totals: RunTotals) -> tuple[Adoption, dict[str, Any]]:
    """Check a table, and work out what its adoption would do, with what people are told of it. Writes nothing.

    Raises:
        FatalError: `ADOPT_REFUSED`; as `Decoding.planned`.
    """
    log, context = log_of(run), run.context()
    require_columns(run, log)
    require_new_tables(run, context)
    schema = schema_of(log.schema)
    context = replace(context, begins_with=Stored(data=Schema(schema.columns), before=Schema(())))
    discovery = run.discover(ledger, wait="idle")
    order = _Order.of(run, context, schema, _sample(discovery))
    baseline = order.baseline(run, iso(moment(run, ledger)), log.version)
    keys, kind = tuple(match(schema.names, key) or key for key in run.spec.keys), order.sequence_type or "string"
    figures = context.baseline.figures(keys, baseline, kind)
    require_keys(run, figures, context.stored.shared_keys())
    _require_forms(run, figures)
    files, later = _parted(run, discovery, is_ordered=bool(order.stored))
    adoption = Adoption(
        asked=asked_of(run), planned_at=baseline.applied_at, version=log.version, baseline=baseline, files=files,
        columns=tuple(schema.names), types=tuple(str(column.type) for column in schema.columns), rows=figures.rows,
        sequence_by=order.columns or None, sequence_type=order.sequence_type if figures.highest is not None else None,
        sequence_forms=figures.forms, max_sequence=figures.highest,
    )  # fmt: skip
    described = {
        "rows": figures.rows, "version": log.version, "keys": list(keys), "sequence": list(baseline.sequence),
        "without_sequence": figures.without_sequence, "max_sequence": figures.highest,
        "files": len(files), "newest": [file.path for file in files[-_SAMPLE:]],
        "waiting": len(later), "next": [file.path for file in later[:_SAMPLE]], "adds": list(order.adds),
    }  # fmt: skip
    if connection := run.job.options.asked(Adopt).source_connection:
        described["proved"] = prove(run, context, ledger, adoption, connection)
    found = notices.of_discovery(run, discovery)
    totals.warn((*found, *order.warnings, *_of_sequences(baseline, figures), *_of_erased(context)))
    return adoption, described


def _sample(discovery: Discovery) -> tuple[PlannedFile, ...]:
    """The newest file of each kind: it shows the columns that files bring."""
    newest = {file.kind: file for file in discovery.waiting}
    return tuple(newest.values())


def _require_forms(run: TableRun, figures: BaselineFigures) -> None:
    odd = {name: found for name, found in figures.forms.items() if found and not fit_together(found)}
    for name, found in odd.items():
        what = f"texts of {name}, which orders changes, have no one form whose order is known: {found}"
        raise refused(run, what, "name another column in `sequence_by`, or deliver it as numbers")


def _of_sequences(baseline: Baseline, figures: BaselineFigures) -> Warnings:
    if baseline.sequence or not figures.rows:
        return ()
    message = (
        "the table has no column that orders changes: any change of a file that is loaded from now on counts as newer "
        "than its rows, and a delete that the old job has applied is not known"
    )
    return (RunWarning(code=ADOPT_NO_SEQUENCE, message=message, count=figures.rows),)


def _of_erased(context: Engine) -> Warnings:
    count = len(context.erasures.keys().hashes)
    message = "keys of this table were erased; where the other job's table has them still, erase them again"
    return (RunWarning(code=ADOPT_ERASED, message=message, count=count),) if count else ()


@dataclass(frozen=True, kw_only=True)
class _Order:
    """What orders changes, by the newest files and the table.

    Attributes:
        columns: see `TableState.sequence_by`.
        stored: the same as the table spells them; empty where it lacks one of them.
    """

    columns: tuple[str, ...]
    sequence_type: str | None
    stored: tuple[str, ...]
    ordered_text: tuple[str, ...]
    adds: tuple[str, ...] = ()
    warnings: Warnings = ()

    @classmethod
    def of(cls, run: TableRun, context: Engine, schema: DeltaSchema, sample: Sequence[PlannedFile]) -> _Order:
        """The columns that order changes, in the table and in a sample of its files.

        Raises:
            FatalError: `ADOPT_REFUSED`; as `Decoding.planned`.
        """
        planned = _planned(context, run, sample)
        table = planned.table_schema
        _require_kept(run, schema, planned)
        stored = tuple(match(schema.names, name) or "" for name in table.sequence)
        stored = stored if all(stored) else ()
        kind: str | None = table.sequence_type
        if stored:
            kind = _kind_of(run, context, schema, stored, planned, any(file.kind == "change" for file in sample))
        texts = {name.lower() for name in table.ordered_text}
        adds = (*planned.plan.changes, *(f"added column {c.name} {c.type}" for c in planned.new_technical))
        return cls(
            columns=table.sequence, sequence_type=kind, stored=stored,
            ordered_text=tuple(n for n in stored if n.lower() in texts and _is_text(kind, stored, n)),
            adds=tuple(dict.fromkeys(adds)), warnings=planned.warnings,
        )  # fmt: skip

    def baseline(self, run: TableRun, planned_at: str, version: int) -> Baseline:
        return Baseline(
            batch_id=first_batch(planned_at).batch_id,
            applied_at=planned_at, source_file=f"{run.layout.replica}@{version}", sequence=self.stored,
            ordered_text=self.ordered_text,
        )  # fmt: skip


def _require_kept(run: TableRun, schema: DeltaSchema, planned: BatchSchema) -> None:
    """Require that columns which only the other job fills keep their values.

    Raises:
        FatalError: `ADOPT_REFUSED`: updates would empty columns that only the other job fills.
    """
    if run.spec.schema_evolution.dropped_column != "null":
        return
    delivered = {a.target.name for group in planned.plan.groups for a in group.actions if a.source_type is not None}
    own = [n for n in schema.names if n not in delivered and not planned.table_schema.is_technical(n)]
    if own:
        what = f"`dropped_column: null` would empty columns that files lack: {few(own)}"
        raise refused(run, what, "adopt the table with `dropped_column: keep`, or drop these columns first")


def _planned(context: Engine, run: TableRun, sample: Sequence[PlannedFile]) -> BatchSchema:
    """What the newest files would make of the table's columns."""
    probed, _ = probe_all(context.storage, sample, context.dialect)
    groups = [landed(context, one, partial(are_all_deletes, context, [one])) for one in probed]
    plan = first_batch(iso(run.runtime.clock()), tuple(sample))
    return Decoding.planned(context, plan, TableState(keys=run.spec.keys), groups, probed).schema


def _is_text(kind: str | None, stored: Sequence[str], name: str) -> bool:
    kinds = [str(part) for part in parts_of(parse_type(kind or "string"))]
    return kinds[stored.index(name)] == "string"


def _kind_of(
    run: TableRun, context: Engine, schema: DeltaSchema, stored: Sequence[str], planned: BatchSchema, told: bool
) -> str:
    """The type of `_gddl.sequence`, which has to hold the values of the table.

    Args:
        told: change files say the type of their sequence.
    """
    own = [sequence_type(name, (str(schema.types[name]),), context.dialect) for name in stored]
    wider = []
    for name, kind, theirs in zip(stored, own, parts_of(parse_type(planned.table_schema.sequence_type)), strict=True):
        mine = parse_type(kind)
        wide = widened_number(theirs, mine) if told else mine
        fits = lossless(mine, wide) and lossless(theirs, wide)
        if told and (not fits or _is_coarser(mine, theirs)):
            what = (
                f"{name}, which orders changes, is {schema.types[name]} in the table and {theirs} in files: its rows "
                "can't be compared with changes"
            )
            remedy = "give the column the files' type in the table, or name another column in `sequence_by`"
            raise refused(run, what, remedy)
        wider.append(str(wide))
    fields = ",".join(f"`{name}`:{kind}" for name, kind in zip(planned.table_schema.sequence, wider, strict=True))
    return wider[0] if len(wider) == 1 else f"struct<{fields}>"


def _is_coarser(mine: SqlType, theirs: SqlType) -> bool:
    """Whether values of files lose their fractions in a type: rows would seem older than their changes.

    A smaller range loses nothing: the values of the table are in it.
    """
    if isinstance(theirs, DecimalType):
        return theirs.scale > (mine.scale if isinstance(mine, DecimalType) else 0)
    return (str(mine), str(theirs)) in {("date", "timestamp"), ("date", "timestamp_ntz"), ("float", "double")}


def _parted(
    run: TableRun, discovery: Discovery, *, is_ordered: bool
) -> tuple[tuple[PlannedFile, ...], tuple[PlannedFile, ...]]:
    """Landing files that are in the table, and those that are not, in their order.

    Args:
        is_ordered: the table has the columns that order changes.

    Raises:
        FatalError: `ADOPT_REFUSED`.
    """
    until, landing = _until(run), run.layout.landing
    files = tuple(file for file in discovery.waiting if _at(file) <= until)
    later = tuple(file for file in discovery.waiting if _at(file) > until)
    if loads := [file.path for file in later if file.kind == "load"]:
        what = f"{len(loads)} files of the full load are not in the table by this cut: {named(loads)}"
        remedy = (
            "let the old job load them first, or name a later cut; where they begin a full load of their own, load "
            "the table again"
        )
        raise refused(run, what, remedy, landing)
    if not is_ordered and (unordered := _out_of_order(run, files, later)):
        what = (
            f"files that are not in the table by this cut are older, by their names, than files that are: "
            f"{named(unordered)}; the table has no column that orders changes, so that they would undo newer rows"
        )
        raise refused(run, what, "name a cut before them: files that are loaded once more change nothing", landing)
    return tuple(replace(file, generation=1) for file in files), later


def _until(run: TableRun) -> datetime:
    asked = run.job.options.asked(Adopt).files_until
    try:
        until = moment_of(asked).astimezone(UTC)
    except (ValueError, OverflowError):
        what = f"--files-until {asked!r} is no moment"
        raise refused(run, what, "write e.g. 2026-01-31T12:00:00Z", run.layout.landing) from None
    if until > run.runtime.clock():
        what = f"--files-until {iso(until)} is in the future: files that the old job has not seen would count"
        raise refused(run, what, "name the time at which the old job's last run began", run.layout.landing)
    return until


def _out_of_order(run: TableRun, files: Sequence[PlannedFile], later: Sequence[PlannedFile]) -> list[str]:
    """Change files that are not in the table though files with later names are."""
    order = run.dialect.file_order
    places = (order(file.path) for file in files if file.kind == "change")
    newest = max((place for place in places if place is not None), default=None)
    if newest is None:
        return []
    return [file.path for file in later if (place := order(file.path)) is not None and place < newest]


def _at(file: PlannedFile) -> datetime:
    return datetime.fromisoformat(file.modified)
