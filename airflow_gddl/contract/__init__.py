"""Code shared by the Airflow side and the job side; imports only the standard library."""
