"""`python -m curation.sample OUT.warc.gz`: write the sample crawl."""

import sys
from pathlib import Path

from curation.sample import write_sample


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m curation.sample OUT.warc.gz", file=sys.stderr)
        return 2
    write_sample(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
