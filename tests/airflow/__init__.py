"""The Airflow side, with Airflow itself; jobs are stand-ins that speak the job's protocol."""
