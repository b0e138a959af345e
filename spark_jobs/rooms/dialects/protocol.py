"""The protocol of dialects: formats of files by the service that wrote them, what a file holds, and roles of columns.

One subclass of `Dialect` and one descriptor (`airflow_gddl.contract.extensions`) add a dialect: see docs/extending.md.
The rest of the job does not depend on a dialect.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, BinaryIO, ClassVar, Literal, Protocol, cast

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract import codec
from airflow_gddl.contract.codes import DIALECT_BROKEN, FILE_KEY_MISSING, SEQUENCE_MISSING, SPEC_INVALID
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import DIALECTS, DmsOptions, is_among, with_defaults_of_mode
from airflow_gddl.contract.file_names import Names, is_temporary, timed_order
from airflow_gddl.contract.names import landed_name, renamed
from airflow_gddl.contract.spec import DEFAULT_TIERS, TableSpec, TierSpec
from airflow_gddl.contract.sql_types import MAX_PRECISION, parse_type, quoted
from airflow_gddl.contract.table_spec import SHARD_COLUMN, lowered
from spark_jobs.plan.file_times import BY_NAME, FileTimes
from spark_jobs.plan.loaded_transactions import LoadedTransactions
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.plan.schema_evolution import ColumnDefault
from spark_jobs.plan.source_snapshots import KnownSnapshots, SnapshotMarks
from spark_jobs.plan.types import convertible

_SCALARS: dict[pa.DataType, str] = {
    pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)",
    pa.float16(): "float", pa.float32(): "float", pa.float64(): "double",
    pa.string(): "string", pa.large_string(): "string", pa.string_view(): "string",
    pa.binary(): "binary", pa.large_binary(): "binary", pa.binary_view(): "binary",
    pa.date32(): "date", pa.null(): "void",
}  # fmt: skip


UNSUPPORTED = "unsupported "
"""Prefix of the type text of a column that no SQL type represents."""


class UnsupportedTypeError(Exception):
    """No SQL type represents this Arrow type; the message names it."""


def column_type(kind: pa.DataType) -> str:
    """As `sql_type`; for an unsupported type its name, which plans refuse unless the column is excluded."""
    try:
        return sql_type(kind)
    except UnsupportedTypeError as error:
        return UNSUPPORTED + re.sub(r"[^A-Za-z0-9_ \[\]]+", " ", str(error)).strip()


def sql_type(kind: pa.DataType) -> str:
    """SQL type text, e.g. `decimal(12,2)`, `array<int>`; timestamps in any unit are named alike, see `is_nanos`.

    Raises:
        UnsupportedTypeError: durations, unions, and other types without an equal in Delta.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return sql_type(kind.storage_type)
    if pt.is_dictionary(kind):
        return sql_type(kind.value_type)
    return _SCALARS.get(kind) or _with_parameters(kind) or _nested(kind)


def _with_parameters(kind: pa.DataType) -> str | None:
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pt.is_decimal(kind):
        return _decimal(kind)
    if pt.is_fixed_size_binary(kind):
        return "binary"
    return "string" if pt.is_time(kind) else None


def _decimal(kind: pa.DataType) -> str:
    """Decimals with too many digits for SQL are kept as text."""
    scale = max(kind.scale, 0)
    precision = max(kind.precision - kind.scale + scale, scale)
    return f"decimal({precision},{scale})" if precision <= MAX_PRECISION else "string"


def _nested(kind: pa.DataType) -> str:
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pt.is_map(kind):
        return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if pt.is_struct(kind):
        return f"struct<{','.join(f'{quoted(f.name)}:{sql_type(f.type)}' for f in kind)}>"
    raise UnsupportedTypeError(str(kind))


def is_nanos(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.unit == "ns")


INFLATED_BYTES = DEFAULT_TIERS["small"].inflated_bytes
_INFLATION = 250


def decoded_bytes(inflated_bytes: int, size: int) -> int:
    """How many bytes rows of a parquet or Avro file of this size may have in memory: large ones are read in parts, and
    a repeated value is stored once.

    Args:
        inflated_bytes: bound of the tier.
    """
    return max(inflated_bytes, _INFLATION * size)


@dataclass(frozen=True)
class RowRange:
    """Rows of a parquet file that are read together: a row group, or a slice of one that is large in memory.

    Attributes:
        group: number of the row group.
        start: number of the first row in the group.
        rows: how many.
        size: bytes in memory, as the footer states them.
        is_slice: the group has other rows.
    """

    group: int
    start: int
    rows: int
    size: int
    is_slice: bool = False


