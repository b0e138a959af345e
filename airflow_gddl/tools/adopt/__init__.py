"""Take over a Delta table that another job has kept."""
