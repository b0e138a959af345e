"""The schema of a batch, planned from its files, and their rows decoded by it: together, or part by part in tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from airflow_gddl.contract.codes import (
    CONNECTORS_SHARE_KEYS,
    KEY_TYPE,
    SHARDS_SHARE_KEYS,
    SNAPSHOT_MERGED,
    TABLES_SHARE_KEYS,
)
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import renamed
from airflow_gddl.contract.result import RunWarning, Warnings
from airflow_gddl.contract.sources import reads_of
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import SchemaGate, lowered
from spark_jobs.plan.planned_batch import BatchPlan, TableState, Truncate
from spark_jobs.plan.schema_evolution import of_added_columns, of_replaced_nulls
from spark_jobs.plan.source_snapshots import (
    IgnoredSnapshot,
    KnownSnapshots,
    LedgerBefore,
    SnapshotMarks,
    snapshots_after,
    with_names_of,
)
from spark_jobs.plan.table_schema import TableSchema, controls_of, lacks, without_controls
from spark_jobs.rooms.dialects.protocol import Dialect, Probed, match
from spark_jobs.rules.batch_schema import BatchSchema, Stored, plan_batch
from spark_jobs.rules.decode import DecodedGroup, Stamp, are_deletes, decode
from spark_jobs.rules.erasure import ErasedKeys, without_erased
from spark_jobs.rules.evaluate import landed_as_named, raw_as_named
from spark_jobs.rules.figures import DecodedBatch, Figures, measure
from spark_jobs.rules.file_groups import FileGroup
from spark_jobs.rules.file_rows import FileRows, RawGroup, read_file
from spark_jobs.rules.rewrite import within_filter
from spark_jobs.rules.shards import with_shard, with_shard_column
from spark_jobs.rules.truncates import are_applied, kept_truncates, without_truncates
from spark_jobs.tables.table_context import TableContext


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """Decodes any part of a batch's rows; small, and may be sent to other processes.

    Attributes:
        groups: plan for the rows of each group.
    """

    groups: tuple[FileGroup, ...]
    table_schema: TableSchema
    stamp: Stamp
    erased: ErasedKeys

    def to_send(self) -> Decoder:
        """A copy for other processes."""
        return replace(self, erased=self.erased.resolved())

    def part(self, group: int, raw: RawGroup) -> tuple[DecodedGroup, Figures]:
        """Changes of some rows of a group, without erased keys, and their figures."""
        spec = self.table_schema.spec
        raw = raw if spec.shard is None else with_shard(raw, spec.shard)
        if spec.rename or spec.derive:
            raw = raw_as_named(raw, self.groups[group])
        decoded = decode(raw, self.groups[group], self.table_schema, self.stamp)
        if decoded.truncating is not None:
            decoded = without_truncates(decoded, self.table_schema)
        if decoded.outside is not None:
            decoded = within_filter(decoded, self.table_schema)
        kept, erased = without_erased(decoded, self.table_schema, self.erased)
        return kept, measure(kept, self.table_schema, erased=erased)


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Decoding plan of a batch."""

    schema: BatchSchema
    decoder: Decoder
    applies_truncates: bool = False

    @classmethod
    def planned(
        cls, context: TableContext, plan: BatchPlan, state: TableState, landed: Sequence[FileGroup],
        files: Iterable[Probed] = (),
    ) -> Decoding:  # fmt: skip
        """Plan how the files of a batch become rows of the table.

        Args:
            files: of the batch; none where it replays records of the quarantine.

        Raises:
            FatalError: as `plan_batch`; `SHARD_COLUMN_TAKEN`, `CONTROL_COLUMN_MISSING`.
        """
        replayed, files = plan.source == "quarantine", tuple(files)
        if context.spec.rename or context.spec.derive:
            landed = [landed_as_named(group, replayed=replayed) for group in landed]
        if context.spec.shard is not None:
            landed = with_shard_column(landed, replayed=replayed)
        stored = context.stored_columns()
        warnings = () if replayed else _of_controls(context.dialect, landed, stored)
        schema = plan_batch(context.dialect, landed, stored, state)
        schema = replace(schema, warnings=(*warnings, *schema.warnings))
        schema = with_snapshots(schema, plan, state, [file.snapshot for file in files if file.snapshot is not None])
        schema = replace(schema, warnings=(*schema.warnings, *_of_defaults(context.spec, schema, files)))
        decoder = Decoder(
            groups=schema.groups,
            table_schema=schema.table_schema,
            stamp=Stamp.of(plan),
            erased=context.erasures.keys(plan.files),
        )
        applies = are_applied(context.spec, released=plan.releases)
        return cls(schema=schema, decoder=decoder, applies_truncates=applies)

    def batch(self, whole: Figures, distinct: tuple[int, int], files: Sequence[Sequence[Probed]] = ()) -> DecodedBatch:
        """The batch after its parts are decoded.

        Args:
            distinct: identities and keys among good rows.
            files: those of each group; empty for records of the quarantine.
        """
        groups, counted = self.schema.groups, [file.rows for group in files for file in group]
        schema = self.schema
        if self.applies_truncates:
            schema = with_truncates(schema, whole.truncates, self.decoder.stamp.batch_id)
        footers = None if not counted or None in counted else sum(c for c in counted if c is not None)
        return DecodedBatch(
            schema=schema,
            figures=replace(whole, identities=distinct[0], keys=distinct[1]),
            change_schemas=frozenset(g.schema_id for g in groups if g.kind == "change"),
            schema_of={f.file.path: g.schema_id for g, members in zip(groups, files, strict=False) for f in members},
            content_of={file.file.path: file.content for group in files for file in group if file.content},
            rows_by_footer=None if footers is None else footers - whole.erased - whole.filtered - len(whole.truncates),
        )


