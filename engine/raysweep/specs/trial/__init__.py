"""The code of one trial, and its resources: programs and their judges, resources, gangs."""