@dataclass(frozen=True)
class Probed:
    """A readable file.

    Attributes:
        columns: (name, SQL type) in file order; all `string` for CSV.
        rows: how many; null for CSV, whose rows are not counted before they are read.
        stated: (name, SQL type) of columns of text that have another type by the file's own schema: a value that is
            none of it is a misfit.
        wrapped: a parquet file inside a gzip stream.
        ranges: all rows of a parquet file that can be read in parts, in its order; empty for other files.
        translated: the dialect has translated its content, which is no table, into rows.
        table: those rows, until an engine has read them.
        malformed: of translated rows, the original text of those that are no rows (null elsewhere); None: all are.
        csv: how a CSV file is written; null unless it is CSV.
        prepared: its columns have the names and masks of the row, computed ones among them, since a capture wrote it.
        unavailable: columns without a value, since updates did not send theirs.
        only_truncates: it has no row but truncates, which say nothing of keys.
        is_whole: its writer has said so, so that the last line of CSV may lack its end.
        csv_carried: the last of its columns, which lists those that an update carries; None: all updates carry all.
        snapshot: what its events say of snapshots of the source; None: its dialect knows of none.
        defaults: of its columns, as its schema states them.
        bounds: of the tier, for reading it.
        content: see `contents.content_of`.
    """

    file: PlannedFile
    columns: tuple[tuple[str, str], ...]
    rows: int | None = None
    stated: tuple[tuple[str, str], ...] = ()
    wrapped: bool = False
    ranges: tuple[RowRange, ...] = field(default=(), compare=False)
    translated: bool = False
    table: pa.Table | None = field(default=None, compare=False, repr=False)
    malformed: pa.Array | None = field(default=None, compare=False, repr=False)
    csv: DmsOptions | None = None
    is_whole: bool = field(default=False, compare=False)
    prepared: bool = False
    unavailable: tuple[str, ...] = ()
    only_truncates: bool = field(default=False, compare=False)
    csv_carried: str | None = None
    snapshot: SnapshotMarks | None = field(default=None, compare=False)
    defaults: tuple[ColumnDefault, ...] = field(default=(), compare=False)
    inflated_bytes: int = field(default=INFLATED_BYTES, compare=False)
    content: str = field(default="", compare=False)

    @classmethod
    def of_table(
        cls,
        file: PlannedFile,
        table: pa.Table,
        malformed: pa.Array | None = None,
        stated: Mapping[str, pa.DataType] = MappingProxyType({}),
        snapshot: SnapshotMarks | None = None,
    ) -> Probed:
        """A file that the dialect has translated."""
        columns = tuple((f.name, column_type(f.type)) for f in table.schema)
        types = tuple((name, column_type(kind)) for name, kind in stated.items())
        return cls(file, columns, table.num_rows, types, translated=True, table=table, malformed=malformed,
                   snapshot=snapshot)  # fmt: skip

    @property
    def is_blank(self) -> bool:
        """Whether it has no line at all, and so no columns of its own."""
        return self.translated and not self.rows

    @property
    def signature(self) -> tuple[object, ...]:
        """Files with equal signatures are read together."""
        return (self.file.format, self.file.kind, self.columns, self.stated, self.prepared, self.unavailable)


@dataclass(frozen=True)
class Unreadable:
    file: PlannedFile
    code: str
    reason: str


def groups(files: Iterable[Probed]) -> list[tuple[Probed, ...]]:
    """Files by signature, groups in the order of their first file."""
    by_signature: dict[tuple[object, ...], list[Probed]] = {}
    for file in files:
        by_signature.setdefault(file.signature, []).append(file)
    return [tuple(group) for group in by_signature.values()]


def carried_list(names: Iterable[str], lacks: Mapping[str, Sequence[bool]], row: int) -> str | None:
    """A JSON array of the columns that a row carries, as a dialect delivers it; None: all.

    Args:
        lacks: column to a mask of the rows that lack its value; others lack none.
    """
    if not any(flags[row] for flags in lacks.values()):
        return None
    return json.dumps([name for name in names if not (name in lacks and lacks[name][row])], ensure_ascii=False)


TRUNCATE = "T"
"""Operation of a truncate: it deletes all rows before it in the order of changes, and has no key."""
LOADED = "LOADED"
"""Operation of a change that the table's load has read already: it is a re-delivery."""
KEYS_UNKNOWN = "KEYS_UNKNOWN"
"""Of a file with truncates alone that would begin a table."""


def begin_a_table(files: Iterable[Probed]) -> bool:
    """Whether these files can start a new table; without rows, or with truncates alone, none shows types of keys."""
    return any(not file.only_truncates and (not file.translated or file.rows) for file in files)


