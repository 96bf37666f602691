"""`python -m zoo`, the same as the console script `zoo`."""

import sys

from zoo.cli import main

sys.exit(main())
