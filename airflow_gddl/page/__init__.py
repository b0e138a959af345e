"""The page in Airflow's UI: where every table stands, and what can be done about it."""
