"""Programs that are judged: each module has `play`, which takes a delivery's files one arrival after the other."""
