"""A Debezium source connector, as Kafka Connect takes it: `{"name": …, "config": {…}}`, or its `config` alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_gddl.tools.onboarding.from_files.model import ANY, ImportedSource, Selection, Told, not_carried
from airflow_gddl.tools.onboarding.rules import KeyFact, Notice

WHAT = "the JSON of a Debezium source connector"
_SPECIAL = re.compile(r"(?<!\\)[\[\](){}*+?|^$]|\\[A-Za-z]")
_WORSE = {
    "decimal.handling.mode": ("double", "numbers lose digits", "set precise or string"),
    "time.precision.mode": ("connect", "times lose what is below a millisecond", "set adaptive_time_microseconds"),
    "snapshot.mode": (
        "never",
        "no first load is written",
        "set initial, or declare `initial_load` in the metadata row",
    ),
}
"""Values that change what files have, with the effect and the way out."""


def knows(document: Any) -> bool:
    """Whether it is such a document."""
    config = _config(document)
    return str(config.get("connector.class", "")).startswith("io.debezium.connector.")


def _config(document: Any) -> Mapping[str, Any]:
    config = document.get("config", document) if isinstance(document, Mapping) else {}
    return config if isinstance(config, Mapping) else {}


def read(document: Mapping[str, Any]) -> ImportedSource:
    """The tables of the connector, and what its events look like. Its connection is not looked at."""
    config = _config(document)
    included = _names(config, "table.include.list", "table.whitelist")
    excluded = _names(config, "table.exclude.list", "table.blacklist")
    selections = [Selection(pattern=_pattern(name)) for name in included] or [Selection(pattern=ANY)]
    selections += [Selection(pattern=_pattern(name), is_excluded=True) for name in excluded]
    fields: dict[str, Any] = {"dialect": "debezium"}
    notices = list(_told_badly(config))
    if placeholder := config.get("unavailable.value.placeholder"):
        fields["options.unavailable"] = placeholder
    for alias in _listed(config.get("transforms")):
        fields |= _transform(config, f"transforms.{alias}", notices)
    if "topic.prefix" in config or "database.server.name" in config:
        prefix = config.get("topic.prefix") or config.get("database.server.name")
        way_out = "a sink writes them to <landing>/<schema>/<table>/, or jobs read them: "
        way_out += f"`options.topic: {prefix}.{{schema}}.{{table}}` with `options.bootstrap_servers`"
        notices.append(not_carried("topic.prefix", f"events are in topics {prefix}.…", way_out))
    tables = [_table(name) for name in included if not _SPECIAL.search(name)]
    told = [Told(fields=fields), *_keys(str(config.get("message.key.columns") or ""))]
    return ImportedSource(tables=tuple(tables), selections=tuple(selections), told=tuple(told), notices=tuple(notices))


def _names(config: Mapping[str, Any], *names: str) -> list[str]:
    return next((_listed(config[name]) for name in names if config.get(name)), [])


def _listed(text: Any) -> list[str]:
    return [part.strip() for part in str(text or "").split(",") if part.strip()]


def _table(name: str) -> str:
    """`schema.table` of a name that may have its database before."""
    return ".".join(name.replace("\\", "").split(".")[-2:])


def _pattern(name: str) -> re.Pattern[str]:
    """Debezium's regular expressions fit whole names in any case; a name without signs is that table."""
    return re.compile(name if _SPECIAL.search(name) else re.escape(_table(name)), re.IGNORECASE)


def _keys(text: str) -> Iterator[Told]:
    """The connector's key columns: `schema.table:column,column;…`."""
    for part in filter(None, (one.strip() for one in text.split(";"))):
        name, _, columns = part.rpartition(":")
        key = KeyFact(columns=tuple(_listed(columns)), evidence="message.key.columns of the connector")
        yield Told(pattern=_pattern(name), keys=key)


def _transform(config: Mapping[str, Any], at: str, notices: list[Notice]) -> dict[str, Any]:
    """Options of a transform of the connector."""
    kind = str(config.get(f"{at}.type", "")).rpartition(".")[2]
    if kind == "ExtractNewRecordState":
        return _flattened(config, at, notices)
    if kind not in ("RegexRouter", "ByLogicalTableRouter"):
        way_out = "leave it out, or see that files still have whole events"
        notices.append(not_carried(at, f"the transform {kind}", way_out))
    return {}


def _flattened(config: Mapping[str, Any], at: str, notices: list[Notice]) -> dict[str, Any]:
    added = [name.partition(":") for name in _listed(config.get(f"{at}.add.fields"))]
    if not any(name == "op" for name, _, _ in added):
        notices.append(not_carried(at, "flat events without their operation", "set add.fields to op,ts_ms,source.lsn"))
    options: dict[str, Any] = {}
    if (prefix := config.get(f"{at}.add.fields.prefix")) is not None:
        options["options.flat_prefix"] = prefix
    if named := {name: alias for name, _, alias in added if alias}:
        options["options.flat_fields"] = named
    old = "none" if f"{at}.delete.handling.mode" in config else "tombstone"
    deletes = config.get(f"{at}.delete.tombstone.handling.mode") or config.get(f"{at}.delete.handling.mode") or old
    if str(deletes).startswith("rewrite"):
        return options
    if deletes == "drop":
        return {**options, "options.flat_deletes": "drop"}
    notices.append(
        not_carried(at, f"deletes are written as {deletes}", "set delete.tombstone.handling.mode to rewrite")
    )
    return options


def _told_badly(config: Mapping[str, Any]) -> Iterator[Notice]:
    """Settings that change what files have."""
    for name, (value, effect, way_out) in _WORSE.items():
        if config.get(name) == value:
            yield not_carried(name, f"{value}: {effect}", way_out)
    skipped = [
        {"c": "inserts", "u": "updates", "d": "deletes"}.get(one, "")
        for one in _listed(config.get("skipped.operations"))
    ]
    if any(skipped):
        yield not_carried("skipped.operations", f"{', '.join(filter(None, skipped))} are not written", "set none or t")
    for name in sorted(config):
        if name.startswith(("column.truncate.", "column.mask.")):
            yield not_carried(name, "values are changed at the source", "they stay so; or drop it, and write `mask`")
