"""The host of a worker: memory, CPUs, GPUs."""
