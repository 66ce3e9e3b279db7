"""What the calls of Ray Tune, Ray Train and Ray Data do inside a trial."""
