"""Metadata: files to validated rows and a problem for whatever is wrong (`loading`), rows to pipelines (`topology`).

Nothing is imported here: DAG files and tasks, which need `topology` alone, must not pay for pydantic and YAML.
"""
