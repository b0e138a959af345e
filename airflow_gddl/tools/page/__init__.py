"""The page in Airflow's UI: state of every table, and actions."""
