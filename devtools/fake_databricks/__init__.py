"""A Databricks workspace's Jobs API 2.2, as far as this package uses it."""