def that_wait(files: Iterable[Probed]) -> tuple[Unreadable, ...]:
    """Those of files that can't start a table which have to be taken once there is one."""
    why = "it has truncates alone, and there is no table yet"
    return tuple(Unreadable(one.file, KEYS_UNKNOWN, why) for one in files if one.only_truncates)


def with_keys(
    files: Sequence[Probed], spec: TableSpec, *, is_new: bool
) -> tuple[tuple[Probed, ...], tuple[Unreadable, ...]]:
    """The files without change files that lack a key column, and these: their rows can't be rows of the table.

    A load file that lacks one is kept: without it the load is not whole.

    Args:
        is_new: there is no table yet, so that its keys are wrong where no file has them.
    """
    lacking = {file.file.path: names for file in files if (names := _missing_keys(file, spec))}
    if is_new and len(lacking) == len(files):
        return tuple(files), ()
    kept: list[Probed] = []
    refused: list[Unreadable] = []
    for file in files:
        path = file.file.path
        if file.file.kind == "change" and path in lacking:
            reason = f"the file has no key column {', '.join(map(repr, lacking[path]))}"
            refused.append(Unreadable(file.file, FILE_KEY_MISSING, reason))
        else:
            kept.append(file)
    return tuple(kept), tuple(refused)


def _missing_keys(file: Probed, spec: TableSpec) -> list[str]:
    """Keys without a column in a file that has rows with keys."""
    if file.is_blank or file.only_truncates or not file.columns:
        return []
    has = {landed_name(renamed(name, spec)).lower() for name, _ in file.columns}
    return [key for key in spec.keys if key != SHARD_COLUMN and landed_name(key).lower() not in has]


@dataclass(frozen=True)
class Window:
    """One listing, relative to the landing folder: below `folder` (empty: all), names greater than `start_after`.

    Attributes:
        end_before: names from this one on are left out; empty: none is.
    """

    folder: str = ""
    start_after: str = ""
    end_before: str = ""

    @property
    def after(self) -> str | None:
        """`start_after` relative to `folder`; empty: all of the folder comes after it; None: none of it does."""
        below = f"{self.folder}/" if self.folder else ""
        if self.start_after < below:
            return ""
        return self.start_after[len(below) :] if self.start_after.startswith(below) else None

    def covers(self, relative_path: str) -> bool:
        if relative_path <= self.start_after or (self.end_before and relative_path >= self.end_before):
            return False
        return not self.folder or relative_path.startswith(f"{self.folder}/")


EVERYTHING = (Window(),)


class InputOpener(Protocol):
    """Opens files of the landing folder."""

    def open_input(self, path: str) -> BinaryIO: ...


