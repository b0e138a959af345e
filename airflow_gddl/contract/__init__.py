"""All that the Airflow side and the job side share; imports the standard library alone."""
