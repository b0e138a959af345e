"""DAGs to copy from; Airflow shows them when `[core] load_examples` is on."""
