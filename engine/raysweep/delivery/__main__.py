"""`python -m raysweep.delivery`: started by `beside` only."""

from raysweep.delivery.process import main

main()
