"""An AWS DMS task: its table mapping, and the settings of its S3 endpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from airflow_gddl.contract.extensions import DateDelimiter, DatePartition, escaped
from airflow_gddl.tools.onboarding.from_files.model import (
    ImportedSource,
    Renaming,
    Selection,
    Told,
    is_true,
    not_carried,
)
from airflow_gddl.tools.onboarding.rules import KeyFact, Notice

WHAT = "the table mapping of an AWS DMS task, its description, or the settings of its S3 endpoint"
_WRAPPERS = ("ReplicationTasks", "Endpoints", "ReplicationTask", "Endpoint")
_PARTS = ("rules", "TableMappings", "S3Settings", "ReplicationTaskSettings", "FullLoadSettings", "DataFormat")


def knows(document: Any) -> bool:
    """Whether it is such a document."""
    return isinstance(document, Mapping) and not {*document}.isdisjoint((*_WRAPPERS, *_PARTS))


def read(document: Mapping[str, Any]) -> ImportedSource:
    """The tables and settings; those of several tasks together."""
    rules: list[Mapping[str, Any]] = []
    told: list[Told] = []
    notices: list[Notice] = []
    for part in _unwrapped(document):
        if "rules" in part:
            rules += part["rules"]
        if "DataFormat" in part or "BucketName" in part:
            fields = _settings(part, notices)
            told.append(Told(fields=fields))
        preparation = part.get("FullLoadSettings", {}).get("TargetTablePrepMode", "DO_NOTHING")
        if preparation != "DO_NOTHING":
            what = f"TargetTablePrepMode is {preparation}, which removes change files when a table is loaded again"
            notices.append(not_carried("task settings", what, "set DO_NOTHING in the task"))
    selections = [_selection(rule, notices) for rule in rules if rule["rule-type"] == "selection"]
    for rule in rules:
        told += _rule(rule, notices)
    names = dict.fromkeys(name for s in selections if not s.is_excluded and (name := _literal(s.pattern)))
    return ImportedSource(tables=tuple(names), selections=tuple(selections), told=tuple(told), notices=tuple(notices))


def _unwrapped(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The documents inside, of which some are text."""
    yield document
    for name in _WRAPPERS:
        inner = document.get(name, ())
        for one in inner if isinstance(inner, list) else (inner,):
            yield from _unwrapped(one) if isinstance(one, Mapping) else ()
    for name in ("TableMappings", "ReplicationTaskSettings", "S3Settings"):
        value = document.get(name)
        if value:
            yield json.loads(value) if isinstance(value, str) else value


# Rules


def _pattern(locator: Mapping[str, Any]) -> re.Pattern[str]:
    """`%` stands for any characters, `_` for one, and what is in brackets for itself."""
    return re.compile(rf"{_wildcards(locator.get('schema-name', '%'))}\.{_wildcards(locator.get('table-name', '%'))}")


def _wildcards(text: str) -> str:
    parts = re.findall(r"\[(.)\]|(.)", text, re.DOTALL)
    return "".join(
        re.escape(own or one) if own or one not in "%_" else {"%": ".*", "_": "."}[one] for own, one in parts
    )


def _literal(pattern: re.Pattern[str]) -> str | None:
    """The one table of a pattern; None: it has wildcards."""
    name = re.sub(r"\\(.)", r"\1", pattern.pattern)
    return name if pattern.pattern == re.escape(name) else None


def _selection(rule: Mapping[str, Any], notices: list[Notice]) -> Selection:
    where = f"rule {rule.get('rule-id', '?')}"
    if rule["object-locator"].get("table-type", "table") != "table":
        way_out = "a view has no changes; take its tables, or `mode: snapshots`"
        notices.append(not_carried(where, f"it selects {rule['object-locator']['table-type']}", way_out))
    if rule.get("load-order"):
        notices.append(not_carried(where, "load-order", "`priority` of the metadata row, or `depends_on`"))
    return Selection(pattern=_pattern(rule["object-locator"]), is_excluded=rule["rule-action"] == "exclude")


def _rule(rule: Mapping[str, Any], notices: list[Notice]) -> Iterator[Told]:
    kind, where = rule["rule-type"], f"rule {rule.get('rule-id', '?')}"
    if kind == "selection" and rule.get("filters"):
        condition = " and ".join(map(_filter, rule["filters"]))
        yield Told(pattern=_pattern(rule["object-locator"]), filter=condition)
        way_out = "the task goes on filtering; without the task, write it as `where` of the metadata row"
        notices.append(not_carried(where, f"the filter {condition}", way_out))
    elif kind == "transformation":
        yield from _transformation(rule, where, notices)
    elif kind not in ("selection", "table-settings"):
        notices.append(not_carried(where, f"the rule type {kind}", "it stays a setting of the task"))


