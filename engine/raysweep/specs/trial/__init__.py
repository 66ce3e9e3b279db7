"""What one trial runs, and what it takes: programs and their judges, resources, gangs."""
