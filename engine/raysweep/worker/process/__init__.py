"""The process of a worker: forks, descendants, state that a trial leaves behind."""
