"""raysweep beside what a user would pick instead: in one run, on the same machine, alternating.

`python -m benchmarks` runs all, `python -m benchmarks noop` one; the result is JSON on stdout.
"""
