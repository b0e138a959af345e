"""Pure decisions: no pyspark, no I/O, no clock. Every one is a frozen value that a test reads without a JVM."""
