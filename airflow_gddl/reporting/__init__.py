"""What a run reports: results in the log, metrics, asset events, alerts, and the monitor of a continuous job."""
