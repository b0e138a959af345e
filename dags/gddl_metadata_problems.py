"""Invalid metadata rows as one import error in Airflow's UI, in a separate file, so that no DAG is affected."""

from airflow_gddl.dags.factory import raise_problems

raise_problems(beside=__file__)  # raises when there is something to report; it defines no DAG
