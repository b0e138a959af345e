from airflow_gddl.cli.lake import Lake as Lake

__version__: str
