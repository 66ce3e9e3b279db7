"""`new_checkpoint` in a training worker."""

from __future__ import annotations

from raysweep.training.worker_session import TrainWorkerSession


def test_it_is_a_temporary_folder() -> None:
    """The same code runs in a trial and in the training of its winner."""
    with TrainWorkerSession("run-1").new_checkpoint() as folder:
        assert list(folder.iterdir()) == []
        (folder / "model").write_text("m")
    assert not folder.exists()
