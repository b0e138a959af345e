"""Every table of the metadata folder as an Airflow DAG."""

from airflow_gddl.dags.factory import build_dags

globals().update(build_dags(beside=__file__))
