"""Local platforms for tests and demos: they implement the real protocol and run real jobs."""
