"""Which store a path belongs to."""

from __future__ import annotations

from airflow_gddl.stores.local import LocalStore
from airflow_gddl.stores.port import Store
from airflow_gddl.stores.s3 import BucketStore


def open_store(path: str) -> Store:
    """A store for an absolute local path or an `s3://` URL."""
    return BucketStore() if path.startswith("s3://") else LocalStore()
