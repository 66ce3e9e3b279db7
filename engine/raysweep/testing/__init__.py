"""Contract suites, fakes and fault injection for those who extend or test raysweep.

`journal_contract.JournalBackendContract` is the suite that a journal backend must pass (needs pytest).
"""

from raysweep.testing.memory_backend import MemoryBackend

__all__ = ["MemoryBackend"]
