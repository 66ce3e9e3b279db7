"""The journal of a sweep: numbered segments, which are also the sweep's lock."""
