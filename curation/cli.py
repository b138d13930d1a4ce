"""The command line: `python -m curation VERB` and the console script `curation`.

What may live here: arguments, exit codes, and what goes to stdout. The work is done elsewhere.
Exit codes: 0 done and complete; 1 a run failed or a check did not hold; 2 wrong usage or
configuration; 3 done, but some units are incomplete or quarantined; 75 interrupted, resumable.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

_NAMED = 50  # entries of a list that are named one by one
DONE, FAILED, USAGE, PARTIAL, INTERRUPTED = 0, 1, 2, 3, 75


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (for the whole process)
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # of a job in the background
            signal.signal(signal.SIGINT, _interrupt)
        if sys.unraisablehook is sys.__unraisablehook__:
            sys.unraisablehook = _ignored
        return _main(arguments)
    except KeyboardInterrupt:
        return _say(INTERRUPTED, "interrupted; the same command goes on from here")
    finally:
        if signal.getsignal(signal.SIGALRM) is _interrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _main(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    from curation.engine.attempts import RunFailed
    from curation.engine.driver import Collapsed
    from curation.engine.recipe import RecipeError
    from manifests.tokens import ManifestError

    try:
        code: int = options.do(options)
        sys.stdout.flush()
        return code
    except RecipeError as error:
        return _say(USAGE, str(error))
    except Collapsed as error:
        print(error.evidence, file=sys.stderr)
        return _say(FAILED, str(error))
    except (RunFailed, ManifestError) as error:
        return _say(FAILED, str(error))
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return DONE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _say(FAILED, f"{where}{error.strerror or error}")


class _Interrupted(KeyboardInterrupt):
    """A signal to stop. Not KeyboardInterrupt itself: where that has passed through code made from
    text (as dataclasses do), Python ends by the signal although it was caught."""


#: Modules whose locks must not be left taken, and the functions of theirs that may wait for long.
_LOCKING = ("threading", "queue", "concurrent.futures", "weakref", "_weakrefset")
_WAITING = ("wait", "_wait_for_tstate_lock")
_LATER = 0.01  # seconds


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raises, unless a lock of the standard library is just being taken or given: it would stay
    taken, and who waits for it would for ever. Then the signal is put off."""
    if frame is not None and frame.f_code.co_name not in _WAITING:
        module = frame.f_globals.get("__name__", "")
        if any(module == name or module.startswith(f"{name}.") for name in _LOCKING):
            return _put_off()
    raise _Interrupted


def _put_off() -> None:
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, _LATER)


def _ignored(problem: sys.UnraisableHookArgs) -> None:
    """A signal that came while Python ran what it ignores errors of (a finaliser) would be lost: it
    is put off. Of other such errors Python tells as ever."""
    if isinstance(problem.exc_value, _Interrupted):
        _put_off()
    else:
        sys.__unraisablehook__(problem)


