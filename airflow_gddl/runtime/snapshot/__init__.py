"""The metadata, compiled and checked once: read by DAG files and workers instead of YAML."""

from airflow_gddl.runtime.snapshot.documents import Dependency, Directory, PipelineDocument, SnapshotSettings, State
from airflow_gddl.runtime.snapshot.snapshot import MetadataSnapshot

__all__ = ["Dependency", "Directory", "MetadataSnapshot", "PipelineDocument", "SnapshotSettings", "State"]
