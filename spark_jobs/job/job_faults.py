"""Translates errors of libraries into `GddlError` with a code and a remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_gddl.contract.codes import (
    CONSTRAINT_VIOLATED,
    DELTA_CONFLICT,
    OUT_OF_MEMORY,
    PROPERTY_UNKNOWN,
    STORAGE_BUSY,
    STORAGE_DENIED,
    UNEXPECTED,
    WORKER_DIED,
    Code,
)
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.packages import of_import
from airflow_gddl.contract.s3 import s3_error
from airflow_gddl.stores.readers import disk_full
from spark_jobs.tables.places import DEAD_WORKER

_CONFLICTS = (
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "DELTA_CONCURRENT",
    # A conditional put that found the commit: another writer's, or this one's after a lost response.
    "RemoteFileChangedException",
    "PreconditionFailed",
)


@dataclass(frozen=True)
class _KnownError:
    """A `GddlError`, and the texts of foreign errors that mean it."""

    signs: tuple[str, ...]
    family: type[GddlError]
    code: Code
    remedy: str


_FAULTS = (
    _KnownError(_CONFLICTS, RetriableError, DELTA_CONFLICT, "another writer changed the table; run again"),
    _KnownError(
        ("DELTA_UNKNOWN_CONFIGURATION",),
        FatalError,
        PROPERTY_UNKNOWN,
        "take it out of table_properties: the Delta Lake of this job does not have it; some exist on Databricks only",
    ),
    _KnownError(
        ("DELTA_VIOLATE_CONSTRAINT", "DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "DeltaInvariantViolationException"),
        FatalError,
        CONSTRAINT_VIOLATED,
        "drop the constraint, run again, correct the rows in the source, then add it again: a later change is no cure",
    ),
    _KnownError(
        ("java.lang.OutOfMemoryError", "SparkOutOfMemoryError"),
        FatalError,
        OUT_OF_MEMORY,
        "give the table a larger tier, or smaller max_bytes_per_batch",
    ),
    _KnownError(
        DEAD_WORKER,
        RetriableError,
        WORKER_DIED,
        "see the job's log; if it stays, give the table a larger tier, or a smaller max_bytes_per_batch",
    ),
    _KnownError(
        ("java.nio.file.AccessDeniedException", "AccessDenied", "PermissionDenied", "403 Forbidden"),
        FatalError,
        STORAGE_DENIED,
        "grant the job access",
    ),
    _KnownError(
        ("AWSServiceThrottledException", "AWSServiceIOException", "AWSStatus500Exception", "AWSClientIOException",
         "SlowDown", "503 Service Unavailable", "Generic S3 error", "Service error: S3"),
        RetriableError,
        STORAGE_BUSY,
        "run again",
    ),
)  # fmt: skip
_OF_S3 = re.compile(r"\bS3\b|\bs3a?:|s3a\.|amazonaws|awssdk")


def translated(error: BaseException) -> GddlError:
    """The error itself if it is a `GddlError`, else its translation."""
    if isinstance(error, GddlError):
        return error
    if isinstance(error, ImportError) and (missing := of_import(error, "a job")) is not None:
        remedy = f"{missing.remedy}; nothing is lost, the next run resumes the batch"
        return FatalError(missing.code, missing.what, where=missing.where, remedy=remedy)
    text = f"{type(error).__name__}: {error}"
    first = _first_line(text)[:800]
    if (full := disk_full(text, "", Exception(first))) is not None:
        return full
    if _OF_S3.search(text) and (failure := s3_error(text, "")) is not None:
        return failure
    for fault in _FAULTS:
        if any(sign in text for sign in fault.signs):
            return fault.family(fault.code, first, remedy=fault.remedy)
    remedy = "see the job's log; nothing is lost, the next run resumes the batch"
    return FatalError(UNEXPECTED, first, remedy=remedy)


def _first_line(text: str) -> str:
    """The first informative line; for a Java exception the line after the gateway's."""
    lines = text.strip().splitlines()
    if "An error occurred while calling" in lines[0] and len(lines) > 1:
        return lines[1].lstrip(": ")
    return lines[0]
