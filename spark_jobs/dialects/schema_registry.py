"""Schemas of messages, from a schema registry with the API of Confluent's."""

from __future__ import annotations

import base64
import functools
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.kafka import REGISTRY, REGISTRY_USER

_TIMEOUT = 15.0
_KEPT = 10_000


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema by its id; it never changes.

    Attributes:
        kind: `AVRO`, `JSON` or `PROTOBUF`.
        schema: Avro's, as JSON; null for the others.
    """

    kind: str
    schema: Any


@dataclass(frozen=True)
class SchemaRegistry:
    """Attributes:
    url: without a slash at its end.
    user: `name:password`; empty: none.
    """

    url: str
    user: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> SchemaRegistry | None:
        """Null: no registry is named."""
        url = settings.get(REGISTRY, "").rstrip("/")
        return cls(url, settings.get(REGISTRY_USER, "")) if url else None

    def schema(self, number: int) -> RegisteredSchema:
        """
        Raises:
            RetriableError: `SOURCE_UNREACHABLE`.
            FatalError: `SOURCE_REFUSED`; `TOPIC_UNREADABLE`: no such schema, or one that refers to others.
        """
        return _schema(self, number)

    def fetch(self, number: int) -> Mapping[str, Any]:
        """What the registry answers; raises as `schema`."""
        request = urllib.request.Request(f"{self.url}/schemas/ids/{number}")  # noqa: S310 - http(s), as rows are checked
        if self.user:
            request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(self.user.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - as above
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise self._refused(error.code, number) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._unreachable(str(error)) from error
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise self._unreachable("its answer has no schema")
        return found

    def _refused(self, status: int, number: int) -> FatalError | RetriableError:
        if status in (401, 403):
            what, remedy = f"the schema registry answers {status}", f"set {REGISTRY_USER} in kafka_connection"
            return FatalError("SOURCE_REFUSED", what, where=self.url, remedy=remedy)
        if status == 404:
            what = f"the schema registry has no schema {number}, which a message names"
            remedy = "name the registry that the connector writes to in schema_registry"
            return FatalError("TOPIC_UNREADABLE", what, where=self.url, remedy=remedy)
        return self._unreachable(f"status {status}")

    def _unreachable(self, why: str) -> RetriableError:
        what, remedy = (
            f"the schema registry does not answer: {why}",
            "check schema_registry and the network; then try again",
        )
        return RetriableError("SOURCE_UNREACHABLE", what, where=self.url, remedy=remedy)


@functools.lru_cache(maxsize=_KEPT)
def _schema(registry: SchemaRegistry, number: int) -> RegisteredSchema:
    found = registry.fetch(number)
    kind = str(found.get("schemaType") or "AVRO")
    if found.get("references"):
        what, remedy = (
            f"schema {number} refers to others, which is not supported",
            "let a sink connector write the files",
        )
        raise FatalError("TOPIC_UNREADABLE", what, where=registry.url, remedy=remedy)
    return RegisteredSchema(kind, json.loads(found["schema"]) if kind == "AVRO" else None)