def _say(code: int, message: str) -> int:
    if code == INTERRUPTED:  # impatience must not change the exit code any more
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdout.flush()
    print(f"curation: {' '.join(message.split())}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """One line on stderr for wrong usage, as for a wrong recipe."""

    def error(self, message: str) -> Any:
        self.exit(USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="curation", description=_summary(__doc__))
    parser.add_argument("--version", action="version", version=f"gristmill {version('gristmill')}")
    verbs = parser.add_subparsers(dest="verb", required=True, parser_class=_Parser)
    verb = _adder(verbs)

    for name, do in (("run", _run), ("submit", _submit), ("plan", _plan)):
        sub = verb(name, do)
        sub.add_argument("recipe", metavar="RECIPE")
        where = " (as all nodes of the cluster see them)" if name == "submit" else ""
        sub.add_argument(
            "--input",
            action="append",
            default=[],
            metavar="P",
            nargs="+",
            help=f"files, globs, directories, URLs{where}, or `sample`: the embedded crawl",
        )
        sub.add_argument(
            "--output",
            metavar="DIR",
            required=name == "submit",
            help="run directory" + (where or " (default: runs/NAME-KEY)"),
        )
        sub.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="K.K=V",
            dest="settings",
            help="a field of the recipe, or STAGE.PARAMETER=VALUE",
        )
        sub.add_argument("--limit", type=_positive, metavar="N", help="only the first N files")
        sub.add_argument("--base", metavar="RUN", help="reuse what this run has")
        sub.add_argument(
            "--index", metavar="DIR", help="deduplicate against earlier crawls too, and add to them"
        )
        if name != "plan":
            sub.add_argument(
                "--accept-collapse",
                action="store_true",
                help="go on where deduplication removes more than the recipe's `collapse` allows",
            )
        if name == "run":
            sub.add_argument("--executor", choices=("inline", "ray"), default="inline")
            sub.add_argument("--address", help="of a running Ray cluster (implies --executor ray)")
            sub.add_argument(
                "--workers", type=_positive, metavar="N", help="default: all processors"
            )
            sub.add_argument(
                "--shard", metavar="I/N", help="read only the I-th of N shares of the units"
            )
            sub.add_argument(
                "--retry", choices=("incomplete",), help="read again what was not read to its end"
            )
            sub.add_argument("--quiet", action="store_true", help="no progress")
        if name == "submit":
            sub.add_argument("--address", required=True, help="the job server: http://HOST:8265")
            sub.add_argument("--follow", action="store_true", help="wait, with the job's log")
            sub.add_argument(
                "--python",
                metavar="PATH",
                help="interpreter on the cluster (default: this one's path)",
            )
            sub.add_argument("--image", metavar="URI", help="container image with gristmill in it")

    sub = verb("stats", _stats)
    sub.add_argument("run", metavar="RUN")
    sub.add_argument("--by", choices=("language", "source", "crawl", "domain"))
    sub.add_argument("--rules", action="store_true", help="what each rule drops, and would drop")

    sub = verb("status", _status)
    sub.add_argument("run", metavar="RUN")

    sub = verb("inspect", _inspect)
    sub.add_argument("run", metavar="RUN")
    sub.add_argument("--stage", metavar="S")
    sub.add_argument("--reason", metavar="R")
    which = sub.add_mutually_exclusive_group()
    which.add_argument("--near-threshold", action="store_true", help="documents near a threshold")
    which.add_argument("--largest", action="store_true", help="the largest groups of duplicates")
    sub.add_argument(
        "-n", type=_positive, default=5, metavar="N", help="documents or groups (default 5)"
    )

    sub = verb("whatif", _whatif)
    sub.add_argument("run", metavar="RUN")
    sub.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="STAGE.PARAMETER=V",
        dest="settings",
        required=True,
    )
    sub.add_argument("-n", type=int, default=3, metavar="N", help="samples each way (default 3)")

    sub = verb("contamination", _contamination)
    sub.add_argument("run", metavar="RUN")
    sub.add_argument("-n", type=int, default=3, metavar="N", help="examples (default 3)")
    sub.add_argument(
        "--recall",
        type=_positive,
        metavar="N",
        help="instead: plant N items in copies of documents, and count how many are found",
    )

    sub = verb("verify", _verify)
    sub.add_argument("run", metavar="RUN|MANIFEST")
    sub.add_argument(
        "--replay", type=_positive, metavar="K", help="do K tasks again, compare bytes"
    )

    sub = verb("takedown", _takedown)
    sub.add_argument("list", metavar="LIST", help="a file with an id or a URL in each line")
    sub.add_argument("run", metavar="RUN|MANIFEST")
    sub.add_argument("--output", metavar="DIR", required=True, help="the new run or manifest")
    sub.add_argument(
        "--trained",
        nargs="+",
        type=Path,
        default=[],
        metavar="RUN",
        help="training runs of a manifest: name the steps that have seen what goes",
    )

    sub = verb("diff", _diff)
    sub.add_argument("a", metavar="A", help="a run, or a manifest of tokens")
    sub.add_argument("b", metavar="B", help="another of the same kind")

    sub = verb("export", _export)
    sub.add_argument("run", metavar="RUN|MANIFEST")
    sub.add_argument(
        *("--format", "--to"),
        choices=("datatrove", "megatron", "npy"),
        required=True,
        help="whose files: datatrove for the documents of a run, the others for its tokens",
    )
    sub.add_argument("directory", metavar="DIR", help="new, or of the same export")

    sub = verb("gc", _gc)
    sub.add_argument("run", metavar="RUN")
    sub.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    sub.add_argument(
        "--intermediates",
        action="store_true",
        help="of a complete run also what only global steps read (no other run can reuse it then)",
    )

    sub = verb("doctor", _doctor)
    sub.add_argument("recipe", metavar="RECIPE", nargs="?")
    sub.add_argument("--output", metavar="DIR", default="runs", help="where runs are to lie (runs)")

    sub = verb("bands", _bands)
    sub.add_argument("--threshold", type=_share, default=0.8, metavar="J", help="default 0.8")
    sub.add_argument(
        "--permutations", type=_positive, default=112, metavar="N", help="at most (default 112)"
    )
    sub.add_argument("--bands", type=_positive, metavar="B", help="with --rows: the curve of these")
    sub.add_argument("--rows", type=_positive, metavar="R")

    sub = verb("init", _init, json_too=False)
    sub.add_argument("directory", metavar="DIR", nargs="?", default=".")

    trace = verbs.add_parser("trace", help="where a document comes from and what became of it")
    kinds = trace.add_subparsers(dest="kind", required=True, parser_class=_Parser)
    sub = _adder(kinds)("doc", _trace)
    sub.add_argument("document", metavar="ID_OR_URL")
    sub.add_argument("--in", dest="run", metavar="RUN|MANIFEST", required=True)
    sub = _adder(kinds)("sequence", _trace_sequence)
    sub.add_argument("manifest", metavar="MANIFEST")
    sub.add_argument("sample", metavar="N", type=int, help="from 0 on")

    models = verbs.add_parser("models", help="models and lists: what there is, and getting them")
    _models_verbs(_adder(models.add_subparsers(dest="kind", required=True, parser_class=_Parser)))
    return parser


def _models_verbs(verb: Callable[..., argparse.ArgumentParser]) -> None:
    """`curation models VERB`."""
    verb("list", _models_list)

    sub = verb("where", _models_where)
    sub.add_argument("name", metavar="NAME")

    sub = verb("fetch", _models_fetch, json_too=False)
    sub.add_argument("names", metavar="NAME", nargs="+")
    sub.add_argument("--to", metavar="DIR", help="default: the first of the models' directories")
    sub.add_argument("--force", action="store_true", help="fetch also what is here already")

    _train_kenlm_options(verb("train-kenlm", _models_train_kenlm))

    sub = verb("train-classifier", _models_train_classifier)
    for name, what in (("positive", "texts that are liked"), ("negative", "texts that are not")):
        sub.add_argument(
            f"--{name}",
            action="extend",
            nargs="+",
            metavar="P",
            help=f"{what}: JSONL, Parquet, WET, text files, directories of these, runs",
        )
    sub.add_argument(
        "--pages",
        action="extend",
        nargs="+",
        metavar="P",
        help="instead of both: WARC files, whose prose is held against what lies around it",
    )
    sub.add_argument("--output", required=True, metavar="NAME", help="or a path (/..., ./...)")
    sub.add_argument(
        "--on",
        action="extend",
        nargs="+",
        metavar="P",
        help="texts of which the keep share is meant: the crawl (default: held-out negatives)",
    )
    sub.add_argument("--keep-share", type=_share, default=0.1, metavar="S", help="default 0.1")
    sub.add_argument("--held-out", type=_share, default=0.1, metavar="S", help="default 0.1")
    sub.add_argument(
        "--per",
        choices=("file", "paragraph", "line"),
        default="file",
        help="what of a text file is one text (default file)",
    )
    sub.add_argument(
        "--preparation",
        choices=("line", "words"),
        default="line",
        help="line: as it is (default); words: lower case, punctuation apart",
    )
    sub.add_argument("--granularity", choices=("document", "sentence"), default="document")
    sub.add_argument("--dim", type=_positive, default=100, metavar="N", help="default 100")
    sub.add_argument("--epochs", type=_positive, default=5, metavar="N", help="default 5")
    sub.add_argument(
        "--ngrams", type=_positive, default=2, metavar="N", help="words in a row (default 2)"
    )
    sub.add_argument(
        "--chars", type=_positive, nargs=2, metavar=("MIN", "MAX"), help="parts of words, too"
    )
    sub.add_argument("--lr", type=_rate, default=0.1, metavar="R", help="default 0.1")
    sub.add_argument("--bucket", type=_positive, default=2_000_000, metavar="N", help="of n-grams")
    sub.add_argument("--min-count", type=_positive, default=1, metavar="N", help="of a word")
    sub.add_argument("--seed", type=_positive, default=20, metavar="N", help="default 20")
    sub.add_argument("--quantise", action="store_true", help="a smaller file (.ftz)")
    sub.add_argument("--force", action="store_true", help="replace a model of this name")
    sub.add_argument(
        "--language", type=_tag, metavar="TAG", help="of the texts (BCP-47): judges no other"
    )
    sub.add_argument("--license", default="", metavar="TEXT", help="of the model")


def _train_kenlm_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--force", action="store_true", help="replace a model of this name")
    sub.add_argument(
        "--input",
        action="extend",
        nargs="+",
        required=True,
        metavar="P",
        help="texts: JSONL, Parquet, WET, text files, directories of these, runs",
    )
    sub.add_argument(
        "--language", type=_tag, required=True, metavar="TAG", help="of the texts (BCP-47)"
    )
    sub.add_argument(
        "--output", metavar="NAME", help="or a path (/..., ./...); default: kenlm/LANGUAGE"
    )
    sub.add_argument("--order", type=_positive, default=5, metavar="N", help="default 5")
    sub.add_argument(
        "--tokenizer",
        default="sentencepiece",
        metavar="T",
        help="sentencepiece (default), words, or a SentencePiece model to be used",
    )
    sub.add_argument(
        "--vocabulary", type=_positive, default=65_536, metavar="N", help="pieces (default 65536)"
    )
    sub.add_argument(
        "--normaliser",
        choices=("ccnet", "ccnet-lines"),
        default="ccnet-lines",
        help="ccnet-lines: each line by itself (default); ccnet: all lines joined",
    )
    sub.add_argument(
        "--estimator",
        choices=("auto", "lmplz", "own"),
        default="auto",
        help="auto: lmplz where it is, else our own (default)",
    )
    sub.add_argument(
        "--discount-fallback",
        action="store_true",
        help="of lmplz: discounts of 0.5, 1, 1.5 where the texts give none",
    )
    sub.add_argument(
        "--per",
        choices=("file", "paragraph", "line"),
        default="line",
        help="what of a text file is one document (default line)",
    )
    sub.add_argument("--held-out", type=_share, default=0.05, metavar="S", help="default 0.05")
    sub.add_argument("--limit-documents", type=_positive, metavar="N", help="train on the first N")
    sub.add_argument("--limit-words", type=_positive, metavar="N", help="train on about N words")
    sub.add_argument(
        "--arpa", action="store_true", help="weights as text, not in KenLM's binary form"
    )
    sub.add_argument("--seed", type=_positive, default=20, metavar="N", help="default 20")
    sub.add_argument("--license", default="", metavar="TEXT", help="of the model")
    sub.add_argument("--source", default="", metavar="TEXT", help="what it was trained on")
    sub.add_argument(
        "--demonstration",
        action="store_true",
        help="too little text to judge real pages: it drops none",
    )
    sub.add_argument("--quiet", action="store_true", help="no progress")


def _adder(verbs: Any) -> Callable[..., argparse.ArgumentParser]:
    """How a verb is added to `verbs`: `do` carries it out, and its docstring explains it."""

    def verb(name: str, do: Any, json_too: bool = True) -> argparse.ArgumentParser:
        sub: argparse.ArgumentParser = verbs.add_parser(
            name, help=_summary(do.__doc__), description=_summary(do.__doc__)
        )
        sub.set_defaults(do=do)
        if json_too:
            sub.add_argument("--json", action="store_true", help="print JSON")
        return sub

    return verb


def _summary(text: str | None) -> str:
    return (text or "").strip().splitlines()[0]


def _positive(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError("a number of at least 1 is wanted")
    return value


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("a number above 0 is wanted")
    return value


def _tag(text: str) -> str:
    if not re.fullmatch("[a-z]{2,3}(-[A-Za-z0-9]{1,8})*", text):
        raise argparse.ArgumentTypeError("a tag (BCP-47), as en or zh-Hant, is wanted")
    return text


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError("a number between 0 and 1 is wanted")
    return value


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _paths(options: argparse.Namespace) -> list[str]:
    return [path for group in options.input for path in group]


def _inputs(options: argparse.Namespace) -> list[str]:
    return [_sample() if path == "sample" else path for path in _paths(options)]


def _sample() -> str:
    """The embedded sample crawl as a file; rewritten only where it is missing."""
    from curation.sample import write_sample

    path = Path("runs/sample-crawl.warc.gz")
    fresh = path.with_name(f".sample-crawl.{os.getpid()}.tmp")
    path.parent.mkdir(exist_ok=True)
    write_sample(fresh)
    if path.exists() and path.read_bytes() == fresh.read_bytes():
        fresh.unlink()  # the old file keeps its time, and with it its place in earlier runs
    else:
        os.replace(fresh, path)
    return str(path)


def _run(options: argparse.Namespace) -> int:
    """Run a recipe, or resume it: the same command goes on where it was stopped."""
    from curation.api import run
    from curation.engine.plan import open_plan
    from curation.engine.tokens.recipe import is_tokens
    from curation.inspect import demonstrations

    if is_tokens(options.recipe):
        return _run_tokens(options)
    how = _how(options)
    result = run(options.recipe, **how, shard=options.shard, index=options.index)
    if result.stats["reader"]["documents"]:
        _point_to(result.path)
    if options.json:
        _print_json({"run": str(result.path), "unfinished": result.unfinished, **result.stats})
    else:
        print(result.table())
        print()
        shown = _shown(result.path)
        print(f"documents  {shown}/documents/")
        print(f"ledger     {shown}/stats.json")
        print(f"look at    {_command()} inspect {shown}")
    failed = sum(stage["failed"]["documents"] for stage in result.stats["stages"])
    documents = result.stats["reader"]["documents"]
    plan = open_plan(result.path)
    for note in () if options.quiet else demonstrations.notes(plan):
        print(f"curation: {note}", file=sys.stderr)
    if not documents:
        settings = plan.recipe.settings
        kinds = ", ".join(dict.fromkeys(one.kind for one in settings.inputs))
        key = "input.0.kind" if settings.listed else "input.kind"
        hint = f"no documents: the recipe reads {kinds}; --set {key}=... reads other files"
        print(f"curation: {hint}", file=sys.stderr)
    if failed > result.failure_ceiling * documents:
        classes = {e for stage in result.stats["stages"] for e in stage["failures"]}
        shown = ", ".join(sorted(classes))
        print(f"curation: {failed} of {documents} documents failed: {shown}", file=sys.stderr)
    for path, problem in result.unfinished.items():
        print(f"curation: {path}: {problem}", file=sys.stderr)
    return DONE if result.complete else PARTIAL


def _how(options: argparse.Namespace) -> dict[str, Any]:
    """What `curation run` says of any kind of recipe."""
    same = ("output", "base", "settings", "workers", "address", "limit", "retry", "quiet")
    return {
        **{name: getattr(options, name) for name in same},
        "inputs": _inputs(options),
        "executor": "ray" if options.address else options.executor,
        "accept_collapse": options.accept_collapse,
    }


def _run_tokens(options: argparse.Namespace) -> int:
    """`curation run` of a recipe of kind tokens."""
    from curation.api import run_tokens

    for name in ("shard", "index"):
        if getattr(options, name) is not None:
            return _say(USAGE, f"--{name}: not for recipes of kind tokens")
    result = run_tokens(options.recipe, **_how(options))
    _point_to(result.path, "latest-tokens")
    if options.json:
        about = {"run": str(result.path), "unfinished": result.unfinished}
        _print_json({**about, "manifest": result.manifest.record()})
    else:
        shown = _shown(result.path)
        print(result.table())
        print()
        print(f"manifest   {shown}/manifest.json")
        print(f"data card  {shown}/card.md")
        print(f"look at    {_command()} trace sequence {shown} 0")
    for path, problem in result.unfinished.items():
        print(f"curation: {path}: {problem}", file=sys.stderr)
    return DONE if result.complete else PARTIAL


def _submit(options: argparse.Namespace) -> int:
    """Run a recipe as a job of a Ray cluster; prints the job and its run directory."""
    from curation import submit

    wanted = submit.prepare(
        options.recipe,
        output=options.output,
        inputs=_paths(options),
        settings=options.settings,
        limit=options.limit,
        base=options.base,
        accept_collapse=options.accept_collapse,
        index=options.index,
    )
    logging.disable(logging.INFO)  # what Ray's client tells of itself
    try:
        client = submit.connect(options.address)
        job = submit.submit(client, wanted, options.python, options.image)
        if options.json:
            _print_json({"job": job, "run": wanted.output, "address": options.address})
        else:
            print(f"job  {job}\nrun  {wanted.output}")
        sys.stdout.flush()
        return submit.follow(client, job, sys.stderr) if options.follow else DONE
    except submit.SubmitFailed as error:
        return _say(FAILED, str(error))
    except KeyboardInterrupt:
        again = f"ray job logs --follow --address {options.address}"
        return _say(INTERRUPTED, f"detached; the job goes on, follow it with: {again} {job}")


def _command() -> str:
    """How this command can be typed again: its name, or its place where it is not on the PATH."""
    beside = Path(sys.executable).parent / "curation"
    if shutil.which("curation") or not beside.exists():
        return "curation"
    return os.path.relpath(beside)


def _shown(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _point_to(run: Path, name: str = "latest") -> None:
    """`runs/latest` (or `name`) points to the last run that lies in `runs/`."""
    runs = Path("runs")
    if run.parent != Path(os.path.abspath(runs)):
        return
    link, fresh = runs / name, runs / f".{name}.{os.getpid()}"
    if link.exists() and not link.is_symlink():
        return
    fresh.symlink_to(os.path.relpath(run, runs))
    os.replace(fresh, link)


def _plan(options: argparse.Namespace) -> int:
    """The resolved recipe, segments with keys, units and sizes; runs nothing."""
    from curation.api import plan, plan_tokens
    from curation.engine.base import Base
    from curation.engine.tokens.recipe import is_tokens
    from curation.inspect import tokens_planview
    from curation.inspect.planview import describe, render

    if is_tokens(options.recipe):
        told = tokens_planview.describe(
            *plan_tokens(
                options.recipe,
                inputs=_inputs(options),
                output=options.output,
                settings=options.settings,
                limit=options.limit,
            )
        )
        _print_json(told) if options.json else print(tokens_planview.render(told))
        return DONE
    planned = plan(
        options.recipe,
        inputs=_inputs(options),
        output=options.output,
        settings=options.settings,
        limit=options.limit,
        index=options.index,
    )
    found = describe(planned, Base.of(planned, options.base) if options.base else None)
    _print_json(found) if options.json else print(render(found))
    return DONE


def _stats(options: argparse.Namespace) -> int:
    """The drop table of a run; by language, source, crawl or domain with --by; by rule."""
    from curation.engine.plan import open_plan
    from curation.engine.stats import books_of, collect, problems, unfinished
    from curation.inspect import breakdown, droptable, manifest, tokens

    if (made := manifest.find(options.run)) is not None:
        if options.by or options.rules:
            return _say(USAGE, f"--by and --rules: of the run of documents, {options.run}/corpus")
        _print_json(tokens.collect(made)) if options.json else print(tokens.render_all(made))
        return DONE
    plan = open_plan(options.run)
    if options.by:
        rows = breakdown.collect(plan, options.by)
        _print_json(rows) if options.json else print(breakdown.render(rows, options.by))
        return DONE
    books = books_of(plan)
    stats = collect(plan, books)
    if options.rules:
        rules = droptable.rules(stats, plan.recipe.stages)
        _print_json(rules) if options.json else print(droptable.render_rules(rules))
        return DONE
    if options.json:
        _print_json(stats)
    else:
        print(droptable.render(stats))
        left = unfinished(plan, books[0])
        for path, problem in left.items():
            print(f"{path}: {problem}")
        for path, places in problems(plan, books[0]).items():
            if path not in left:
                print(f"{path}: read to its end, but {', '.join(places[:5])}")
    return DONE


def _status(options: argparse.Namespace) -> int:
    """How far a run is and who holds it, while it runs or after."""
    from curation.engine.tokens.plan import TokensPlan
    from curation.engine.work import open_work
    from curation.inspect import status, tokens_status

    plan = open_work(options.run)
    if isinstance(plan, TokensPlan):
        told = tokens_status.collect(plan)
        _print_json(told) if options.json else print(tokens_status.render(told))
        return DONE
    found = status.collect(plan)
    _print_json(found) if options.json else print(status.render(found))
    return DONE


def _export(options: argparse.Namespace) -> int:
    """Write documents of a run, or tokens of a manifest, as files that another system reads."""
    from curation.engine.plan import open_plan
    from curation.engine.recipe import RecipeError
    from curation.inspect import manifest

    there = manifest.find(options.run)
    if (options.format == "datatrove") is (there is None):
        return _export_tokens(options, there) if there else _export_documents(options)
    if there is None:
        open_plan(options.run)  # says what is wrong where no run lies there, either
        raise RecipeError(f"--format {options.format} wants a manifest; {options.run} is a run")
    raise RecipeError(f"--format datatrove wants a run; {options.run} is a manifest of tokens")


def _export_documents(options: argparse.Namespace) -> int:
    from curation.engine.plan import open_plan
    from curation.inspect import export

    found = export.to_datatrove(open_plan(options.run), Path(options.directory))
    _print_json(found) if options.json else print(export.render(found))
    for path, problem in found["unfinished"].items():
        print(f"curation: {path}: {problem}", file=sys.stderr)
    return PARTIAL if found["unfinished"] else DONE


def _export_tokens(options: argparse.Namespace, manifest: Any) -> int:
    from curation.tokens import export
    from curation.tokens.claim import NotOurs

    try:
        found = export.export(manifest, options.format, Path(options.directory))
    except NotOurs as error:
        return _say(USAGE, str(error))
    _print_json(found) if options.json else print(export.render(found))
    return DONE


def _gc(options: argparse.Namespace) -> int:
    """Remove the files of a run that nothing needs."""
    from curation.engine import gc
    from curation.engine.tokens import gc as tokens_gc
    from curation.engine.tokens.plan import TokensPlan
    from curation.engine.work import open_work

    plan = open_work(options.run)
    try:
        if isinstance(plan, TokensPlan):
            garbage, notes = tokens_gc.find(plan, options.intermediates)
        else:
            garbage, notes = gc.find(plan, options.intermediates)
    except gc.Refused as error:
        return _say(FAILED, str(error))
    if not options.dry_run:
        gc.remove(plan.run, garbage)
    found = gc.report(plan.run, garbage, notes, options.dry_run)
    _print_json(found) if options.json else print(gc.render(found))
    return DONE


def _inspect(options: argparse.Namespace) -> int:
    """Sampled documents and what decided; duplicates beside the documents that survived them."""
    from curation.engine.plan import open_plan
    from curation.inspect import documents, pairs
    from curation.inspect.terminal import Terminal

    plan = open_plan(options.run)
    if options.largest:
        groups = pairs.largest(plan, options.stage, options.reason, options.n)
        if options.json:
            _print_json(groups)
        else:
            print(pairs.render_groups(groups, Terminal.here()))
        return DONE
    found = documents.sampled(
        plan, options.stage, options.reason, near=options.near_threshold, count=options.n
    )
    _print_json(found) if options.json else print(documents.render(found, Terminal.here()))
    if not found and options.stage:
        print("curation: samples are of what a stage drops or fails, not of edits", file=sys.stderr)
    return DONE


def _whatif(options: argparse.Namespace) -> int:
    """What other thresholds would have kept and dropped, from the stored signals."""
    from curation.engine.plan import open_plan
    from curation.inspect import whatif

    found = whatif.simulate(open_plan(options.run), options.settings, options.n)
    _print_json(found) if options.json else print(whatif.render(found))
    return DONE


def _contamination(options: argparse.Namespace) -> int:
    """What the documents had of the evaluation sets; with --recall how much would be found."""
    from curation.engine.plan import open_plan
    from curation.engine.tokens.plan import kind_of
    from curation.inspect import contamination, injection

    inside = kind_of(options.run) == "tokens"
    plan = open_plan(Path(options.run) / "corpus" if inside else options.run)
    if options.recall:
        measured = injection.measure(plan, options.recall)
        _print_json(measured) if options.json else print(injection.render(measured))
        return DONE
    found = contamination.collect(plan, options.n)
    _print_json(found) if options.json else print(contamination.render(found))
    return DONE


def _verify(options: argparse.Namespace) -> int:
    """Check digests, counts and conservation of a run; with --replay do tasks again."""
    from curation.engine.plan import open_plan
    from curation.inspect import manifest, verify

    if there := manifest.find(options.run):
        if options.replay:
            return _say(USAGE, "--replay is of documents runs, not of a manifest of tokens")
        report = manifest.verified(there)
        _print_json(report) if options.json else print(manifest.render_verified(report))
        return DONE if report["holds"] else FAILED
    found = verify.check(open_plan(options.run), options.replay or 0)
    _print_json(found) if options.json else print(verify.render(found))
    return DONE if found["holds"] else FAILED


def _takedown(options: argparse.Namespace) -> int:
    """A new run or manifest without the documents that a list of ids and URLs names."""
    from curation import takedown, takedown_manifest
    from curation.engine.exchange import DamagedFile
    from curation.engine.recount import OtherStages
    from curation.inspect import manifest
    from curation.inspect.terminal import one_line
    from curation.tokens.claim import NotOurs

    try:
        listed = takedown.read_list(options.list)
    except takedown.ListError as error:
        return _say(USAGE, str(error))
    output = Path(options.output)
    try:
        if there := manifest.find(options.run):
            found = takedown_manifest.takedown_manifest(there, listed, output, options.trained)
            shown = takedown_manifest.render(found)
        elif options.trained:
            return _say(USAGE, f"--trained: {options.run} is no manifest; it has no training runs")
        else:
            found = takedown.takedown_run(Path(options.run), listed, output)
            shown = takedown.render(found)
    except NotOurs as error:
        return _say(USAGE, str(error))
    except (takedown.Refused, DamagedFile, OtherStages) as error:
        return _say(FAILED, str(error))
    _print_json(found) if options.json else print(shown)
    what = "manifest" if there else "run"
    missing = found["not_found"]
    for entry in missing[:_NAMED]:
        shown = one_line(entry)[:200]
        print(f"curation: {shown}: the {what} has no such document", file=sys.stderr)
    if len(missing) > _NAMED:
        print(f"curation: ... and {len(missing) - _NAMED:,} more (--json)", file=sys.stderr)
    return PARTIAL if found["not_found"] else DONE


def _diff(options: argparse.Namespace) -> int:
    """What differs between two runs, or two manifests: recipes, inputs, counts, files."""
    from curation.inspect import diff

    found = diff.between(options.a, options.b)
    _print_json(diff.plain(found)) if options.json else print(diff.render(found))
    return DONE


def _doctor(options: argparse.Namespace) -> int:
    """What is missing here, and the command that mends it."""
    from curation.inspect import doctor

    found = doctor.examine(options.recipe, Path(options.output))
    if options.json:
        _print_json(doctor.plain(found))
    else:
        print(doctor.render(found))
    return DONE if doctor.healthy(found) else FAILED


def _bands(options: argparse.Namespace) -> int:
    """Which pairs of documents near-duplicate search finds, by bands x rows."""
    from curation.dedup import curve

    if (options.bands is None) != (options.rows is None):
        return _say(USAGE, "--bands and --rows belong together")
    given = curve.Banding(options.bands, options.rows) if options.bands else None
    found = curve.describe(options.threshold, options.permutations, given)
    _print_json(found) if options.json else print(curve.render(found))
    return DONE


def _init(options: argparse.Namespace) -> int:
    """Write a starter: a recipe with everything explained, and a filter of your own."""
    from curation.starter import write

    directory = Path(options.directory)
    recipe = write(directory)
    command = (shutil.which("curation") and "curation") or os.path.abspath(_command())
    cd = "" if directory.resolve() == Path.cwd() else f"cd {shlex.quote(str(directory))} && "
    print(f"{cd}{command} doctor {recipe.name}")
    print(f"{cd}{command} run {recipe.name} --input sample")
    return DONE


def _trace(options: argparse.Namespace) -> int:
    """From a document's id or URL to its place in the archive and to what became of it."""
    from curation.engine.plan import open_plan
    from curation.inspect import manifest, trace

    if there := manifest.find(options.run):
        places = manifest.document(there, options.document)
        _print_json(places) if options.json else print(manifest.render_document(places))
        return DONE if places else FAILED
    found = trace.document(open_plan(options.run), options.document)
    _print_json(found) if options.json else print(trace.render(found))
    return DONE if found else FAILED


def _trace_sequence(options: argparse.Namespace) -> int:
    """From a sample of a manifest to the documents in it, with their text and origin."""
    from curation.inspect import manifest
    from curation.inspect.terminal import Terminal
    from manifests.tokens import Manifest

    found = manifest.sequence(Manifest.load(options.manifest), options.sample)
    _print_json(found) if options.json else print(manifest.render(found, Terminal.here()))
    return DONE


def _models_list(options: argparse.Namespace) -> int:
    """The models and lists that are known or here, and how to get those that are not."""
    from curation.models import shelf

    found = shelf.everything()
    _print_json(found) if options.json else print(shelf.render(found))
    return DONE


def _models_where(options: argparse.Namespace) -> int:
    """Where a model lies, and its digest."""
    from curation.models import card, shelf, table

    try:
        found = shelf.one(options.name)
    except table.UnknownModel as error:
        return _say(USAGE, str(error))
    except card.CardError as error:
        return _say(FAILED, str(error))
    _print_json(found) if options.json else print(shelf.render_one(found))
    return DONE


def _models_fetch(options: argparse.Namespace) -> int:
    """Fetch models from where they are published; the same command goes on where it was stopped."""
    from curation.models import fetch, table

    try:
        entries = [table.entry(name) for name in options.names]
    except table.UnknownModel as error:
        return _say(USAGE, str(error))
    to = Path(options.to) if options.to else None
    code = DONE
    for entry in entries:
        try:
            print(fetch.fetch(entry, to, force=options.force))
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            code = _say(FAILED, f"{entry.name}: {where}{error.strerror or error}")
    return code


def _models_train_kenlm(options: argparse.Namespace) -> int:
    """Train an n-gram language model, as CCNet's, with its tokenizer and percentiles."""
    from curation.extract import corpus
    from curation.models import card
    from curation.models.kenlm import estimate, train
    from curation.read import Tally
    from curation.storage import InputError

    target = _place_of(options.output or f"kenlm/{options.language}")
    if target.exists() and not options.force:
        return _say(USAGE, _THERE.format(target))
    how = train.Options(
        order=options.order,
        vocabulary=options.vocabulary,
        tokenizer=options.tokenizer,
        normaliser=options.normaliser,
        estimator=options.estimator,
        fallback=options.discount_fallback,
        held_out=options.held_out,
        documents=options.limit_documents,
        words=options.limit_words,
        seed=options.seed,
        form="arpa" if options.arpa else "binary",
    )

    def say(line: str) -> None:
        if not options.quiet:
            print(f"curation: {line}", file=sys.stderr)

    tally = Tally()
    try:
        card.check_target(target)
        report = train.train(
            corpus.texts(options.input, tally, options.per),
            target,
            how,
            say,
            language=options.language,
            license=options.license,
            source=options.source,
            demonstration=options.demonstration,
        )
    except (
        *(InputError, card.CardError),
        *(train.TrainingError, estimate.EstimationError),
    ) as error:
        return _say(USAGE, str(error))
    return _trained(options, tally, target, report, train.render(report))


def _models_train_classifier(options: argparse.Namespace) -> int:
    """Train a fastText classifier on texts of two classes, and measure it on some held out."""
    from curation.extract import corpus
    from curation.extract.contrast import contrast
    from curation.models import card, classifier, training
    from curation.read import Tally
    from curation.storage import InputError

    if options.chars and options.chars[0] > options.chars[1]:
        return _say(USAGE, "--chars: the first number is above the second")
    both = options.positive and options.negative
    if bool(options.pages) == bool(options.positive or options.negative) or not (
        options.pages or both
    ):
        return _say(USAGE, "--positive with --negative, or --pages: one of the two is wanted")
    target = _place_of(options.output)
    if target.exists() and not options.force:
        return _say(USAGE, _THERE.format(target))
    tally = Tally()
    how = classifier.Options(
        dim=options.dim,
        epochs=options.epochs,
        ngrams=options.ngrams,
        lr=options.lr,
        min_chars=options.chars[0] if options.chars else 0,
        max_chars=options.chars[1] if options.chars else 0,
        bucket=options.bucket,
        min_count=options.min_count,
        quantise=options.quantise,
        seed=options.seed,
    )
    try:
        card.check_target(target)
        if options.pages:
            sides = list(contrast(corpus.pages(options.pages, tally)))
            good = [text for side in sides for text in side.prose]
            bad = [text for side in sides for text in side.rest]
            source = f"prose against the rest of the pages of {', '.join(options.pages)}"
        else:
            good = list(corpus.texts(options.positive or [], tally, options.per))
            bad = list(corpus.texts(options.negative or [], tally, options.per))
            source = f"{', '.join(options.positive)} against {', '.join(options.negative)}"
        report = training.train(
            good,
            bad,
            target,
            held_out=options.held_out,
            keep_share=options.keep_share,
            on=corpus.texts(options.on, tally, options.per) if options.on else None,
            options=how,
            preparation=options.preparation,
            granularity=options.granularity,
            language=options.language,
            license=options.license,
            source=source,
        )
    except (InputError, card.CardError, classifier.ClassifierError) as error:
        return _say(USAGE, str(error))
    return _trained(options, tally, target, report, training.render(report))


#: What is said rather than that a model is lost.
_THERE = "{} is there already: --force replaces it, and no run that began with it can be resumed"


def _place_of(name: str) -> Path:
    """Where a model that is trained goes: a path, or a name below the models' directory."""
    from curation import models

    return Path(name) if name.startswith((".", "/")) else models.directories()[0] / name


def _trained(
    options: argparse.Namespace, tally: Any, target: Path, report: dict[str, Any], shown: str
) -> int:
    """What a training says at its end: what was not read, the report, where the model lies."""
    for reason, count in sorted(tally.skipped.items()):
        print(f"curation: {count:,} records skipped: {reason}", file=sys.stderr)
    if options.json:
        _print_json({"path": str(target), **report})
    else:
        print(f"{shown}\n\nmodel  {target}")
    return DONE