def _of_controls(dialect: Dialect, groups: Sequence[FileGroup], stored: Stored) -> Warnings:
    changes = [(g.label, g.names) for g in groups if g.kind == "change" and not g.only_deletes]
    known = () if stored.data is None else stored.data.names
    return without_controls(dialect.spec, _controls(dialect), changes, known)


def _controls(dialect: Dialect) -> dict[str, str]:
    """Columns without which change files are no changes of the row; none where full loads are among these."""
    return controls_of(dialect.spec, dialect.carried) if dialect.loads_apart else {}


def _of_defaults(spec: TableSpec, schema: BatchSchema, files: Sequence[Probed]) -> Warnings:
    defaults = [default for file in files for default in file.defaults]
    if not defaults:
        return ()
    added = [addition.path[0] for addition in schema.plan.additions if len(addition.path) == 1]
    return (*of_replaced_nulls(spec, defaults), *of_added_columns(spec, added, defaults))


def with_truncates(schema: BatchSchema, delivered: Iterable[Truncate], batch_id: str) -> BatchSchema:
    """The schema with truncates that take effect in a batch."""
    table = schema.table_schema
    known = kept_truncates(table.truncates, delivered, history=table.spec.history)
    return replace(schema, table_schema=replace(table, truncates=known, batch_id=batch_id))


def with_snapshots(
    schema: BatchSchema, plan: BatchPlan, state: TableState, marks: Sequence[SnapshotMarks]
) -> BatchSchema:
    """The schema with the snapshots that the files of a batch begin or continue, and where their events come from.

    Raises:
        FatalError: `TABLES_SHARE_KEYS`, `KEY_TYPE`.
    """
    if not marks:
        return schema
    follows, was = schema.table_schema.follows_snapshots, state.snapshots
    is_known = was is not None and follows and not was.merged
    before = LedgerBefore(known=was if is_known else None, generation=state.generation, max_sequence=state.max_sequence)
    if not follows:
        marks = [replace(mark, parts=()) for mark in marks]
    known, ignored = snapshots_after(before, marks, batch=plan.number, planned_at=plan.planned_at)
    if was is not None and not is_known:
        known = with_names_of(known, was)
    spec = schema.table_schema.spec
    require_one_table(spec, known)
    require_distinct_ids(spec, known)
    return replace(
        schema, snapshots=replace(known, merged=not follows),
        servers=tuple(server for mark in marks for server in mark.servers),
        warnings=(
            *schema.warnings, *of_ignored_snapshots(ignored), *of_shards(spec, known),
            *of_connectors(spec, known, was),
        ),
        table_schema=replace(schema.table_schema, openings=known.openings),
    )  # fmt: skip


