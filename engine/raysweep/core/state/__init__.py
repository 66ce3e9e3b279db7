"""The state of the core: the sweep, its trials and slots, the compiled spec, indexes, invariants."""
