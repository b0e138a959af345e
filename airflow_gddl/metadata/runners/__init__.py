"""Settings of each runner as the metadata has them, with their checks."""
