"""Decoding plan of a batch's parts, made once and sent to tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.stores import Storage
from spark_jobs.dialects.base import Dialect
from spark_jobs.dialects.probed import Probed, Unreadable
from spark_jobs.dialects.roles import match
from spark_jobs.engines.base import TableContext
from spark_jobs.engines.splits import Split
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.snapshots import IgnoredSnapshot, LedgerBefore, SnapshotMarks, snapshots_after
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.batch_schema import BatchSchema, Landed, plan_batch
from spark_jobs.rules.decode import DecodedGroup, Stamp, are_deletes, decode
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.delivery import GroupDecoding
from spark_jobs.rules.erased_keys import ErasedKeys
from spark_jobs.rules.erased_rows import without_erased
from spark_jobs.rules.figures import Figures
from spark_jobs.rules.measure import PartFigures, figures_of, measure
from spark_jobs.rules.read import FileRows, RawGroup, read_file
from spark_jobs.rules.shards import with_shard, with_shard_column


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """Decodes any part of a batch's rows; small, and may be sent to other processes.

    Attributes:
        groups: plan for the rows of each group.
    """

    groups: tuple[GroupDecoding, ...]
    table_schema: TableSchema
    stamp: Stamp
    erased: ErasedKeys

    def to_send(self) -> Decoder:
        """A copy for other processes."""
        return replace(self, erased=self.erased.resolved())

    def part(self, group: int, raw: RawGroup) -> tuple[DecodedGroup, PartFigures]:
        """Changes of some rows of a group, without erased keys, and their figures."""
        shard = self.table_schema.spec.shard
        raw = raw if shard is None else with_shard(raw, shard)
        decoded = decode(raw, self.groups[group], self.table_schema, self.stamp)
        left, erased = without_erased(decoded, self.table_schema, self.erased)
        return left, measure(left, self.table_schema, erased=erased)


Fault = tuple[str, ...]
"""Of the store, for the driver: family, code, what, where, remedy; empty: none."""


def fault_of(error: GddlError) -> Fault:
    family = "retriable" if isinstance(error, RetriableError) else "fatal"
    return (family, error.code, error.what, error.where, error.remedy)


def raise_fault(fault: Fault) -> None:
    """
    Raises:
        GddlError: the store's.
    """
    if fault:
        family, code, what, where, remedy = fault
        kind = RetriableError if family == "retriable" else FatalError
        raise kind(code, what, where=where, remedy=remedy)


def out_of_memory(path: str, error: MemoryError) -> FatalError:
    what = f"a Spark task has not enough memory for the file: {error}"[:500]
    remedy = "give the table a larger tier, or deliver the file in smaller ones"
    return FatalError("OUT_OF_MEMORY", what, where=path, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Decoding plan of a batch."""

    schema: BatchSchema
    decoder: Decoder

    @classmethod
    def planned(
        cls, context: TableContext, plan: BatchPlan, state: TableState, landed: Sequence[Landed],
        files: Iterable[Probed] = (),
    ) -> Decoding:  # fmt: skip
        """
        Args:
            files: of the batch; none where it replays records of the quarantine.

        Raises:
            FatalError: as `plan_batch`; `SHARD_COLUMN_TAKEN`.
        """
        if context.spec.shard is not None:
            landed = with_shard_column(landed, replayed=plan.source == "quarantine")
        schema = plan_batch(context.dialect, landed, context.stored_columns(), state)
        schema = with_snapshots(schema, plan, state, [file.snapshot for file in files if file.snapshot is not None])
        decoder = Decoder(
            groups=schema.groups,
            table_schema=schema.table_schema,
            stamp=Stamp.of(plan),
            erased=context.erasures.keys(plan.files, keep=True),
        )
        return cls(schema=schema, decoder=decoder)

    def batch(
        self, whole: PartFigures, distinct: tuple[int, int], files: Sequence[Sequence[Probed]] = ()
    ) -> DecodedBatch:
        """The batch after its parts are decoded.

        Args:
            distinct: identities and keys among good rows.
            files: those of each group; empty for records of the quarantine.
        """
        groups, counted = self.schema.groups, [file.rows for group in files for file in group]
        footers = None if not counted or None in counted else sum(c for c in counted if c is not None)
        return DecodedBatch(
            schema=self.schema,
            figures=figures_of(whole, self.schema.table_schema, distinct),
            change_schemas=frozenset(g.schema_id for g in groups if g.kind == "change"),
            schema_of={f.file.path: g.schema_id for g, members in zip(groups, files, strict=False) for f in members},
            rows_by_footer=None if footers is None else footers - whole.erased,
            erased=whole.erased,
        )


