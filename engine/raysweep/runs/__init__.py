"""What the storage knows of a run: its folder, who holds it, its state, how it stands. Needs no Ray."""
