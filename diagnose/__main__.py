"""`python -m diagnose` is the same as the `diagnose` command."""

import sys

from diagnose.cli import main

sys.exit(main())