def with_snapshots(
    schema: BatchSchema, plan: BatchPlan, state: TableState, marks: Sequence[SnapshotMarks]
) -> BatchSchema:
    """The schema with the snapshots that the files of a batch begin or continue."""
    if not marks or not schema.table_schema.follows_snapshots:
        return schema
    before = LedgerBefore(known=state.snapshots, generation=state.generation, max_sequence=state.max_sequence)
    known, ignored = snapshots_after(before, marks, batch=plan.number, planned_at=plan.planned_at)
    return replace(
        schema, snapshots=known, warnings=(*schema.warnings, *of_ignored_snapshots(ignored)),
        table_schema=replace(schema.table_schema, openings=known.openings),
    )  # fmt: skip


def of_ignored_snapshots(ignored: Sequence[IgnoredSnapshot]) -> tuple[RunWarning, ...]:
    """Warning about snapshots whose rows are merged like changes."""
    whys = {
        "late": "changes from after it had been ingested before it came",
        "sources": "events of several connectors are in the table, and it is of one of them",
    }
    message = (
        "a new snapshot of the table was merged and removes no rows that it lacks, since "
        f"{' and '.join(whys[why] for why in ignored)}; where rows were deleted at the source meanwhile, move the old "
        "files out and reload the table from the files that are there"
    )
    return (RunWarning(code="SNAPSHOT_MERGED", message=message),) if ignored else ()


def resumed_schema(context: TableContext, plan: BatchPlan, state: TableState) -> BatchSchema:
    """The schema of a batch that resumes from the change table, by its plan and the tables."""
    known = replace(
        state,
        schemas=plan.schemas or state.schemas,
        sequence_by=plan.sequence_by or state.sequence_by,
        sequence_type=plan.sequence_type or state.sequence_type,
        snapshots=plan.snapshots or state.snapshots,
    )
    return plan_batch(context.dialect, (), context.stored_columns(), known)


def resumed_batch(schema: BatchSchema, figures: Figures, found: Iterable[tuple[str, int, bool]]) -> DecodedBatch:
    """A batch that resumes from the change table.

    Args:
        found: source file, schema id, and whether it is a change, of the batch's rows; may repeat.
    """
    found = tuple(found)
    return DecodedBatch(
        schema=schema,
        figures=figures,
        change_schemas=frozenset(schema_id for _, schema_id, change in found if change),
        schema_of={file: schema_id for file, schema_id, _ in found},
    )


def landed(context: TableContext, like: Probed, only_deletes: Callable[[str], bool]) -> Landed:
    """A group of files, described by one of them.

    Args:
        only_deletes: whether its rows are all deletes, by the column of operations; called where that decides about a
            missing column.
    """
    asks = like.file.kind == "change" and context.spec.schema_evolution.dropped_column != "keep"
    op = match([name for name, _ in like.columns], context.dialect.op_column) if asks else None
    deletes = op is not None and only_deletes(op)
    return Landed(
        kind=like.file.kind, columns=like.columns, label=like.file.path, only_deletes=deletes, stated=like.stated
    )


def are_all_deletes(context: TableContext, group: Sequence[Probed], op: str) -> bool:
    """Whether files have only deletes; most have another operation in their first rows.

    Args:
        group: files with equal columns.
        op: their column of operations.
    """
    at = [name for name, _ in group[0].columns].index(op)
    for file in group:
        probed = context.dialect.probe(context.storage, file.file) if file.translated else file
        for number in range(max(1, len(file.row_groups))):
            part = range(number, number + 1) if file.row_groups else None
            found = read_file(context.storage, probed, part)
            if isinstance(found, FileRows) and not are_deletes(found.columns[at]):
                return False
    return True


def read_part(storage: Storage, dialect: Dialect, part: Split) -> FileRows | Unreadable:
    """Rows of a part; a file that its dialect translates is translated again."""
    if not part.file.translated or part.file.table is not None:
        return read_file(storage, part.file, part.row_groups)
    again = dialect.probe(storage, part.file.file)
    if again.signature != part.file.signature:
        return Unreadable(part.file.file, "FILE_VANISHED", "the file was rewritten since it was probed")
    return read_file(storage, again)
