"""Derives findings from the content of a folder; pure.

Files of Debezium: whether they hold events, and whether flat ones have what decides their changes.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract import codec
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import COMMIT_TIMES, TOTAL_ORDER, DebeziumOptions, DmsOptions
from airflow_gddl.contract.file_names import is_temporary
from airflow_gddl.contract.flat_events import FlatForm, is_envelope
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.onboarding.csv_settings import SAMPLED_BYTES, csv_settings
from airflow_gddl.onboarding.landing import Footer, LandedName, Landing, TableFolder, before_prefix, landing_rows
from airflow_gddl.stores.readers import GZIP_MAGIC

Level = Literal["error", "warning"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem of the service's configuration.

    Attributes:
        code: stable, listed in docs/codes.md.
        level: `error`: rows or their order are lost; `warning`: performance or risk.
        message: the problem and its effect.
        file, evidence: location and value.
        setting: setting to change in the task or its target endpoint.
    """

    table: str
    code: str
    level: Level
    message: str
    file: str
    evidence: str
    setting: str


@dataclass(frozen=True)
class KnownFinding:
    """A finding without its location."""

    code: str
    level: Level
    message: str
    setting: str

    def at(self, table: str, file: str, evidence: str) -> Finding:
        return Finding(table=table, file=file, evidence=evidence, **vars(self))


_ADD_SEQUENCE = (
    'table mapping: a rule of type "transformation", rule-target "column", rule-action "add-column", value'
    ' "AR_H_CHANGE_SEQ", expression "$AR_H_CHANGE_SEQ", data-type {"type": "string", "length": 35}'
)
NO_SEQUENCE = KnownFinding(
    "INSPECT_NO_SEQUENCE",
    "error",
    "change files have nothing that states the order of changes: the table can't be replicated",
    _ADD_SEQUENCE,
)
ORDER_BY_COMMIT_TIME = KnownFinding(
    "INSPECT_ORDER_BY_COMMIT_TIME",
    "error",
    "changes are ordered by their commit time, which all changes of a transaction share",
    _ADD_SEQUENCE,
)
TEXT_TIMESTAMPS = KnownFinding(
    "INSPECT_TEXT_TIMESTAMPS",
    "warning",
    "times come as text: no range of them can be pruned, and they are times only where the row declares it",
    'table mapping: data-type {"type": "datetime", "precision": 6} in the rule that adds the column (rule-action'
    ' "add-column"), or rule-action "change-data-type" for a column of the source; for the commit time the endpoint\'s'
    " TimestampColumnName with DataFormat parquet. Until then: options.types of the row",
)
SMALL_ROW_GROUPS = KnownFinding(
    "INSPECT_SMALL_ROW_GROUPS",
    "warning",
    "row groups are so small that reading costs more than the rows",
    "endpoint: RowGroupLength (rows of a row group; 10000 if not set), e.g. 100000; and MaxFileSize",
)
FULL_LOAD_WITHOUT_OP = KnownFinding(
    "INSPECT_FULL_LOAD_WITHOUT_OP",
    "warning",
    "full-load files have no operation column, but change files have one",
    "endpoint: IncludeOpForFullLoad true",
)
LOB_TRUNCATED = KnownFinding(
    "INSPECT_LOB_TRUNCATED",
    "error",
    "several values end at the same whole number of kilobytes: large objects have probably been cut",
    "task settings, TargetMetadata: a larger LobMaxSize (kilobytes) under LimitedSizeLobMode, or FullLobMode true; then"
    " load the table again",
)
MIXED_TIMESTAMP_UNITS = KnownFinding(
    "INSPECT_MIXED_TIMESTAMP_UNITS",
    "warning",
    "times come in different units: their precision depends on the file",
    "endpoint: the same ParquetTimestampInMillisecond for every task that writes here; then load the table again",
)
NO_BEFORE_IMAGES = KnownFinding(
    "INSPECT_NO_BEFORE_IMAGES",
    "error",
    "keys are updated, and nothing states the old key: the row under it stays in the replica",
    'table mapping: rule-action "add-before-image-columns", before-image-def {"column-prefix": "BI_", "column-suffix":'
    ' "", "column-filter": "pk-only"} (for Kinesis and Kafka the task setting BeforeImageSettings); then'
    " before_image_prefix: BI_ in the metadata row",
)
NOT_PARQUET = KnownFinding(
    "INSPECT_NOT_PARQUET",
    "warning",
    "CSV has no types, and truncated files can't be detected; the content was not checked",
    "endpoint: DataFormat parquet, ParquetVersion parquet-2-0",
)
CSV_SETTING = KnownFinding(
    "INSPECT_CSV_SETTING",
    "error",
    "CSV is written by a setting that the metadata row's options don't say: rows or values would be read as others",
    "row: the option named, as the endpoint has it: csv_row_delimiter (CsvRowDelimiter), csv_quotes (Rfc4180),"
    " csv_no_sup (CsvNoSupValue), csv_null (CsvNullValue), csv_columns and csv_added (columns in order)",
)
FILE_UNREADABLE = KnownFinding(
    "INSPECT_FILE_UNREADABLE",
    "error",
    "a file that can't be read; its content was not checked",
    "load the table again (`reload-tables`), so that the service rewrites it",
)


