"""Where a job runs: each runner takes a JobSpec and gives one JobResult a table."""
