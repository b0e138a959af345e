"""The queue that reports new files."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.errors import RetriableError

_AT_ONCE = 10


@dataclass(frozen=True)
class Message:
    """`receipt` is what deletes it."""

    body: str
    receipt: str


class SqsQueue:
    """Amazon SQS: delivers messages at least once, unordered, and again until they are deleted.

    Args:
        url: of the queue.
        environ: credentials and region (`AWS_…`); boto3's defaults apply to missing values.

    Raises (every method):
        RetriableError: `QUEUE_UNREACHABLE`.
    """

    def __init__(self, url: str, environ: Mapping[str, str] = os.environ) -> None:
        self._url, self._environ = url, environ

    def receive(self) -> tuple[Message, ...]:
        """Some of the waiting messages; empty when there are none.

        A wait of one second is long polling, which queries all SQS servers.
        """
        answer = self._ask("receive_message", MaxNumberOfMessages=_AT_ONCE, WaitTimeSeconds=1)
        return tuple(Message(found["Body"], found["ReceiptHandle"]) for found in answer.get("Messages", ()))

    def delete(self, messages: Collection[Message]) -> None:
        """Delete messages; one that is not deleted is delivered again, which is harmless."""
        waiting = list(messages)
        for start in range(0, len(waiting), _AT_ONCE):
            entries = [
                {"Id": str(number), "ReceiptHandle": message.receipt}
                for number, message in enumerate(waiting[start : start + _AT_ONCE])
            ]
            self._ask("delete_message_batch", Entries=entries)

    def _ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only where a queue is configured
        except ImportError as error:
            remedy = "pip install 'airflow-gddl[events]'"
            raise RetriableError(
                "QUEUE_UNREACHABLE", "boto3 is not installed", where=self._url, remedy=remedy
            ) from error
        try:
            answer: dict[str, Any] = getattr(self._client(), operation)(QueueUrl=self._url, **arguments)
        except (BotoCoreError, ClientError) as error:
            remedy = "check [gddl] events_queue, its region, and the role's right to receive and delete its messages"
            raise RetriableError("QUEUE_UNREACHABLE", str(error)[:300], where=self._url, remedy=remedy) from error
        return answer

    def _client(self) -> Any:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        key, secret, token = (self._environ.get(name) for name in names)
        region = _region(self._url) or self._environ.get("AWS_REGION") or self._environ.get("AWS_DEFAULT_REGION")
        return _client(key, secret, token, region)


@functools.lru_cache(maxsize=8)
def _client(key: str | None, secret: str | None, token: str | None, region: str | None) -> Any:
    """One client for each set of credentials in a process."""
    import boto3  # noqa: PLC0415 - only where a queue is configured
    from botocore.config import Config  # noqa: PLC0415 - imported when needed

    limits = Config(connect_timeout=5, read_timeout=15, retries={"max_attempts": 3, "mode": "standard"})
    # A separate session: boto3's default session is not thread-safe, and the triggerer uses threads.
    session = boto3.session.Session(key, secret, token)
    return session.client("sqs", region_name=region, config=limits)


def _region(url: str) -> str | None:
    """Region in the queue's URL (`https://sqs.eu-west-1.amazonaws.com/…`); null: from the environment."""
    host = url.partition("://")[2].partition("/")[0].split(".")
    return host[1] if len(host) > 3 and host[0] == "sqs" and "amazonaws" in host else None
