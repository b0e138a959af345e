"""Faults of libraries as errors of our own."""

from __future__ import annotations

import sys

import pytest

from airflow_gddl.contract.errors import FatalError, RetriableError
from spark_jobs.job.job_faults import translated


def test_gddl_errors_are_unchanged() -> None:
    error = RetriableError("TABLE_BUSY", "held", where="s.t")
    assert translated(error) is error


def test_missing_package_is_reported_with_its_python() -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        __import__("a_package_nobody_has.inner")
    found = translated(caught.value)
    assert (type(found), found.code) == (FatalError, "PACKAGE_MISSING")
    assert "a_package_nobody_has" in str(found)
    assert sys.executable in str(found)
    assert "pip install" not in str(found), "a package with the name of an unknown module may be anybody's"
    assert "airflow-gddl[spark]" in str(translated(ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")))


@pytest.mark.parametrize(
    ("text", "family", "code"),
    [
        ("io.delta.exceptions.ConcurrentAppendException: files were added", RetriableError, "DELTA_CONFLICT"),
        ("java.lang.OutOfMemoryError: Java heap space", FatalError, "OUT_OF_MEMORY"),
        ("AnalysisException: [DELTA_UNKNOWN_CONFIGURATION] delta.x", FatalError, "PROPERTY_UNKNOWN"),
        (
            "e.DeltaInvariantViolationException: [DELTA_VIOLATE_CONSTRAINT_WITH_VALUES]",
            FatalError,
            "CONSTRAINT_VIOLATED",
        ),
        ("write failed: No space left on device", RetriableError, "DISK_FULL"),
        ("Generic LocalFileSystem error: No space left on device (os error 28)", RetriableError, "DISK_FULL"),
        ("java.io.IOException: Disk quota exceeded", RetriableError, "DISK_FULL"),
        ("Generic S3 error: status code: 507, XMinioStorageFull: Storage backend is full", RetriableError, "DISK_FULL"),
        ("java.nio.file.AccessDeniedException: /lake", FatalError, "STORAGE_DENIED"),
        ("something else", FatalError, "UNEXPECTED"),
    ],
)
def test_foreign_errors_get_a_code(text: str, family: type[Exception], code: str) -> None:
    found = translated(RuntimeError(f"An error occurred while calling o1.save.\n: {text}"))
    assert (type(found), found.code) == (family, code)
    assert text in str(found)
