"""The DAG files of a project, which read its metadata."""

from __future__ import annotations

from collections.abc import Mapping

DAG_FILES: Mapping[str, str] = {
    "gddl.py": '''\
"""Every table of the metadata folder as an Airflow DAG."""

from airflow_gddl.dags.factory import build_dags

globals().update(build_dags(beside=__file__))
''',
    "gddl_metadata_problems.py": '''\
"""Invalid metadata rows as one import error in Airflow's UI, in a separate file, so that no DAG is affected."""

from airflow_gddl.dags.problems import raise_problems

raise_problems(beside=__file__)  # raises when there is something to report; it defines no DAG
''',
    "gddl_upkeep.py": '''\
"""Maintenance and verification of all tables, a task for each tier."""

from airflow_gddl.dags.maintenance import build_upkeep_dags

globals().update(build_upkeep_dags(beside=__file__))
''',
}
