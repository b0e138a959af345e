"""Pending files of the landing folders, the hints of past loads, and the work of a run. No Airflow, no Spark."""
