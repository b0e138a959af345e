"""Files and objects that the Airflow side looks at: landing folders, and small state objects in the lake."""

from airflow_gddl.stores.opening import open_store
from airflow_gddl.stores.port import ListedFile, Store

__all__ = ["ListedFile", "Store", "open_store"]
