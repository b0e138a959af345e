"""airflow-gddl: one metadata row brings a database table into Delta Lake and keeps it there.

Airflow imports this module before its configuration is ready, so nothing heavy is imported here.
"""

__version__ = "0.1.0"
