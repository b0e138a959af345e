"""Jobs as runs of saved Glue jobs, one job for each tier."""
