"""The job: lands change files in Delta tables. Importable on a cluster without Airflow."""
