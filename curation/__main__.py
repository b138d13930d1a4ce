"""`python -m curation`."""

import sys

from curation.cli import main

if __name__ == "__main__":
    sys.exit(main())
