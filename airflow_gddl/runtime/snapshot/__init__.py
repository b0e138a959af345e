"""The metadata, compiled and checked once: what DAG files and workers read instead of YAML."""

from airflow_gddl.runtime.snapshot.documents import Dependency, Directory, PipelineDocument, State
from airflow_gddl.runtime.snapshot.settings import SnapshotSettings
from airflow_gddl.runtime.snapshot.snapshot import MetadataSnapshot

__all__ = ["Dependency", "Directory", "MetadataSnapshot", "PipelineDocument", "SnapshotSettings", "State"]
