"""Jobs as runs of saved Databricks jobs, one job for each tier."""
