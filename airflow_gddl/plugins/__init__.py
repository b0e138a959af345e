"""What is plugged into Airflow's own processes."""
