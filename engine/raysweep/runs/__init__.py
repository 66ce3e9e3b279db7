"""The storage's knowledge of a run: its folder, its holder, its state, its standing. Needs no Ray."""
