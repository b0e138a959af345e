"""Checks access to the roots before a job starts, so that there is one error and not one for each table."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import places_of
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.s3_errors import CODES
from airflow_gddl.contract.source_access import announced
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import open_store


def check_roots(job: JobSpec, environ: Mapping[str, str]) -> None:
    """List each root on S3. A denied listing of a root is not an error, since its folders may be accessible. An
    unreachable root of one source is not an error if others are reachable: only its tables fail.

    Raises:
        FatalError: `S3_BUCKET_MISSING`, `S3_CREDENTIALS_EXPIRED`, `S3_CREDENTIALS_MISSING`, `S3_CREDENTIALS_REFUSED`,
            `S3_ENDPOINT_INVALID`, `S3_REGION_WRONG`.
        RetriableError: `S3_UNREACHABLE`.
    """
    lake, *landings = places_of(job)
    reached = announced(job.access, environ)
    faults = [_fault(root, reached) for root in landings]
    fault = _fault(lake, reached) or (next(iter(faults), None) if all(faults) else None)
    if fault is not None:
        raise fault


def _fault(root: str, environ: Mapping[str, str]) -> GddlError | None:
    if is_s3(root):
        try:
            open_store(environ).exists(root)
        except GddlError as error:
            if error.code in CODES:
                return error
    return None
