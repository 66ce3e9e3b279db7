"""The right to write a run: claims, leases, replay of the journal, reopening, removal."""
