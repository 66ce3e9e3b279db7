"""Everything that is kept:

the journal, checkpoints and the other objects of a sweep, under one storage path.
"""