MOST_KEYED_ROWS = 1_000_000
"""Maximum number of rows for tracking keys across files."""
_SAMPLED_FILES, _MOST_BYTES, _MOST_ROWS = 3, 64 * 1024**2, 50_000
_LEAST_CUT = 1024
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")


@dataclass(frozen=True, kw_only=True)
class InspectedFiles:
    """A location and its value."""

    file: str
    value: str


@dataclass(frozen=True, kw_only=True)
class InspectionRequest:
    """Content of one table's folder.

    Attributes:
        spec: its metadata row; None: it has none.
        times: text columns whose values are times, with one of them.
        cut: columns with several longest values that end at a whole number of kilobytes.
        csv: options that the newest change file of CSV contradicts.
        updates_without_row: updates of keys that no earlier row had; None: keys could not be tracked.
    """

    folder: TableFolder
    spec: TableSpec | None = None
    times: Mapping[str, InspectedFiles] = field(default_factory=dict)
    cut: Mapping[str, InspectedFiles] = field(default_factory=dict)
    csv: Mapping[str, InspectedFiles] = field(default_factory=dict)
    updates_without_row: tuple[InspectedFiles, ...] | None = None


def service_columns(spec: TableSpec | None) -> DmsOptions:
    """Only the names of the service's columns, as the row sets them."""
    known = {} if spec is None else spec.options
    return DmsOptions(**{name: known[name] for name in ("op_column", "timestamp_column") if name in known})


def inspect_folder(landing: Landing, folder: TableFolder, spec: TableSpec | None) -> InspectionRequest:
    """Reads a few files of a table, and the key columns of all of them where they are few."""
    times: dict[str, InspectedFiles] = {}
    lengths: dict[str, _Longest] = {}
    damaged: dict[str, str] = {}
    for file in _sample(folder):
        try:
            texts = list(_texts(landing, folder.table, file))
        except (OSError, EOFError, pa.ArrowException, ValueError) as error:
            damaged[file.name] = f"{type(error).__name__}: {error}"[:200]
            continue
        for column, values in texts:
            if pt.is_string(values.type) and column not in times and (time_value := _time(values)) is not None:
                times[column] = InspectedFiles(file=file.name, value=time_value)
            lengths.setdefault(column, _Longest()).take(file.name, values)
    folder = replace(folder, unreadable={**folder.unreadable, **damaged})
    cut = {column: longest.seen for column, longest in lengths.items() if longest.is_cut}
    return InspectionRequest(
        folder=folder, spec=spec, times=times, cut=cut, csv=_csv_settings(landing, folder, spec),
        updates_without_row=_updates_without_row(landing, folder, spec),
    )  # fmt: skip


def _csv_settings(landing: Landing, folder: TableFolder, spec: TableSpec | None) -> Mapping[str, InspectedFiles]:
    plain = [file for file in folder.files if file.format == "csv" and file.kind == "change"]
    if not plain:
        return {}
    file = plain[-1]
    try:
        options = codec.decode(DmsOptions, {} if spec is None else dict(spec.options))
        contradictions = csv_settings(landing.beginning(folder.table, file, SAMPLED_BYTES), options)
    except (OSError, EOFError, ValueError, FatalError):
        return {}
    return {name: InspectedFiles(file=file.name, value=f"{name}: {said}") for name, said in contradictions.items()}


def _sample(folder: TableFolder) -> Iterator[LandedName]:
    """The newest files of each kind whose footers could be read."""
    for kind in ("load", "change"):
        fit = [footer.file for footer in folder.footers if footer.file.kind == kind and footer.file.size <= _MOST_BYTES]
        yield from fit[-_SAMPLED_FILES:]


