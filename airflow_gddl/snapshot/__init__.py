"""The metadata, compiled and checked once: what DAG files and workers read instead of YAML."""

from airflow_gddl.snapshot.documents import Dependency, Directory, PipelineDocument, State
from airflow_gddl.snapshot.settings import SnapshotSettings
from airflow_gddl.snapshot.snapshot import Snapshot

__all__ = ["Dependency", "Directory", "PipelineDocument", "Snapshot", "SnapshotSettings", "State"]
