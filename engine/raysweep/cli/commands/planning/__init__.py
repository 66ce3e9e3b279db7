"""raysweep plan: what a sweep would do, without starting anything."""
