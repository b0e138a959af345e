"""Plugins for Airflow's processes."""
