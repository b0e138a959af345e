"""The `gddl` command: a thin shell around the catalog, the runners and the simulator."""
