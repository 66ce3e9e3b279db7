"""Questions about the state, answered without changing it: scores, the outcome, lineage, liveness."""