def require_one_table(spec: TableSpec, known: KnownSnapshots) -> None:
    """Refuse events of several tables of the source, of which rows with equal keys would be one row.

    Raises:
        FatalError: `TABLES_SHARE_KEYS`.
    """
    if not _may_share_keys(spec):
        return
    _require_one_server(spec, known)
    tables = [name for name in known.collections if name]
    if len(tables) < 2 or "_dbz_table" in lowered(spec.keys):
        return
    what = f"{spec.table}: events of {len(tables)} tables of the source are in its files ({', '.join(tables[:5])})"
    remedy = (
        f"keep the tables apart with `keys: [{', '.join((*spec.keys, '_dbz_table'))}]` (a table that exists needs a "
        "rebuild); or set `options: {source_tables: several}` where keys are unique among them, as in partitions or a "
        "table that was renamed; or route each into a folder of its own"
    )
    raise FatalError(TABLES_SHARE_KEYS, f"{what}; nothing was written", where=spec.table, remedy=remedy)


def _may_share_keys(spec: TableSpec) -> bool:
    """Whether equal keys of several tables or connectors are one row, and the row does not say that there are none."""
    by_table = reads_of(spec) == "log"  # jobs take the changes of one table from the log
    return bool(spec.keys) and not by_table and spec.options.get("source_tables") != "several"


def _require_one_server(spec: TableSpec, known: KnownSnapshots) -> None:
    """Refuse events of one table's name that several connectors send at the same time, as of several servers.

    Raises:
        FatalError: `TABLES_SHARE_KEYS`.
    """
    pairs = combinations(known.streams, 2)
    beside = next(((one, other) for one, other in pairs if one.table == other.table and one.is_beside(other)), None)
    if beside is None:
        return
    one, other = beside
    what = f"{spec.table}: connectors {one.connector} and {other.connector} both send events of a table {one.table}"
    remedy = (
        "route the topics of each connector into a folder of its own, and load these as `shards`; or set `options: "
        "{source_tables: several}` where keys are unique among them, or both capture one database"
    )
    raise FatalError(TABLES_SHARE_KEYS, f"{what}; nothing was written", where=spec.table, remedy=remedy)


def require_distinct_ids(spec: TableSpec, known: KnownSnapshots) -> None:
    """Refuse documents whose keys are values of a type and texts of such values: both would be one row.

    Raises:
        FatalError: `KEY_TYPE`.
    """
    both = [name for name in known.id_types if f"text of {name}" in known.id_types]
    if not both:
        return
    what = f"{spec.table}: `_id` is {both[0]} in some documents, and text of such a value in others, which a column "
    remedy = (
        "give the documents ids of one type at the source, or capture those of each type into a table of its own (a "
        "filter of the connector); then reload the table"
    )
    raise FatalError(KEY_TYPE, f"{what}can't tell apart; nothing was written", where=spec.table, remedy=remedy)


def of_shards(spec: TableSpec, known: KnownSnapshots) -> Warnings:
    """Warning about documents of several shards, whose keys need not be distinct."""
    is_told = "_dbz_shard" in lowered(spec.keys) or set(known.id_types) <= {"ObjectId", "UUID"}
    if len(known.shards) < 2 or is_told:
        return ()
    message = (
        "documents come from several shards, on which an `_id` may stand for another document each; `keys: [_id, "
        "_dbz_shard]` keeps them apart where no document moves from shard to shard"
    )
    return (RunWarning(code=SHARDS_SHARE_KEYS, message=message, count=len(known.shards), sample=known.shards[:5]),)


