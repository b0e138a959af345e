"""The metadata, compiled and checked once: what DAG files and workers read instead of YAML."""

from airflow_gddl.snapshot.documents import Dependency, PipelineDocument, State
from airflow_gddl.snapshot.settings import SnapshotSettings
from airflow_gddl.snapshot.snapshot import Snapshot

__all__ = ["Dependency", "PipelineDocument", "Snapshot", "SnapshotSettings", "State"]
