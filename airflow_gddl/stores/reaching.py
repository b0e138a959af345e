"""Can the roots be reached at all? Asked before a job is started, so that there is one error and not one a table."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.s3_errors import CODES
from airflow_gddl.contract.spec import Roots
from airflow_gddl.stores import open_store


def check_roots(roots: Roots, environ: Mapping[str, str]) -> None:
    """One listing of each root on S3. That a root as a whole may not be listed is no error: its parts may be.

    Raises:
        FatalError: `S3_BUCKET_MISSING`, `S3_CREDENTIALS_EXPIRED`, `S3_CREDENTIALS_MISSING`, `S3_CREDENTIALS_REFUSED`,
            `S3_ENDPOINT_INVALID`, `S3_REGION_WRONG`.
        RetriableError: `S3_UNREACHABLE`.
    """
    for root in (roots.landing, roots.lake):
        if is_s3(root):
            try:
                open_store(environ).exists(root)
            except GddlError as error:
                if error.code in CODES:
                    raise
