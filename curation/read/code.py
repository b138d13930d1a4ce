"""Source code as documents: one file of a directory or an archive is one document.

What may live here: which files of a source tree are code that people wrote, told by their paths
and sizes. What is told by their text is the business of the filter `code`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from curation.document import RawDocument
from curation.read.identity import of_file
from curation.read.plain import text_of
from curation.read.tally import Tally
from curation.read.trees import Files, without_coding

#: Languages by their usual names (those of GitHub's Linguist), and the endings of their files.
LANGUAGES = {
    "Ada": "adb ads",
    "Agda": "agda",
    "Assembly": "asm s",
    "AWK": "awk",
    "Batchfile": "bat cmd",
    "C": "c h",
    "C#": "cs",
    "C++": "cc cpp cxx hh hpp hxx",
    "CMake": "cmake",
    "Clojure": "clj cljc cljs",
    "CoffeeScript": "coffee",
    "Common Lisp": "lisp lsp",
    "CSS": "css",
    "Cuda": "cu cuh",
    "Dart": "dart",
    "Elixir": "ex exs",
    "Elm": "elm",
    "Emacs Lisp": "el",
    "Erlang": "erl hrl",
    "F#": "fs fsi fsx",
    "Fortran": "f f03 f08 f77 f90 f95 for",
    "GLSL": "frag glsl vert",
    "Go": "go",
    "Groovy": "gradle groovy",
    "Haskell": "hs lhs",
    "HTML": "htm html",
    "Idris": "idr",
    "Java": "java",
    "JavaScript": "cjs js jsx mjs",
    "JSON": "json",
    "Julia": "jl",
    "Kotlin": "kt kts",
    "Lean": "lean",
    "Lua": "lua",
    "Makefile": "mak mk",
    "Markdown": "markdown md",
    "Maple": "mpl",
    "MATLAB": "m",
    "Nix": "nix",
    "OCaml": "ml mli",
    "Pascal": "pas pp",
    "Perl": "pl pm",
    "PHP": "php",
    "PowerShell": "ps1 psd1 psm1",
    "Prolog": "pro",
    "Protocol Buffer": "proto",
    "Python": "py pyi pyw pyx",
    "R": "r",
    "Racket": "rkt",
    "reStructuredText": "rst",
    "Ruby": "gemspec rake rb",
    "Rust": "rs",
    "SAS": "sas",
    "Scala": "sbt scala",
    "Scheme": "scm ss",
    "Shell": "bash sh zsh",
    "Solidity": "sol",
    "SQL": "sql",
    "Stan": "stan",
    "Standard ML": "fun sig sml",
    "Stata": "ado do",
    "Swift": "swift",
    "SystemVerilog": "sv svh",
    "Tcl": "tcl",
    "TeX": "tex",
    "Thrift": "thrift",
    "TOML": "toml",
    "TypeScript": "cts mts ts tsx",
    "Verilog": "v",
    "VHDL": "vhd vhdl",
    "Visual Basic": "vb vbs",
    "XML": "xml",
    "YAML": "yaml yml",
    "Zig": "zig",
}
_BY_ENDING = {end: name for name, ends in LANGUAGES.items() for end in ends.split()}
_BY_NAME = {
    "makefile": "Makefile",
    "gnumakefile": "Makefile",
    "cmakelists.txt": "CMake",
    "dockerfile": "Dockerfile",
    "rakefile": "Ruby",
    "gemfile": "Ruby",
}
#: Languages that hold data or prose more often than programs; read only where asked for by name.
DATA = frozenset({"HTML", "JSON", "Markdown", "reStructuredText", "TeX", "TOML", "XML", "YAML"})

#: What others wrote: names of folders, after Linguist's list of vendored paths.
_VENDORED = re.compile(
    r"(^|/)(node_modules|bower_components|jspm_packages|vendors?|third[-_]?party|3rd[-_]?party"
    r"|extern(als?)?|deps|dist|Godeps|Pods|Carthage|site-packages)/",
    re.IGNORECASE,
)
#: What tools wrote: names of files, after Linguist's tests for generated ones.
_GENERATED = re.compile(
    r"(_pb2(_grpc)?\.pyi?|\.pb\.(go|cc|h)|\.g\.dart|\.freezed\.dart|\.designer\.(cs|vb)"
    r"|\.generated\.\w+|_generated\.\w+|[.-]min\.(js|css)|\.bundle\.js)$",
    re.IGNORECASE,
)
_LOCKS = re.compile(
    r"(^|/)((cargo|composer|gemfile|pipfile|poetry|uv|yarn)\.lock|go\.sum"
    r"|(package-lock|npm-shrinkwrap)\.json|pnpm-lock\.yaml)$",
    re.IGNORECASE,
)
#: What a file says of its own licence (SPDX 3.0, annex on source files), and of its encoding (PEP
#: 263, and editors).
_SPDX = re.compile(r"SPDX-License-Identifier:[ \t]*([A-Za-z0-9][A-Za-z0-9.+()\- ]*[A-Za-z0-9.+)])")
_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)
_HEAD = 4096  # characters (bytes) in which these are looked for


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class CodeOptions:
    """How source trees are read.

    `languages`: names of those that are read, None for all but `DATA`. `max_file`: bytes of a file;
    The Stack has no larger ones than 1 MB (from memory).
    """

    languages: tuple[str, ...] | None = None
    max_file: int = 1 << 20


def language_of(name: str) -> str | None:
    """The language of a file by its name; None for one that is no code as far as that tells."""
    base = os.path.basename(name).lower()
    return _BY_NAME.get(base) or _BY_ENDING.get(base.rpartition(".")[2] if "." in base else "")


def read_code(files: Files, path: str, tally: Tally, options: CodeOptions) -> Iterator[RawDocument]:
    """The source files of a tree as documents; the others are skipped, each under its reason."""
    repository = _repository(path)

    def refuse(name: str, size: int) -> str | None:
        language = language_of(name)
        if _VENDORED.search(name):
            return "vendored"
        if _LOCKS.search(name):
            return "lock_file"
        if language is None:
            return "no_code"
        if language in DATA if options.languages is None else language not in options.languages:
            return "other_language"
        if _GENERATED.search(name):
            return "generated"
        return "too_large" if size > options.max_file else None

    for file in files(refuse):
        coding = _CODING.search(file.data[:_HEAD])
        text = text_of(file.data, tally, coding[1].decode() if coding else None)
        if text is None or not text.strip():
            tally.skip("binary" if text is None else "empty")
            continue
        tally.keep()
        said = _SPDX.search(text, 0, _HEAD)
        yield RawDocument(
            id=of_file(path, file.name),
            text=text,
            media_type="text/plain",
            url=f"{repository}/{file.shown}",  # its place: it has no address
            license=said[1] if said else None,
            metadata={
                "path": file.shown,
                "language": language_of(file.name),
                "repository": repository,
            },
        )


def _repository(path: str) -> str:
    """What a tree is called: the name of its directory, or of the archive without its ending."""
    name = without_coding(os.path.basename(path.rstrip("/")))
    stem, _, end = name.rpartition(".")
    return stem if stem and end.lower() in ("tar", "tgz", "tbz2", "txz", "zip") else name
