"""State of every table, from the results of its runs and the sensors' polls; no Airflow, no Spark."""
