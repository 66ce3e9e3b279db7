"""`python -m raysweep.cli`, where the script is not on the path."""

import sys

from raysweep.cli import main

sys.exit(main())
