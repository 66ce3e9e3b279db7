"""Each backend through the contract suite."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raysweep.storage.journal.journal import JournalBackend
from raysweep.storage.journal.names import SegmentObject
from raysweep.storage.journal.objects import ObjectJournal
from raysweep.storage.objects.opening import open_store
from raysweep.testing import MemoryBackend
from raysweep.testing.journal_contract import JournalBackendContract


class TestMemoryBackend(JournalBackendContract):
    def make_backend(self) -> JournalBackend:
        return MemoryBackend()

    def remove_segment(self, backend: JournalBackend, number: int) -> None:
        assert isinstance(backend, MemoryBackend)
        del backend.segments[number]


class ObjectJournalContract(JournalBackendContract):
    kind = ""

    @pytest.fixture(autouse=True)
    def _make_url(self, store_url: Callable[[str], str]) -> None:
        self.url = store_url(self.kind)

    def make_backend(self) -> JournalBackend:
        return ObjectJournal(open_store(self.url), "sweep/journal")

    def reopen(self, backend: JournalBackend) -> JournalBackend:
        return self.make_backend()

    def remove_segment(self, backend: JournalBackend, number: int) -> None:
        assert isinstance(backend, ObjectJournal)
        backend.store.delete(backend.key(SegmentObject(first=number, last=number)))


class TestLocalJournal(ObjectJournalContract):
    kind = "local"


class TestMemoryStoreJournal(ObjectJournalContract):
    kind = "memory"


class TestS3Journal(ObjectJournalContract):
    kind = "s3"
