"""Pending files of the landing folders, and the work of a run. No Airflow, no Spark."""
