"""Jobs as runs of saved Databricks jobs, one job a tier."""
