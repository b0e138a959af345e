"""Simulated change data capture: files as DMS or Debezium write them from any tables, and the expected content of the
replica.

All but `commands` needs pyarrow; nothing outside of this package imports it.
"""
