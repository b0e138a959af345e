"""Metadata: `loading` reads files into validated rows and problems, `topology` maps rows to pipelines.

Nothing is imported here: DAG files and tasks need only `topology`, without pydantic and YAML.
"""
