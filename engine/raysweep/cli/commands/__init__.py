"""The code of the commands. `cli.app` and `cli.stored_runs` declare them with their options."""
