"""A manifest that another program wrote leads no reader out of the storage path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from raysweep.errors import CheckpointDamagedError, OutsideStorageError
from raysweep.storage.checkpoints.manifest import Manifest, encode_manifest
from raysweep.storage.checkpoints.node_cache import NodeCache
from raysweep.storage.checkpoints.store import CheckpointStore, open_checkpoint, restore_uri
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.sealed import encode_sealed


def forge(checkpoints: CheckpointStore, manifest: Manifest) -> str:
    """Write a manifest without a look at what it says; returns the checkpoint's URI."""
    key = checkpoints.addresses.manifest_key(manifest.trial_id, manifest.number)
    checkpoints.store.put(key, encode_sealed(encode_manifest(manifest)))
    return checkpoints.uri(manifest.trial_id, manifest.number)


def link_to(address: str) -> Manifest:
    return Manifest(trial_id="00000", number=1, folder="1-link", files=(), link=address, link_bytes=1)


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the reader may see, and others may not: beside the storage, in the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "private"
    folder.mkdir(parents=True)
    (folder / "key").write_text("a secret")
    open_store("memory://private").put("private/key", b"a secret")
    return folder


@pytest.mark.parametrize("kind", ["local", "memory", "s3"])
@pytest.mark.parametrize(
    "address",
    [
        "{private}",
        "{private}/key",
        "file://{private}",
        "~/private",
        "../home/private",
        "s-1/../../home/private",
        "{url}/../home/private",
        "memory://private/private",
        "memory://private/private/key",
        ".",
        "{url}",
    ],
)
def test_a_link_out_of_the_storage_is_not_followed(
    kind: str, address: str, private: Path, store_url: Callable[[str], str], tmp_path: Path
) -> None:
    url = store_url(kind)
    checkpoints = CheckpointStore(open_store(url), "s-1", give_up_after_s=0.5)
    uri = forge(checkpoints, link_to(address.format(private=private, url=checkpoints.store.url)))
    with pytest.raises(OutsideStorageError, match=r"outside the storage path; .* `raysweep pull --follow`"):
        restore_uri(uri, tmp_path / "out")
    with pytest.raises(OutsideStorageError):
        checkpoints.verify(uri)
    with pytest.raises(OutsideStorageError), open_checkpoint(uri):
        pass
    assert not (tmp_path / "out").exists()


def test_a_link_within_the_storage_is_followed_but_by_no_symbolic_link(private: Path, tmp_path: Path) -> None:
    store = open_store(tmp_path / "sweeps")
    store.put("models/7/weights", b"7")
    checkpoints = CheckpointStore(store, "s-1", give_up_after_s=0.5)
    for address in ("models/7", f"{store.url}/models/7", f"{store.url}/s-1/../models/7", "models/7/weights"):
        with open_checkpoint(forge(checkpoints, link_to(address))) as folder:
            assert (folder / "weights").read_bytes() == b"7"
    (tmp_path / "sweeps" / "models" / "8").symlink_to(private)
    (tmp_path / "sweeps" / "models" / "7" / "key").symlink_to(private / "key")
    for address in ("models/8", "models/7", "models/7/key"):
        with pytest.raises(OutsideStorageError, match="by a symbolic link"):
            restore_uri(forge(checkpoints, link_to(address)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["memory"])
def test_a_part_is_named_by_a_hash_and_nothing_else(
    kind: str, private: Path, store_url: Callable[[str], str], tmp_path: Path
) -> None:
    """Else a node's cache reads, and clears away, whatever file of the node the name leads to."""
    cache = NodeCache(tmp_path / "cache", 2**20)
    (tmp_path / "cache").mkdir()
    checkpoints = CheckpointStore(open_store(store_url(kind)), "s-1", give_up_after_s=0.5, cache=cache)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "weights").write_bytes(b"w" * 100)
    manifest = checkpoints.save("00000", 1, tmp_path / "own").manifest
    for name in (str(private / "key"), "../home/private/key", "", "f" * 39, "F" * 40):
        stored = manifest.objects[0]._replace(hash=name)
        uri = forge(checkpoints, replace(manifest, objects=(stored,)))
        with pytest.raises(CheckpointDamagedError, match="the manifest has the hash"):
            checkpoints.restore(uri, tmp_path / "out")
    assert (private / "key").read_text() == "a secret"
