"""What a person calls beside what Airflow runs: a folder for each command, and files for platforms."""
