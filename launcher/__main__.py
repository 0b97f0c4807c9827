"""`python -m launcher`: the Python half of `./sluice`."""

import sys

from launcher.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