def _texts(landing: Landing, table: str, file: LandedName) -> Iterator[tuple[str, pa.Array]]:
    """Text and binary columns, the first rows of them."""
    with landing.parquet(table, file) as parquet:
        names = [f.name for f in parquet.schema_arrow if pt.is_string(f.type) or pt.is_binary(f.type)]
        batches = parquet.iter_batches(batch_size=_MOST_ROWS, columns=names, use_threads=False)
        batch = next(batches, None) if names else None
        yield from () if batch is None else zip(batch.schema.names, batch.columns, strict=True)


def _time(values: pa.Array) -> str | None:
    """The first value, if all of the first hundred are times; None: they are not, or there are none."""
    first = values.drop_null().slice(0, 100).to_pylist()
    return str(first[0]) if first and all(_TIME.fullmatch(value) for value in first) else None


@dataclass
class _Longest:
    """The longest values of a column."""

    length: int = 0
    file: str = ""
    hashes: set[int] = field(default_factory=set)

    def take(self, file: str, values: pa.Array) -> None:
        lengths = pc.binary_length(values)
        longest = pc.max(lengths).as_py() or 0
        if longest > self.length:
            self.length, self.file, self.hashes = longest, file, set()
        if self._is_suspect and longest == self.length:
            # Equal values in several files count once; full values of a fixed-width column are not truncated.
            longest_values = values.filter(pc.equal(lengths, longest)).unique().cast(pa.binary()).to_pylist()
            self.hashes |= {hash(value) for value in longest_values if value[-1:] not in (b" ", b"\0")}

    @property
    def _is_suspect(self) -> bool:
        return self.length >= _LEAST_CUT and self.length % _LEAST_CUT == 0

    @property
    def is_cut(self) -> bool:
        return self._is_suspect and len(self.hashes) > 1

    @property
    def seen(self) -> InspectedFiles:
        size = self.length // _LEAST_CUT
        return InspectedFiles(file=self.file, value=f"{len(self.hashes)} values of exactly {size} KB, none longer")


def _updates_without_row(
    landing: Landing, folder: TableFolder, spec: TableSpec | None
) -> tuple[InspectedFiles, ...] | None:
    """Updates of a key that neither the full load nor an earlier insert had."""
    files = [file for file in folder.files if file.format == "parquet"]
    rows = landing_rows(files, folder.footers) or 0
    few = rows <= MOST_KEYED_ROWS and len(files) <= 1000
    if spec is None or not spec.keys or not folder.of("load") or not few or folder.unreadable:
        return None
    known: set[tuple[Any, ...]] = set()
    inspected: list[InspectedFiles] = []
    spelled = {column.lower(): column for footer in folder.footers for column in footer.columns}
    operation, *keys = (spelled.get(name.lower(), name) for name in (service_columns(spec).op_column, *spec.keys))
    for file in files:
        for batch in landing.read(folder.table, [file], [*keys, operation]):
            if not set(keys) <= set(batch.schema.names):
                return None
            inspected += _follow(file, _keyed(batch, keys, operation), known)
    return tuple(inspected)


