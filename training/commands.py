"""How the commands end: by their exit code, and without a traceback where nothing is wrong.

What may live here: `| head` and Ctrl-C. What is wrong with what was asked is the commands' own.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn


def leave(main: Callable[[], int]) -> NoReturn:
    """Ends the process by the exit code of a command."""
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    sys.exit(code)
