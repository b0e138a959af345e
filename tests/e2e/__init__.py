"""The whole of it: a real Airflow on SQLite, files that land, and what comes of them."""
