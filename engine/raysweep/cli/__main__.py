"""`python -m raysweep.cli`, for environments whose scripts are not on the path."""

import sys

from raysweep.cli import main

sys.exit(main())
