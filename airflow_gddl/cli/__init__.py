"""The `gddl` command: a thin layer over the catalog, the runners and the simulator."""
