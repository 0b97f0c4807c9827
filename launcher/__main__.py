"""`python -m launcher`: what `./sluice` hands over to."""

import sys

from launcher.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
