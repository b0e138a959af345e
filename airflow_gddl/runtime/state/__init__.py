"""Where every table stands: told by the results of its runs and by what the sensors saw; no Airflow, no Spark."""
