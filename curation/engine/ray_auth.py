"""How this process speaks to Ray: decided here once, in the open, before Ray is imported.

What may live here: the environment variables that Ray reads when it is imported.
"""

from __future__ import annotations

import os


def ray_environment() -> str:
    """Sets how Ray authenticates and that it reports no usage; returns the mode.

    Ray turns authentication on by itself where it finds a token in the home directory, so that the
    same command works on one machine and fails on the next. Here the user's own `RAY_AUTH_MODE`
    wins; without it the mode is `token` where `RAY_AUTH_TOKEN` or `RAY_AUTH_TOKEN_PATH` is set,
    else `disabled`. Must be called before Ray is imported for the first time.
    """
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    mode = os.environ.setdefault("RAY_AUTH_MODE", "token" if named else "disabled")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return mode
