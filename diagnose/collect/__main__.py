"""`python3 -m diagnose.collect`: the one-file program without building it."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main("checkout"))
