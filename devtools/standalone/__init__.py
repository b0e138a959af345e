"""Airflow on one machine: its parts as child processes, and its REST API. Imports nothing of Airflow."""