def of_connectors(spec: TableSpec, known: KnownSnapshots, was: KnownSnapshots | None) -> Warnings:
    """Warning about a connector that follows others, whose rows need not be those of the same table."""
    tables = Counter(stream.table for stream in known.streams)
    names = sorted({stream.connector for stream in known.streams})
    are_new = was is None or not set(names) <= {stream.connector for stream in was.streams}
    if not are_new or not _may_share_keys(spec) or max(tables.values(), default=0) < 2:
        return ()
    message = (
        "events of one table come from several connectors; where these capture different servers, rows with equal keys "
        "overwrite each other: load them as shards; `options: {source_tables: several}` says that they do not"
    )
    return (RunWarning(code=CONNECTORS_SHARE_KEYS, message=message, count=len(names), sample=tuple(names[:5])),)


def of_ignored_snapshots(ignored: Sequence[IgnoredSnapshot]) -> Warnings:
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
    return (RunWarning(code=SNAPSHOT_MERGED, message=message),) if ignored else ()


def resumed_schema(context: TableContext, plan: BatchPlan, state: TableState) -> BatchSchema:
    """The schema of a batch that resumes from the change table, by its plan and the tables."""
    known = replace(
        state,
        schemas=plan.schemas or state.schemas,
        found=state.found if plan.found is None else plan.found,
        sequence_by=plan.sequence_by or state.sequence_by,
        sequence_type=plan.sequence_type or state.sequence_type,
        snapshots=plan.snapshots or state.snapshots,
        truncates=state.truncates if plan.truncates is None else plan.truncates,
    )
    schema = plan_batch(context.dialect, (), context.stored_columns(), known)
    return with_truncates(schema, (), plan.batch_id)


def resumed_batch(schema: BatchSchema, figures: Figures, rows: Iterable[tuple[str, int, bool]]) -> DecodedBatch:
    """A batch that resumes from the change table.

    Args:
        rows: source file, schema id, and whether it is a change, of the batch's rows; may repeat.
    """
    rows = tuple(rows)
    return DecodedBatch(
        schema=schema,
        figures=figures,
        change_schemas=frozenset(schema_id for _, schema_id, change in rows if change),
        schema_of={file: schema_id for file, schema_id, _ in rows},
    )


def landed(context: TableContext, like: Probed, only_deletes: Callable[[str], bool]) -> FileGroup:
    """A group of files, described by one of them.

    Args:
        only_deletes: whether its rows are all deletes, by the column of operations; called where that decides about a
            missing column.
    """
    spec, dialect, names = context.spec, context.dialect, [name for name, _ in like.columns]
    asks = like.file.kind == "change" and (
        spec.schema_evolution.dropped_column != "keep" or spec.schema != SchemaGate()
        or any(lacks((renamed(name, spec) for name in names), column) for column in _controls(dialect).values())
    )  # fmt: skip
    op = match(names, dialect.op_column) if asks else None
    deletes = op is not None and only_deletes(op)
    return FileGroup(
        kind=like.file.kind, columns=like.columns, label=like.file.path, dialect=dialect,
        only_deletes=deletes or like.is_blank, is_blank=like.is_blank,
        stated=like.stated, prepared=like.prepared, unavailable=like.unavailable,
    )  # fmt: skip


def are_all_deletes(context: TableContext, group: Sequence[Probed], op: str) -> bool:
    """Whether files have only deletes; most have another operation in their first rows.

    Args:
        group: files with equal columns.
        op: their column of operations.
    """
    at = [name for name, _ in group[0].columns].index(op)
    for file in group:
        probed = context.dialect.probe(context.storage, file.file) if file.translated else file
        for number in range(max(1, len(file.ranges))):
            part = range(number, number + 1) if file.ranges else None
            rows = read_file(context.storage, probed, part)
            if isinstance(rows, FileRows) and not are_deletes(rows.columns[at]):
                return False
    return True
