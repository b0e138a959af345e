"""A call with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from airflow_gddl.contract.errors import RetriableError

T = TypeVar("T")


def bounded(call: Callable[[], T], seconds: float, where: str) -> T:
    """The call's answer or error.

    A hanging thread is abandoned; it is a daemon, so it does not block the exit of the process.

    Raises:
        RetriableError: `METADATA_UNREACHABLE` after `seconds`.
    """
    answers: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # noqa: BLE001 - handed to the caller as it is
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="gddl-metadata")
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        what = f"no answer within {seconds:g} s"
        raise RetriableError("METADATA_UNREACHABLE", what, where=where, remedy="check the disk or the network")
    return answers[0]
