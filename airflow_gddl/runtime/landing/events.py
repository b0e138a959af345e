"""What an object store says of new files, in messages of a queue; pure.

Sources: Amazon S3 user guide, "Event message structure" and "Using EventBridge"; Amazon SNS, "Parsing message formats".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote_plus

from airflow_gddl.contract.layout import join


class NotAnEventError(ValueError):
    """A message that no object store sent."""


def objects_of(body: str) -> tuple[str, ...]:
    """`s3://bucket/key` of each object that came, changed or went; none for S3's own test message.

    Takes S3's records, the same wrapped by SNS, and EventBridge's form.

    Raises:
        NotAnEventError
    """
    try:
        return tuple(_objects(json.loads(body)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotAnEventError(f"{type(error).__name__}: {error}; the message: {body[:200]!r}") from error


def _objects(message: Any) -> Iterator[str]:
    if message.get("Type") == "Notification":
        yield from _objects(json.loads(message["Message"]))
    elif message.get("source") == "aws.s3":
        detail = message["detail"]
        yield _url(detail["bucket"]["name"], detail["object"]["key"])
    elif message.get("Event") != "s3:TestEvent":
        for record in message["Records"]:
            # A space comes as `+` here, unlike in EventBridge's form.
            yield _url(record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"]))


def _url(bucket: str, key: str) -> str:
    if not (isinstance(bucket, str) and bucket and isinstance(key, str) and key):
        raise ValueError("bucket and key are empty or no texts")
    return f"s3://{bucket}/{key}"


def tables_of(objects: Iterable[str], landing: str) -> set[str]:
    """`schema.name` of the landing folders that hold these objects; those outside of any are left out."""
    root = join(landing, "")
    parts = [url.removeprefix(root).split("/", 2) for url in objects if url.startswith(root)]
    return {f"{schema}.{name}" for schema, name, _ in (found for found in parts if len(found) == 3)}
