"""The compose file: what it says, and the same commands on this machine."""
