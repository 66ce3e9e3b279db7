"""Pictures of the documentation, made from real runs of this version: `make pictures`."""
