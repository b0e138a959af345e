"""What platforms need to run this package: a wheel, an archive of the job's code, requirements, environments."""
