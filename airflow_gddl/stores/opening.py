"""Which store a path belongs to."""

from __future__ import annotations

import os
from collections.abc import Mapping

from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.stores.local import LocalStore
from airflow_gddl.stores.port import Store
from airflow_gddl.stores.s3 import BucketStore


def open_store(path: str, environ: Mapping[str, str] = os.environ) -> Store:
    """A store for an absolute local path or an `s3://` URL.

    Args:
        environ: tells how S3 is reached.
    """
    return BucketStore(environ) if is_s3(path) else LocalStore()
