"""Reads of a parse within one time budget, and failures shared between processes.

Airflow ends the parse of a DAG file after `dagbag_import_timeout` and reports nothing but that. A store that accepts
connections and never answers must cost less, for each DAG file and for all of them together.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.s3 import S3Settings, is_s3

Answer = TypeVar("Answer")

SHARED_SECONDS = 20.0
"""How long a place that did not answer is not asked again, by any process with this cache folder."""
_SLOW = 0.5
"""Share of its time limit after which a failed read counts as one without an answer."""
_UNANSWERED = "unanswered.json"
_REMEDY = "check the disk, the network, and for S3 the endpoint, AWS_ENDPOINT_URL or the connection of aws_conn_id"


def bounded(call: Callable[[], Answer], seconds: float, where: str, environ: Mapping[str, str] | None = None) -> Answer:
    """The call's answer or error.

    A hanging thread is abandoned; it is a daemon, so it does not block the exit of the process.

    Args:
        environ: how S3 is reached, for the error; read in the thread, since it may be that of a connection.

    Raises:
        RetriableError: `METADATA_UNREACHABLE` after `seconds`.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []
    asked: list[str] = []

    def run() -> None:
        try:
            if environ is not None and is_s3(where):
                asked.append(f"S3 at {S3Settings.of(environ).endpoint or 'Amazon'}")
            answers.append(call())
        except BaseException as error:  # noqa: BLE001 - handed to the caller as it is
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="gddl-metadata")
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        what = f"no answer {f'of {asked[0]} ' if asked else ''}within {seconds:.2g} s"
        raise RetriableError("METADATA_UNREACHABLE", what, where=where, remedy=_REMEDY)
    return answers[0]


@dataclass(frozen=True, kw_only=True)
class Unanswered:
    """A read without an answer, stored for other processes.

    Attributes:
        at: seconds since the epoch.
        limit: seconds that it was given.
    """

    at: float
    limit: float
    what: str


@dataclass
class Reads:
    """Reads that share `seconds`.

    Attributes:
        folder: local; shared by the processes that read the same places.
        clock: seconds since the epoch.
    """

    folder: Path
    seconds: float
    clock: Callable[[], float]
    _left: float = field(init=False)

    def __post_init__(self) -> None:
        self._left = self.seconds

    def call(
        self, read: Callable[[], Answer], where: str, environ: Mapping[str, str], *, most: float = float("inf")
    ) -> Answer:
        """The answer of a read of `where`, or its error.

        Args:
            most: seconds that it may take, if more are left.

        Raises:
            RetriableError: `METADATA_UNREACHABLE`: no answer in time, now or a moment ago.
        """
        limit = max(0.1, min(self._left, most))
        known = self._known().get(where)
        if known is not None and known.limit >= min(limit, self.seconds / 2):
            raise RetriableError("METADATA_UNREACHABLE", known.what, where=where, remedy=_REMEDY)
        start = time.monotonic()
        try:
            return bounded(read, limit, where, environ)
        except (GddlError, OSError) as error:
            if time.monotonic() - start >= _SLOW * limit:
                what = error.what if isinstance(error, GddlError) else str(error)
                self._note(where, Unanswered(at=self.clock(), limit=limit, what=what))
            raise
        finally:
            self._left -= time.monotonic() - start

    def _known(self) -> dict[str, Unanswered]:
        """By place, without those of long ago."""
        try:
            found = json.loads((self.folder / _UNANSWERED).read_bytes())
            known = {str(where): decode(Unanswered, one) for where, one in found.items()}
        except (OSError, ValueError, AttributeError, GddlError):
            return {}
        now = self.clock()
        return {where: one for where, one in known.items() if 0 <= now - one.at < SHARED_SECONDS}

    def _note(self, where: str, one: Unanswered) -> None:
        data = {name: plain(known) for name, known in {**self._known(), where: one}.items()}
        with contextlib.suppress(OSError):  # every process then finds out by itself
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f".{_UNANSWERED}.{threading.get_native_id()}"
            path.write_text(json.dumps(data), encoding="utf-8")
            path.replace(self.folder / _UNANSWERED)
