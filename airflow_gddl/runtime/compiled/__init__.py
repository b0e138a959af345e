"""The metadata, compiled and checked once: read by DAG files and workers instead of YAML. Nothing is imported here."""
