"""Faults of the libraries below us as errors of our own, with a code and a way out."""

from __future__ import annotations

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError

_CONFLICTS = (
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
    "DELTA_CONCURRENT",
)
_MEMORY = ("java.lang.OutOfMemoryError", "SparkOutOfMemoryError")
_DISK = ("No space left on device",)


def translated(error: BaseException) -> GddlError:
    """The error itself where it is ours, else the nearest of ours."""
    if isinstance(error, GddlError):
        return error
    text = f"{type(error).__name__}: {error}"
    first = _first_line(text)[:800]
    if any(name in text for name in _CONFLICTS):
        return RetriableError("DELTA_CONFLICT", first, remedy="another writer changed the table; run again")
    if any(name in text for name in _MEMORY):
        return FatalError("OUT_OF_MEMORY", first, remedy="give the table a larger tier, or smaller max_bytes_per_batch")
    if any(name in text for name in _DISK):
        return RetriableError("DISK_FULL", first, remedy="free space on the machine that runs the job, then run again")
    return FatalError("UNEXPECTED", first, remedy="see the job's log; nothing is lost, the next run resumes the batch")


def _first_line(text: str) -> str:
    """The line that says what happened; of a Java exception the gateway's own line comes before it."""
    lines = text.strip().splitlines()
    if "An error occurred while calling" in lines[0] and len(lines) > 1:
        return lines[1].lstrip(": ")
    return lines[0]
