"""Tables of one task (`tasks: one`) alone, in this process or in those that the tests start: no Spark."""
