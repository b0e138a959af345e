"""Faults of the libraries below us as errors of our own, with a code and a way out."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.s3_errors import s3_error

_CONFLICTS = (
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "DELTA_CONCURRENT",
    # A commit put if absent that was there already: another writer's, or ours, whose answer got lost.
    "RemoteFileChangedException",
    "PreconditionFailed",
)


@dataclass(frozen=True)
class _KnownError:
    """An error of ours, and what in another's text stands for it."""

    signs: tuple[str, ...]
    family: type[GddlError]
    code: str
    remedy: str


_FAULTS = (
    _KnownError(_CONFLICTS, RetriableError, "DELTA_CONFLICT", "another writer changed the table; run again"),
    _KnownError(
        ("java.lang.OutOfMemoryError", "SparkOutOfMemoryError"),
        FatalError,
        "OUT_OF_MEMORY",
        "give the table a larger tier, or smaller max_bytes_per_batch",
    ),
    _KnownError(
        ("No space left on device",),
        RetriableError,
        "DISK_FULL",
        "free space on the machine that runs the job, then run again",
    ),
    _KnownError(
        ("java.nio.file.AccessDeniedException", "AccessDenied", "PermissionDenied", "403 Forbidden"),
        FatalError,
        "STORAGE_DENIED",
        "grant the job access",
    ),
    _KnownError(
        ("AWSServiceThrottledException", "AWSServiceIOException", "AWSStatus500Exception", "AWSClientIOException",
         "SlowDown", "503 Service Unavailable", "Generic S3 error", "Service error: S3"),
        RetriableError,
        "STORAGE_BUSY",
        "run again",
    ),
)  # fmt: skip
_OF_S3 = re.compile(r"\bS3\b|\bs3a?:|s3a\.|amazonaws|awssdk")


def translated(error: BaseException) -> GddlError:
    """The error itself where it is ours, else the nearest of ours."""
    if isinstance(error, GddlError):
        return error
    if isinstance(error, ModuleNotFoundError):
        what = f"this Python, {sys.executable}, lacks the package {error.name}"
        remedy = "install 'airflow-gddl[spark]' where jobs run; nothing is lost, the next run resumes the batch"
        return FatalError("JOB_PACKAGE_MISSING", what, remedy=remedy)
    text = f"{type(error).__name__}: {error}"
    first = _first_line(text)[:800]
    if _OF_S3.search(text) and (told := s3_error(text, "")) is not None:
        return told
    for fault in _FAULTS:
        if any(sign in text for sign in fault.signs):
            return fault.family(fault.code, first, remedy=fault.remedy)
    return FatalError("UNEXPECTED", first, remedy="see the job's log; nothing is lost, the next run resumes the batch")


def _first_line(text: str) -> str:
    """The line that says what happened; of a Java exception the gateway's own line comes before it."""
    lines = text.strip().splitlines()
    if "An error occurred while calling" in lines[0] and len(lines) > 1:
        return lines[1].lstrip(": ")
    return lines[0]
