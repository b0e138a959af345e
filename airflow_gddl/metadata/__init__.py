"""The metadata catalog: YAML, JSON and CSV files to validated table specs, and a problem for whatever is wrong.

`load(folder, environ)` is the one call; it touches nothing but the folder and raises for nothing but the settings.
"""

from airflow_gddl.metadata.folder import Folder, LocalFolder, StoreFolder, open_folder
from airflow_gddl.metadata.loading import Catalog, load, load_folder
from airflow_gddl.metadata.problems import Problem
from airflow_gddl.metadata.settings import SettingsError

__all__ = [
    "Catalog",
    "Folder",
    "LocalFolder",
    "Problem",
    "SettingsError",
    "StoreFolder",
    "load",
    "load_folder",
    "open_folder",
]
