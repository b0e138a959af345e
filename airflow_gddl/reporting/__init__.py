"""What a run tells: results in the log, metrics, asset events, alerts, and what is kept beside a continuous job."""