_OPERATORS: Mapping[str, str] = {
    "eq": "{c} = {v}", "noteq": "{c} <> {v}", "lte": "{c} <= {v}", "ste": "{c} <= {v}", "gte": "{c} >= {v}",
    "between": "{c} between {s} and {e}", "notbetween": "{c} not between {s} and {e}", "null": "{c} is null",
    "notnull": "{c} is not null",
}  # fmt: skip


def _filter(one: Mapping[str, Any]) -> str:
    """The conditions of a filter, of which one has to hold."""
    column = one["column-name"]
    each = [
        _OPERATORS[c["filter-operator"]].format(
            c=column, v=_value(c.get("value")), s=_value(c.get("start-value")), e=_value(c.get("end-value"))
        )
        for c in one["filter-conditions"]
    ]
    return each[0] if len(each) == 1 else f"({' or '.join(each)})"


def _value(text: Any) -> str:
    plain = str(text)
    return plain if re.fullmatch(r"-?\d+(\.\d+)?", plain) else "'" + plain.replace("'", "''") + "'"


_NAMES: Mapping[str, Callable[[str, str, str], str]] = {
    "rename": lambda name, value, old: value,  # noqa: ARG005 - the same arguments for all
    "convert-lowercase": lambda name, value, old: name.lower(),  # noqa: ARG005 - as above
    "convert-uppercase": lambda name, value, old: name.upper(),  # noqa: ARG005 - as above
    "add-prefix": lambda name, value, old: value + name,  # noqa: ARG005 - as above
    "add-suffix": lambda name, value, old: name + value,  # noqa: ARG005 - as above
    "remove-prefix": lambda name, value, old: name.removeprefix(value),  # noqa: ARG005 - as above
    "remove-suffix": lambda name, value, old: name.removesuffix(value),  # noqa: ARG005 - as above
    "replace-prefix": lambda name, value, old: value + name[len(old):] if name.startswith(old) else name,
    "replace-suffix": lambda name, value, old: name[: -len(old)] + value if name.endswith(old) else name,
}  # fmt: skip
_OF_FILES = ("remove-column", "change-data-type", "include-column")
"""What files show by themselves: fewer columns, or other types."""


def _transformation(rule: Mapping[str, Any], where: str, notices: list[Notice]) -> Iterator[Told]:
    action, target, pattern = rule["rule-action"], rule["rule-target"], _pattern(rule["object-locator"])
    if target in ("schema", "table", "column") and action in _NAMES:
        yield _named(rule, pattern)
    elif action == "define-primary-key":
        key = KeyFact(columns=tuple(rule["primary-key-def"]["columns"]), evidence=f"primary key of {where}")
        yield Told(pattern=pattern, keys=key)
    elif action == "add-before-image-columns":
        images = rule["before-image-def"]
        if images.get("column-prefix") and not images.get("column-suffix"):
            yield Told(pattern=pattern, fields={"before_image_prefix": images["column-prefix"]})
        else:
            notices.append(not_carried(where, "before images with a suffix", "give them a prefix alone in the task"))
    elif action == "add-column":
        yield from _added(rule, pattern, where, notices)
    elif action not in _OF_FILES:
        way_out = "rows have no such setting; files are read as the task writes them"
        notices.append(not_carried(where, f"{action} of a {target}", way_out))


def _named(rule: Mapping[str, Any], pattern: re.Pattern[str]) -> Told:
    change, value, old = _NAMES[rule["rule-action"]], rule.get("value") or "", rule.get("old-value") or ""
    columns = re.compile(_wildcards(rule["object-locator"].get("column-name", "%")))

    def column(name: str) -> str:
        return change(name, value, old) if columns.fullmatch(name) else name

    def schema(name: str) -> str:
        first, _, last = name.partition(".")
        return f"{change(first, value, old)}.{last}"

    def table(name: str) -> str:
        first, _, last = name.partition(".")
        return f"{first}.{change(last, value, old)}"

    if rule["rule-target"] == "column":
        return Told(pattern=pattern, column=column)
    by_target: Mapping[str, Renaming] = {"schema": schema, "table": table}
    return Told(pattern=pattern, table=by_target[rule["rule-target"]])


def _added(rule: Mapping[str, Any], pattern: re.Pattern[str], where: str, notices: list[Notice]) -> Iterator[Told]:
    expression, name = str(rule.get("expression", "")), rule["value"]
    if expression == "$AR_H_CHANGE_SEQ":
        yield Told(
            pattern=pattern, fields={} if name in ("AR_H_CHANGE_SEQ", "transact_seq") else {"sequence_by": (name,)}
        )
    elif expression in ("$AR_H_COMMIT_TIMESTAMP", "$AR_H_TIMESTAMP"):
        yield Told(pattern=pattern, fields={"options.timestamp_column": name})
    elif expression == "$AR_H_OPERATION":
        notices.append(not_carried(where, f"{name} holds the operation in words", "the column Op is read; leave it in"))


