"""``python -m lazygraph`` is the command ``lazygraph``."""

import sys

from lazygraph.cli import main

sys.exit(main())
