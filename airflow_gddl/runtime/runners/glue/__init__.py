"""Jobs as runs of saved Glue jobs, one job a tier."""
