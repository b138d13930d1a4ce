"""`python -m training.launch [CONFIG.yaml|PRESET] [a.b=c ...]`: train, or go on."""

from __future__ import annotations

import sys

from training import loop, world
from training.config import ConfigError, load


def main(arguments: list[str]) -> int:
    """The command; gives its exit code."""
    source = arguments[0] if arguments and "=" not in arguments[0] else None
    try:
        config = load(source, arguments[1:] if source else arguments)
        here = world.join(config)
    except ConfigError as error:
        print(f"training.launch: {error}", file=sys.stderr)
        return 2
    try:
        loop.main(config, here)
    finally:
        world.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