# Settings of the endpoint

_TEXTS = {
    "TimestampColumnName": "timestamp_column", "CsvDelimiter": "csv_delimiter", "CsvRowDelimiter": "csv_row_delimiter",
    "CsvNullValue": "csv_null", "DatePartitionTimezone": "date_partition_timezone",
}  # fmt: skip
_WITHOUT_EFFECT = frozenset({
    "BucketName", "BucketFolder", "DataFormat", "AddColumnName", "Rfc4180", "CsvNoSupValue", "UseCsvNoSupValue",
    "DatePartitionEnabled", "DatePartitionSequence", "DatePartitionDelimiter", "IncludeOpForFullLoad", "CdcInsertsOnly",
    "CdcInsertsAndUpdates", "CompressionType", "ServiceAccessRoleArn", "EncryptionMode", "ServerSideEncryptionKmsKeyId",
    "EncodingType", "DictPageSizeLimit", "RowGroupLength", "DataPageSize", "ParquetVersion", "EnableStatistics",
    "ParquetTimestampInMillisecond", "CannedAclForObjects", "CdcMaxBatchInterval", "CdcMinFileSize", "MaxFileSize",
    "ExpectedBucketOwner", "UseTaskStartTimeForFullLoadTimestamp", "GlueCatalogGeneration", *_TEXTS,
})  # fmt: skip
"""Read below, or no matter to who reads the files."""


def _settings(settings: Mapping[str, Any], notices: list[Notice]) -> dict[str, Any]:
    """Options of rows."""
    where = "endpoint"
    options: dict[str, Any] = {ours: _sign(settings[name]) for name, ours in _TEXTS.items() if settings.get(name)}
    options |= {name: escaped(options[name]) for name in ("csv_delimiter", "csv_row_delimiter") if name in options}
    if settings.get("CsvNullValue") == "":
        options["csv_null"] = ""
    options |= {**_dates(settings), **(_csv(settings, notices) if settings.get("DataFormat") != "parquet" else {})}
    if settings.get("DataFormat") == "parquet":
        options = {name: value for name, value in options.items() if not name.startswith("csv_")}
    for name, what in (("CdcInsertsOnly", "updates and deletes"), ("CdcInsertsAndUpdates", "deletes")):
        if is_true(settings.get(name)):
            notices.append(not_carried(where, f"{name}: {what} are not written", "set it to false for a replica"))
    if is_true(settings.get("CdcInsertsOnly")) and not is_true(settings.get("IncludeOpForFullLoad")):
        options["missing_op"] = "insert"
    if settings.get("BucketName"):
        folder = str(settings.get("BucketFolder") or "").strip("/")
        root = "/".join(filter(None, (f"s3://{settings['BucketName']}", folder)))
        notices.append(
            not_carried(where, f"its files are below {root}", f"`landing: {root}` in gddl.yaml, or of the source")
        )
    way_out = "files are expected as DMS writes them without this setting"
    others = sorted(set(settings) - _WITHOUT_EFFECT)
    notices += [
        not_carried(where, name, way_out) for name in others if settings[name] not in (None, False, "", "false")
    ]
    return {f"options.{name}": value for name, value in options.items()}


def _sign(text: str) -> str:
    """A delimiter that is written as `\\n` or `\\t`."""
    return {r"\n": "\n", r"\r\n": "\r\n", r"\t": "\t"}.get(text, text)


def _dates(settings: Mapping[str, Any]) -> dict[str, Any]:
    if not is_true(settings.get("DatePartitionEnabled")):
        return {}
    partition = str(settings.get("DatePartitionSequence") or "YYYYMMDD").upper()
    delimiter = str(settings.get("DatePartitionDelimiter") or "SLASH").lower()
    if partition not in get_args(DatePartition) or delimiter not in get_args(DateDelimiter):
        raise ValueError(f"DatePartitionSequence {partition!r} or DatePartitionDelimiter {delimiter!r} is unknown")
    return {"date_partition": partition, "date_delimiter": delimiter}


def _csv(settings: Mapping[str, Any], notices: list[Notice]) -> dict[str, Any]:
    options: dict[str, Any] = {"csv_header": True} if is_true(settings.get("AddColumnName")) else {}
    if not options:
        way_out = "set AddColumnName in the endpoint, or name them in `options.csv_columns`"
        notices.append(not_carried("endpoint", "CSV without names of columns", way_out))
    notices.append(not_carried("endpoint", "CSV has no types", "set DataFormat to parquet, or name `options.types`"))
    if is_true(settings.get("UseCsvNoSupValue")) and settings.get("CsvNoSupValue"):
        options["csv_no_sup"] = settings["CsvNoSupValue"]
    if "Rfc4180" in settings:
        options["csv_quotes"] = is_true(settings["Rfc4180"])
    return options
