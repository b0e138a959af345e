"""The engine delta_rs by itself: no Spark."""