def _keyed(batch: pa.Table, keys: Sequence[str], operation: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    there = operation in batch.schema.names
    operations = batch[operation].to_pylist() if there else ["I"] * batch.num_rows
    yield from zip(operations, zip(*(batch[key].to_pylist() for key in keys), strict=True), strict=True)


def _follow(
    file: LandedName, rows: Iterator[tuple[str, tuple[Any, ...]]], known: set[tuple[Any, ...]]
) -> Iterator[InspectedFiles]:
    for operation, key in rows:
        if operation == "U" and key not in known:
            yield InspectedFiles(
                file=file.name, value=f"update of {key if len(key) > 1 else key[0]!r}, which no row had before"
            )
        known.add(key)


LEAST_GROUP_ROWS, LEAST_GROUP_BYTES = 5_000, 1024**2
"""Row groups with fewer rows and bytes on the average, in a file of several, are small."""


def judge(request: InspectionRequest) -> tuple[Finding, ...]:
    """All findings of a table, in the order of the rules."""
    return tuple(finding for rule in _RULES for finding in rule(request))


def _order(request: InspectionRequest) -> Iterator[Finding]:
    changes = request.folder.footers_of("change")
    if not changes:
        return
    newest, table = changes[-1], request.folder.table
    sequence_columns = () if request.spec is None else request.spec.sequence_by
    times = tuple(name for name in (service_columns(request.spec).timestamp_column, *COMMIT_TIMES) if name)
    if sequence_columns and not _lower(sequence_columns) <= _lower(times):
        missing = [name for name in sequence_columns if name.lower() not in _lower(newest.columns)]
        if missing:
            evidence = f"sequence_by names {missing[0]}, which the file lacks"
            yield NO_SEQUENCE.at(table, newest.file.name, evidence)
        return
    if _lower(TOTAL_ORDER) & _lower(newest.columns) and not sequence_columns:
        return
    time_columns = [name for name in newest.columns if name.lower() in _lower(times)]
    columns = f"columns {', '.join(newest.columns)}"
    if time_columns:
        yield ORDER_BY_COMMIT_TIME.at(
            table, newest.file.name, f"{time_columns[0]}, and none of {', '.join(TOTAL_ORDER)}"
        )
    else:
        yield NO_SEQUENCE.at(table, newest.file.name, columns[:300])


def _text_findings(request: InspectionRequest) -> Iterator[Finding]:
    declared = _lower(() if request.spec is None else request.spec.options.get("types", {}))
    for column, seen in request.times.items():
        if column.lower() not in declared:
            yield TEXT_TIMESTAMPS.at(request.folder.table, seen.file, f"{column} holds {seen.value!r}, as text")


def _groups(request: InspectionRequest) -> Iterator[Finding]:
    small = [footer for footer in request.folder.footers if _has_small_groups(footer)]
    if small:
        worst = max(small, key=lambda footer: len(footer.group_rows))
        average = worst.rows / len(worst.group_rows)
        evidence = f"{len(worst.group_rows)} row groups of {average:,.0f} rows; {len(small)} such files"
        yield SMALL_ROW_GROUPS.at(request.folder.table, worst.file.name, evidence)


def _has_small_groups(footer: Footer) -> bool:
    groups = len(footer.group_rows)
    if groups < 2 or footer.rows >= LEAST_GROUP_ROWS * groups:
        return False
    return sum(footer.group_bytes) < LEAST_GROUP_BYTES * groups


def _operation(request: InspectionRequest) -> Iterator[Finding]:
    loads, changes = request.folder.footers_of("load"), request.folder.footers_of("change")
    name = service_columns(request.spec).op_column
    bare = [footer for footer in loads if name.lower() not in _lower(footer.columns)]
    if bare and any(name.lower() in _lower(footer.columns) for footer in changes):
        evidence = f"first column {next(iter(bare[0].columns), '(none)')}; change files have {name}"
        yield FULL_LOAD_WITHOUT_OP.at(request.folder.table, bare[0].file.name, evidence)


def _large_objects(request: InspectionRequest) -> Iterator[Finding]:
    for column, seen in request.cut.items():
        yield LOB_TRUNCATED.at(request.folder.table, seen.file, f"{column}: {seen.value}")


def _units(request: InspectionRequest) -> Iterator[Finding]:
    """One unit for all times of a table; a column that changes its unit is named, else two columns that differ."""
    first: dict[str, tuple[str, str, str]] = {}
    for footer in request.folder.footers:
        for column, kind in footer.columns.items():
            if not kind.startswith("timestamp["):
                continue
            unit = kind[len("timestamp[") :].partition(",")[0].rstrip("]")
            other = first.setdefault(column, (unit, column, footer.file.name))
            other = other if other[0] != unit else next((o for o in first.values() if o[0] != unit), other)
            if other[0] != unit:
                evidence = f"{column} in {unit}, {other[1]} in {other[0]} ({other[2]})"
                yield MIXED_TIMESTAMP_UNITS.at(request.folder.table, footer.file.name, evidence)
                return


def _before_images(request: InspectionRequest) -> Iterator[Finding]:
    changes = request.folder.footers_of("change")
    prefix = None if request.spec is None else request.spec.before_image_prefix
    table = request.folder.table
    if prefix is not None and changes and not any(name.startswith(prefix) for name in changes[-1].columns):
        evidence = f"before_image_prefix is {prefix}, and no column begins with it"
        yield NO_BEFORE_IMAGES.at(table, changes[-1].file.name, evidence)
    elif request.updates_without_row and not (changes and before_prefix(changes[-1].columns)):
        evidence = f"{request.updates_without_row[0].value}; {len(request.updates_without_row)} such updates"
        yield NO_BEFORE_IMAGES.at(table, request.updates_without_row[0].file, evidence)


def _format(request: InspectionRequest) -> Iterator[Finding]:
    plain = [file for file in request.folder.files if file.format == "csv"]
    if plain:
        number = f"{len(plain)} file{'s' if len(plain) > 1 else ''}"
        yield NOT_PARQUET.at(request.folder.table, plain[0].name, number)
    for setting in request.csv.values():
        yield CSV_SETTING.at(request.folder.table, setting.file, setting.value)
    for name, why in request.folder.unreadable.items():
        yield FILE_UNREADABLE.at(request.folder.table, name, why)


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


_RULES = (_order, _text_findings, _groups, _operation, _large_objects, _units, _before_images, _format)


_SAMPLED_EVENT_FILES, _SAMPLED_RECORDS, _MOST_EVENT_BYTES = 3, 100, 64 * 1024**2
_ENDINGS = (".json", ".jsonl", ".ndjson", ".parquet", ".gz")
_WRITTEN_AGAIN = "let the sink write the file again"

NO_EVENTS = KnownFinding(
    "INSPECT_NO_EVENTS",
    "error",
    "no record is a change event: nothing states operations and their order",
    "connector: no ExtractNewRecordState, or its settings delete.tombstone.handling.mode=rewrite and add.fields",
)


def debezium_findings(landing: Landing, table: str, spec: TableSpec) -> tuple[bool, tuple[Finding, ...]]:
    """Whether the table has files, and the findings of the newest ones, each code once.

    Args:
        table: name of its folder.
    """
    there = [file for file in landing.store.list(landing.folder(table)) if not is_temporary(file.name)]
    files = sorted((f for f in there if f.name.lower().endswith(_ENDINGS)), key=lambda f: f.modified, reverse=True)
    findings: dict[tuple[str, str], Finding] = {}
    for file in [file for file in files if file.size <= _MOST_EVENT_BYTES][:_SAMPLED_EVENT_FILES]:
        for finding in _of_file(landing, table, file.name, spec):
            findings.setdefault((finding.code, finding.message), finding)
    return bool(files), tuple(findings.values())


def _of_file(landing: Landing, table: str, name: str, spec: TableSpec) -> Iterator[Finding]:
    options = codec.decode(DebeziumOptions, dict(spec.options))
    flat = FlatForm.of(spec, options, name)
    try:
        with landing.store.open_input(join(landing.folder(table), name)) as stream:
            records = [row for row in _records(stream, flat) if row is not None]
    except (OSError, EOFError, zlib.error, pa.ArrowException, ValueError, RecursionError) as error:
        known = replace(FILE_UNREADABLE, setting=_WRITTEN_AGAIN)
        yield known.at(table, name, f"{type(error).__name__}: {error}"[:200])
        return
    rows = [row for row in records if isinstance(row, Mapping)]
    for row in rows:
        if flat.is_flat(row):
            try:
                flat.enveloped(row)
            except FatalError as error:
                incomplete = KnownFinding("INSPECT_FLAT_EVENT_INCOMPLETE", "error", error.what, error.remedy or "")
                yield incomplete.at(table, name, f"fields {', '.join(row)}"[:300])
                return
    if records and not any(flat.is_flat(row) or is_envelope(row) for row in rows):
        yield NO_EVENTS.at(table, name, f"fields {', '.join(rows[0])}"[:300] if rows else f"{records[0]!r}"[:300])


def _records(stream: BinaryIO, flat: FlatForm) -> Iterator[Any]:
    """The first records of a file, without wrappers; None: a tombstone."""
    head = stream.read(len(GZIP_MAGIC) + 2)
    stream.seek(0)
    if head == b"PAR1":
        batch = next(
            pq.ParquetFile(stream, coerce_int96_timestamp_unit="us").iter_batches(_SAMPLED_RECORDS, use_threads=False),
            None,
        )
        records: Sequence[Any] = () if batch is None else batch.to_pylist()
    else:
        records = list(_parsed(gzip.GzipFile(fileobj=stream) if head.startswith(GZIP_MAGIC) else stream))
    for record in records:
        yield _bare(record, flat)


def _parsed(lines: Any) -> Iterator[Any]:
    for line in itertools.islice(lines, _SAMPLED_RECORDS):
        text = line.decode("utf-8-sig", "replace").strip()
        if text.startswith("["):  # all events in an array
            yield from json.loads(text + b"".join(lines).decode("utf-8", "replace"))[:_SAMPLED_RECORDS]
            return
        if text:
            yield json.JSONDecoder().raw_decode(text)[0]


def _bare(record: Any, flat: FlatForm) -> Any:
    value = json.loads(record) if isinstance(record, str) else record
    while isinstance(value, Mapping) and "op" not in value and not flat.is_flat(value):
        if "payload" not in value and "value" not in value:
            break
        value = value["payload" if "payload" in value else "value"]
    return value
