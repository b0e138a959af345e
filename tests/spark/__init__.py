"""The Spark engine under crashes, rivals and random histories."""
