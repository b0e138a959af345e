"""Judges files of Debezium: whether they hold events, and whether flat ones have what decides their changes."""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract import codec
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import DebeziumOptions
from airflow_gddl.contract.file_names import is_temporary
from airflow_gddl.contract.flat_events import FlatForm, is_envelope
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.onboarding.inspection import FILE_UNREADABLE, Finding, KnownFinding
from airflow_gddl.onboarding.landing import Landing
from airflow_gddl.stores.readers import GZIP_MAGIC

_SAMPLED_FILES, _SAMPLED_RECORDS, _MOST_BYTES = 3, 100, 64 * 1024**2
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
    found: dict[tuple[str, str], Finding] = {}
    for file in [file for file in files if file.size <= _MOST_BYTES][:_SAMPLED_FILES]:
        for finding in _of_file(landing, table, file.name, spec):
            found.setdefault((finding.code, finding.message), finding)
    return bool(files), tuple(found.values())


def _of_file(landing: Landing, table: str, name: str, spec: TableSpec) -> Iterator[Finding]:
    options = cast("DebeziumOptions", codec.decode(DebeziumOptions, dict(spec.options)))
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
    """The first records of a file, without wrappers; null: a tombstone."""
    head = stream.read(len(GZIP_MAGIC) + 2)
    stream.seek(0)
    if head == b"PAR1":
        batch = next(pq.ParquetFile(stream).iter_batches(_SAMPLED_RECORDS, use_threads=False), None)
        found: Sequence[Any] = () if batch is None else batch.to_pylist()
    else:
        found = list(_parsed(gzip.GzipFile(fileobj=stream) if head.startswith(GZIP_MAGIC) else stream))
    for record in found:
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