@dataclass(frozen=True)
class Dialect(ABC):
    """A dialect bound to a row.

    Attributes:
        spec: the metadata row.
        options: the row's options, of the class that the dialect's descriptor names.
        bounds: of its tier, for reading files.
        loaded: see `names_transactions`; None: not known, or nothing was loaded. `is_loading`: it is not known yet.
        title: who writes such files, for messages.
        operations: the operations as the source names them, for messages.
        malformed: what is wrong with a row that a `Probed.malformed` marks.
        total_order: columns that the service may add, each of which orders changes totally; the first one
            present is used.
        of_one_length: texts in `total_order` compare only where they are equally long.
        log_positions: `total_order` holds positions in the source's log, of all keys, so that they grow with time.
        loads_apart: rows of a full load have files of their own; else they are among changes, as events.
        sends_again: the service may write a change again, into the same file too; `total_order` says that it is one.
        names_transactions: changes of PostgreSQL name theirs, so that without keys those that a load has read are known
            (`LOADED`).
        zoned_timestamps: columns of MySQL's type TIMESTAMP come as times with a zone.
    """

    spec: TableSpec
    options: Any
    inflated_bytes: int = INFLATED_BYTES
    loaded: LoadedTransactions | None = None
    is_loading: bool = False

    title: ClassVar[str]
    operations: ClassVar[str] = "I, U, D"
    malformed: ClassVar[str] = "the line has more or fewer fields than columns"
    total_order: ClassVar[tuple[str, ...]] = ()
    of_one_length: ClassVar[bool] = False
    log_positions: ClassVar[bool] = False
    loads_apart: ClassVar[bool] = True
    sends_again: ClassVar[bool] = False
    names_transactions: ClassVar[bool] = False
    zoned_timestamps: ClassVar[bool] = False

    @abstractmethod
    def classify(self, relative_path: str) -> Names | None:
        """Facts stated by a file's path below the landing folder; None unless it is a data file."""

    @abstractmethod
    def probe(self, storage: InputOpener, file: PlannedFile) -> Probed:
        """The content of a file: engines may read parquet and CSV themselves, other formats are returned as a table.

        The operation column holds `I`, `U`, `D`. Called from several threads.

        Raises:
            QuarantinableError: the file can't be read; `probe.reading` translates the usual errors.
        """

    @property
    @abstractmethod
    def op_column(self) -> str:
        """Column that holds the operation; it never reaches the lake."""

    @property
    def carried(self) -> str | None:
        """Column that is added to the source's, and lists the columns that an update carries; None: none is added."""
        return None

    @property
    def number(self) -> str | None:
        """Column that is added where events state it, and tells apart changes that share their place; None: none is."""
        return None

    @property
    def commit_times(self) -> Sequence[str]:
        """Columns that may hold the commit time; the first one present is used. They order changes, not totally."""
        return ()

    @property
    def missing_op(self) -> Literal["quarantine", "insert"]:
        """The operation of a change that states none."""
        return "quarantine"

    def is_temporary(self, relative_path: str) -> bool:
        """Whether a file other than a data file needs no warning."""
        return is_temporary(relative_path)

    def is_technical(self, column: str) -> bool:
        """Whether the service adds a column of this name."""
        times, technical = self._added
        return column.lower() in times or is_among(column, technical)

    @cached_property
    def _added(self) -> tuple[frozenset[str], tuple[str, ...]]:
        """Columns of commit times, in lower case, and what the descriptor names."""
        return lowered(self.commit_times), DIALECTS.get(self.spec.dialect).technical

    @property
    def times(self) -> FileTimes:
        """Times stated by the paths of change files."""
        return BY_NAME

    def file_order(self, path: str) -> str | None:
        """Sort key of a change file, by its path, in the order of changes of a key; None: the path has none."""
        return timed_order(path)

    def reordered(self, rows: pa.Table) -> pa.Table:
        """Stored changes with the columns of `total_order` as the row's options give them now."""
        return rows

    def replaced_snapshots(self, known: KnownSnapshots) -> KnownSnapshots:
        """Known snapshots with their places as the row's options give them now."""
        return known

    def windows(self, cursor: str, since: datetime, until: datetime) -> tuple[Window, ...]:  # noqa: ARG002 - for others
        """Listings that find every change file whose path states (`times`) a time from `since` on, or more.

        Args:
            cursor: relative path of the newest change file; `until`: a time after which no file has been written.
        """
        return EVERYTHING


def dialect_of(spec: TableSpec, tier: TierSpec | None = None) -> Dialect:
    """
    Args:
        tier: bounds what files may hold; None: those of a small one.

    Raises:
        FatalError: `DIALECT_UNKNOWN`, `DIALECT_BROKEN`; `SPEC_INVALID` for options that the dialect does not have, or
            whose values it refuses.
    """
    descriptor = DIALECTS.get(spec.dialect)
    options = codec.decode(DIALECTS.load(descriptor.options), with_defaults_of_mode(spec))
    check = descriptor.check if spec.options else None  # defaults are sound
    for problem in () if check is None else DIALECTS.load(check)(spec.options):
        raise FatalError(SPEC_INVALID, problem.message, where=f"{spec.table}, {problem.field}", remedy=problem.remedy)
    inflated_bytes = (tier or TierSpec()).inflated_bytes
    dialect = cast("type[Dialect]", DIALECTS.load(descriptor.reading))(spec, options, inflated_bytes)
    _require_technical(spec.dialect, dialect, descriptor.technical)
    if spec.keys and spec.columns_to_update is None:
        dialect = replace(dialect, spec=replace(spec, columns_to_update=dialect.carried))
    return dialect


def _require_technical(name: str, dialect: Dialect, technical: Sequence[str]) -> None:
    """Refuse a dialect that adds columns which histories would take for those of the source."""
    added = (*dialect.total_order, *filter(None, [dialect.carried, dialect.number]))
    if unlisted := [column for column in added if not is_among(column, technical)]:
        what = f"the dialect {name!r} adds {', '.join(unlisted)}, which `technical` of its descriptor lacks"
        raise FatalError(DIALECT_BROKEN, what, remedy="correct or reinstall the package that brings it")


@dataclass(frozen=True)
class SortOrder:
    """How a table's changes are ordered.

    Attributes:
        columns: names compared left to right.
        total: false where it is only the commit time, which two changes can share.
    """

    columns: tuple[str, ...]
    total: bool


