"""What waits in the landing folders, what was taken, and what a run is therefore to do. No Airflow, no Spark."""
