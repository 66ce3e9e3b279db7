"""Reads of a remote store are made several at a time, those of a disk one after the other."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.parallel import each_of, folders_with


class Remote:
    def local_path(self, key: str) -> Path | None:
        return None


class Local:
    def local_path(self, key: str) -> Path | None:
        return Path(key)


def test_a_remote_store_is_asked_several_times_at_once_and_answers_keep_their_order() -> None:
    at_once = threading.Barrier(8, timeout=20)
    store: Any = Remote()

    def read(number: int) -> int:
        at_once.wait()
        return -number

    assert each_of(store, read, range(8)) == [-number for number in range(8)]


def test_a_disk_is_read_on_the_callers_thread() -> None:
    store: Any = Local()
    assert set(each_of(store, lambda _: threading.get_ident(), range(8))) == {threading.get_ident()}
    assert each_of(store, lambda number: number, []) == []


def test_only_folders_that_hold_the_object_are_found_in_order() -> None:
    store = open_store("memory://folders-with")
    for key in ("b/train.json", "a/sweep.json", "c/deep/train.json", "a/train.json", "d/train.json.old"):
        store.put(key, b"x")
    assert folders_with(store, "train.json") == ["a", "b"]
    assert folders_with(store, "sweep.json") == ["a"]