def match(names: Iterable[str], wanted: str | None) -> str | None:
    """A column's name as delivered: an exact match first, then one ignoring case; null when it is absent."""
    if wanted is None:
        return None
    names = list(names)
    if wanted in names:
        return wanted
    return next((name for name in names if name.lower() == wanted.lower()), None)


def resolve_sequence(
    dialect: Dialect, change_columns: Sequence[Iterable[str]], load_columns: Sequence[Iterable[str]]
) -> SortOrder | None:
    """The columns that order changes: the row's own, else the dialect's choice.

    Args:
        change_columns: column names of each group of change files at hand.
        load_columns: those of LOAD files, used only without change files.

    Returns:
        None while there is only a full load without any such column; the first change files decide.

    Raises:
        FatalError: `SEQUENCE_MISSING` when change files have none.
    """
    spec = dialect.spec
    if spec.sequence_by:
        return SortOrder(spec.sequence_by, total=True)
    usual = (*dialect.total_order, *dialect.commit_times)
    for groups in (change_columns, load_columns):
        for candidates, total in ((dialect.total_order, True), (dialect.commit_times, False)):
            for wanted in candidates:
                if any(match(names, wanted) for names in groups):
                    return SortOrder((wanted,), total)
        if groups is change_columns and change_columns:
            raise FatalError(
                SEQUENCE_MISSING,
                f"{spec.table}: none of {', '.join(usual)} is in its change files",
                remedy="name the columns that order its changes in `sequence_by`",
            )
    return None


def sequence_type(name: str, types: Iterable[str], dialect: Dialect) -> str:
    """The type a sequence column is kept in, from the types it is delivered with (first one decides).

    Whole numbers are kept as bigint and times as timestamp, so that a narrower file changes nothing. Times that are
    declared as text are kept as text with all digits.
    """
    declared = next((v for k, v in dialect.options.types.items() if k.lower() == name.lower()), None)
    first = declared or next((t for t in types if t != "void"), "string")
    if declared is None and first == "string" and any(name.lower() == t.lower() for t in dialect.commit_times):
        return "timestamp"
    if first in ("tinyint", "smallint", "int", "bigint"):
        return "bigint"
    return "timestamp" if first.startswith("timestamp") else first


def declared_types(columns: Mapping[str, str], dialect: Dialect) -> dict[str, str]:
    """Columns that have another type in `options.types`: file column to SQL type.

    Text is read as the declared type; a column of any scalar type but bytes becomes text where that is declared. A
    before image has the type of its column.
    """
    declared = {name.lower(): kind for name, kind in dialect.options.types.items()}
    prefix = dialect.spec.before_image_prefix
    images = {} if prefix is None else {(prefix + name).lower(): kind for name, kind in declared.items()}
    known = images | declared
    exact = {name for name in columns if name in dialect.options.types}
    kinds = {name: known[name.lower()] for name in columns if name.lower() in known}
    kinds = {name: dialect.options.types.get(name, kind) for name, kind in kinds.items()
             if name in exact or not any(name.lower() == other.lower() for other in exact)}  # fmt: skip
    texts = lowered(declared_texts(dialect)) | lowered(images)
    return {
        name: kind for name, kind in kinds.items()
        if columns[name] == "string" or (name.lower() in texts and _is_text_of(columns[name], kind))
    }  # fmt: skip


def _is_text_of(delivered: str, declared: str) -> bool:
    kind = parse_type(delivered)
    return declared == "string" and delivered not in ("void", "binary") and convertible(kind, parse_type(declared))


def declared_texts(dialect: Dialect) -> tuple[str, ...]:
    """Columns that the row declares to be text; a column of the sequence is so only in `_gddl.sequence`."""
    ordered = lowered(dialect.spec.sequence_by)
    return tuple(n for n, kind in dialect.options.types.items() if kind == "string" and n.lower() not in ordered)


def texts_of(dialect: Dialect, typed: Iterable[str]) -> tuple[str, ...]:
    """Columns that are text by the row: declared so, or no more of the type that an entry of `options.types` gave them.

    Args:
        typed: see `TableState.typed`.
    """
    named = lowered((*dialect.options.types, *dialect.spec.sequence_by))
    return (*declared_texts(dialect), *(name for name in typed if name.lower() not in named))


def applied_columns(dialect: Dialect, sequence: Sequence[str]) -> frozenset[str]:
    """Columns, in lower case, without which a row of the quarantine can't be replayed, excluded or not."""
    spec = dialect.spec
    order = sequence if spec.sequence_by else (*sequence, *dialect.total_order)
    named = (*order, *dialect.commit_times, spec.columns_to_update, spec.force_update, dialect.carried)
    return lowered(name for name in named if name is not None)
