"""Where compiled kernels are kept, and the decorator that makes a function a kernel.

What may live here: the choice of the cache directory. Modules named `kernels.py` import it, nothing
else does: importing it imports numba.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding  # type: ignore[import-untyped]
from numba.extending import intrinsic
from numba.np import arrayobj

_config: Any = numba.config
_types: Any = numba.types
_make_array: Any = arrayobj.make_array


def _digest() -> str:
    """Names what compiled code depends on: the kernels' sources, numba, LLVM and this CPU.

    The sources are those of `curation.text` and of `extract/blocks/page.py`, whose constants are
    compiled in, and every file named `kernels.py` in the package: numba itself notices a change of
    the file that it compiles, but not of the files that this one imports.
    """
    here = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=8)
    page = here.parent / "extract" / "blocks" / "page.py"
    for path in sorted({*here.rglob("*.py"), *here.parent.rglob("kernels.py"), page}):
        digest.update(path.read_bytes())
    cpu = (binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())
    digest.update(repr((numba.__version__, version("llvmlite"), cpu)).encode())
    return digest.hexdigest()


@cache
def directory() -> Path | None:
    """The directory of compiled kernels, made if need be; None where none can be written.

    `$NUMBA_CACHE_DIR`, else `$XDG_CACHE_HOME/gristmill/kernels`, else `~/.cache/gristmill/kernels`;
    in it a directory per digest. Processes may start together: numba writes every file under a
    temporary name and renames it, and a kernel has one signature, so that all write the same.
    """
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        path = Path(_config.CACHE_DIR or root / "gristmill" / "kernels") / _digest()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except (OSError, RuntimeError):  # not writable; no home
        return None
    return path


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` at its first call, without the GIL, and keep the code in `directory()`.

    Call a kernel with arrays of the same types every time (see `directory`).
    """
    path = directory()
    if path is None:
        return numba.njit(nogil=True)(function)
    before, _config.CACHE_DIR = _config.CACHE_DIR, str(path)
    try:
        return numba.njit(nogil=True, cache=True)(function)
    finally:
        _config.CACHE_DIR = before


#: For the parts that kernels share: compiled into each of them. They take arrays as `pointer`s.
inline: Callable[[Callable[..., Any]], Any] = numba.njit(forceinline=True)

#: As `inline`, but compiled once and called: for parts that are long and seldom run.
part: Callable[[Callable[..., Any]], Any] = numba.njit


def _pointer(_: Any, array: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _make_array(signature.args[0])(context, builder, arguments[0]).data

    return _types.CPointer(array.dtype)(array), code


#: `pointer(array)`, in a kernel: the address of the array's first element, to be indexed from 0 on.
#: An array that is handed to another function counts as one more reference, by an atomic
#: instruction that costs more than finding a word, and its indices may be negative; a pointer knows
#: nothing of this.
pointer: Any = intrinsic(_pointer)


def _load8(_: Any, data: Any, i: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        where = builder.gep(arguments[0], [arguments[1]])
        word = builder.bitcast(where, context.get_value_type(_types.uint64).as_pointer())
        return builder.load(word, align=1)

    return _types.uint64(_types.CPointer(_types.uint8), _types.int64), code


#: `load8(data, i)`, in a kernel: the eight bytes from `i` on as one uint64, the first the lowest.
#: The caller sees to it that they are there.
load8: Any = intrinsic(_load8)
