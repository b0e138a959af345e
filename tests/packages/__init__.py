"""What `gddl bundle` makes, installed where there is nothing else."""
