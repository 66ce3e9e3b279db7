"""The shell around the core: the controller, its workers and the link to them."""
