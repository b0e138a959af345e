"""Wrong metadata rows as one import error in Airflow's UI; a file of its own, so that no DAG goes down with it."""

from airflow_gddl.dags.problems import raise_problems

raise_problems(beside=__file__)  # raises when there is something to report; it defines no DAG
