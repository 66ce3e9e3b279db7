"""The calls of Ray Tune, Ray Train and Ray Data inside a trial."""
