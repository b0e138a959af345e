"""Files on disks and objects in S3, for both sides: landing folders, the lake's state, metadata."""

from airflow_gddl.stores.readers import StoredObject
from airflow_gddl.stores.storage import (
    HasEtag,
    Storage,
    open_store,
    read_document,
    read_if_there,
    remove_table,
    update_object,
)

__all__ = [
    "HasEtag",
    "Storage",
    "StoredObject",
    "open_store",
    "read_document",
    "read_if_there",
    "remove_table",
    "update_object",
]
