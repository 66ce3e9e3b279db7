"""The words of the core: events in, commands out, the life of a trial, the classes of failures.

Tables, types and codecs only.
"""
