"""Notifications of an object store about new files, as queue messages; pure.

Sources: Amazon S3 user guide, "Event message structure" and "Using EventBridge"; Amazon SNS, "Parsing message formats".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any
from urllib.parse import unquote_plus

from airflow_gddl.contract.layout import LandingFolder, join


class NotAnEventError(ValueError):
    """The message is not an object store notification."""


def objects_of(body: str) -> tuple[str, ...]:
    """`s3://bucket/key` of each object that was created, changed or removed; none for S3's test message.

    Accepts S3 records, S3 records wrapped by SNS, and EventBridge events.

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
        raise ValueError("bucket or key is empty or not a string")
    return f"s3://{bucket}/{key}"


def places_with_news(objects: Iterable[str], landing: str) -> set[str]:
    """Locations of new objects: `schema.name` of the folder below the common landing root; otherwise, or for deeper
    folders, the URL of the object's folder, which the reader maps to a source's root.
    """
    root, places = join(landing, ""), set()
    for url in objects:
        below = url.removeprefix(root).split("/") if url.startswith(root) else []
        if len(below) > 2:
            places.add(f"{below[0]}.{below[1]}")
        if len(below) != 3:
            places.add(url.rpartition("/")[0])
    return places


def has_news(folder: LandingFolder, landing: str, places: Collection[str]) -> bool:
    """Whether one of these locations, see `places_with_news`, is in a table's folder."""
    if folder.root == landing:
        return folder.table in places
    below = join(folder.path, "")
    return folder.path in places or any(place.startswith(below) for place in places)
