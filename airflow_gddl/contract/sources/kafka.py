"""Topics of Kafka that changes of tables are read from, and the settings of the client that reaches them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from airflow_gddl.contract.codes import FIELD_VALUE, SOURCE_CONNECTION_MISSING
from airflow_gddl.contract.connections import require_lent
from airflow_gddl.contract.errors import FatalError, SpecProblem
from airflow_gddl.contract.sources import SourceDescriptor
from airflow_gddl.contract.table_spec import TableSpec

SERVERS, REGISTRY, REGISTRY_USER = "bootstrap.servers", "schema.registry.url", "schema.registry.basic.auth.user.info"
"""Settings of a client. Those of the registry are ours: librdkafka knows none."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SERVERS = re.compile(r"[\w.\[\]:-]+:\d{1,5}(,[\w.\[\]:-]+:\d{1,5})*", re.ASCII)
_URL = re.compile(r"https?://[^@\s/?#]+(/[^\s?#]*)?")
_ADDRESSES = (
    ("bootstrap_servers", _SERVERS, "no list of brokers",
     "write host:port, several separated by commas; credentials go into kafka_connection"),
    ("schema_registry", _URL, "no URL",
     f"write e.g. http://host:8081; user and password go into kafka_connection, {REGISTRY_USER}"),
)  # fmt: skip


def topic_of(spec: TableSpec) -> str:
    """The topic of the table's changes; empty: its files are written by another program.

    As Debezium does, `_` stands for characters that no topic may have; so none can lead out of a folder either.
    """
    template = spec.options.get("topic") if spec.dialect == "debezium" else None
    if not isinstance(template, str):
        return ""
    schema, _, table = spec.name_in_source.partition(".")
    values = {"schema": schema, "table": table, "source": spec.source}
    return _ILLEGAL.sub("_", _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), template))


def settings_of(spec: TableSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Settings of the client, `REGISTRY` and `REGISTRY_USER` among them where there are any; may hold secrets.

    What a connection states holds for its credentials: a row can't send them to another server.

    Raises:
        FatalError: `SOURCE_CONNECTION_REFUSED`, `SOURCE_CONNECTION_MISSING`.
    """
    stated = {SERVERS: spec.options.get("bootstrap_servers"), REGISTRY: spec.options.get("schema_registry")}
    settings = {name: str(value) for name, value in stated.items() if value}
    name = spec.options.get("kafka_connection")
    if not name:
        return settings
    require_lent(str(name), environ)
    connection = _connection(str(name), environ)
    if SERVERS not in {**settings, **connection}:
        raise _missing(str(name), f"states no {SERVERS}, and the metadata row no bootstrap_servers")
    return _without_login({**settings, **connection})


def _without_login(settings: dict[str, str]) -> dict[str, str]:
    """User and password in the address of a registry, which is shown, stand in the setting that is not."""
    scheme, _, rest = settings.get(REGISTRY, "").partition("://")
    login, at, place = rest.rpartition("@")
    if not at:
        return settings
    return {REGISTRY_USER: unquote(login), **settings, REGISTRY: f"{scheme}://{place}"}


def client_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Those that librdkafka knows."""
    return {name: value for name, value in settings.items() if name not in (REGISTRY, REGISTRY_USER)}


def _connection(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Settings in a variable, as JSON, or in Airflow's `AIRFLOW_CONN_<NAME>` of type `kafka`."""
    written = (environ.get(name) or environ.get(f"AIRFLOW_CONN_{name.upper()}") or "").strip()
    if not written:
        raise _missing(name, "is not set")
    try:
        fields = json.loads(written) if written.startswith("{") else _of_uri(written)
        extra = fields.get("extra", {}) if "conn_type" in fields else fields
        extra = json.loads(extra) if isinstance(extra, str) else extra
        return {str(key): _text(value) for key, value in extra.items()}
    except (ValueError, AttributeError, TypeError):
        pass  # without a cause, which might show the content
    raise _missing(name, "is neither a JSON object of settings nor an Airflow connection of type kafka")


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _of_uri(text: str) -> dict[str, Any]:
    url = urlsplit(text)
    if url.scheme != "kafka":
        raise ValueError("not the URI of a kafka connection")
    query = dict(parse_qsl(url.query))
    return {"conn_type": "kafka", "extra": {**json.loads(unquote(query.pop("__extra__", "{}"))), **query}}


def _missing(name: str, problem: str) -> FatalError:
    remedy = f'set {name} to the client\'s settings, e.g. {{"{SERVERS}": "…", "sasl.username": "…"}}, or '
    remedy += f"AIRFLOW_CONN_{name.upper()} to an Airflow connection of type kafka"
    return FatalError(SOURCE_CONNECTION_MISSING, f"the connection {name!r} {problem}", remedy=remedy)


def kafka_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """What is wrong with a row's topic, and with options that belong to one."""
    template, path = spec.options.get("topic"), ("options", "topic")
    if spec.dialect != "debezium":
        return
    yield from _addresses(spec.options)
    if template is None:
        return
    unknown = [name for name in _PLACEHOLDER.findall(str(template)) if name not in ("schema", "table", "source")]
    is_name = _TOPIC.fullmatch(_PLACEHOLDER.sub("x", str(template))) and str(template) not in (".", "..")
    faults = (
        (unknown or not is_name, "no name of a topic", "write e.g. crm.{schema}.{table}; {source} is known, too"),
        (not spec.options.get("bootstrap_servers") and not spec.options.get("kafka_connection"), "no broker is named",
         "add bootstrap_servers, or kafka_connection"),
        (spec.shards, "the table has several sources", "let a sink connector write their files"),
    )  # fmt: skip
    for is_wrong, message, remedy in faults:
        if is_wrong:
            yield SpecProblem(FIELD_VALUE, path, str(template), message, remedy)


def _addresses(options: Mapping[str, Any]) -> Iterator[SpecProblem]:
    """A wrong address is not shown: it may have a password in it."""
    for name, pattern, message, remedy in _ADDRESSES:
        if isinstance(address := options.get(name), str) and not pattern.fullmatch(address):
            yield SpecProblem(FIELD_VALUE, ("options", name), "(not shown)", message, remedy)


def topic_of_source(spec: TableSpec) -> tuple[str, str]:
    """The topic in the place where its source remembers how far it was read, and the table."""
    topic = topic_of(spec)
    return topic and f"{spec.source} {topic}", spec.qualified_name


def taken(spec: TableSpec, other: str) -> SpecProblem:
    """A source remembers once how far a topic was read: one table would take the changes of the other."""
    message = f"{topic_of(spec)} is the topic of {other}, too"
    remedy = "name a topic for each table, e.g. crm.{schema}.{table}; let the connector route no tables together"
    return SpecProblem(FIELD_VALUE, ("options", "topic"), str(spec.options["topic"]), message, remedy)


SOURCE = SourceDescriptor(
    is_used=lambda spec: bool(topic_of(spec)),
    check_values=kafka_problems,
    reads="topic",
    modules=("confluent_kafka",),
    read_once=topic_of_source,
    taken=taken,
)
