"""For developers, in the repository alone: a fake Databricks workspace, a standalone Airflow, a demonstration in it."""
