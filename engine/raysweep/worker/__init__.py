"""A trial's process: the messages it exchanges, its session, its runner, and the warm worker around them."""
