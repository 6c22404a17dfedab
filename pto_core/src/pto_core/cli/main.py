"""The ``pto`` command: selects the subcommand, prints errors and sets the exit code.

Subcommands are modules of this package, or plugins; all are listed without being imported.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, cast

from pto_core import __version__

if TYPE_CHECKING:
    from pto_core.errors import PtoError
    from pto_core.interfaces import Command

INTERRUPTED = 130
BROKEN_PIPE = 141
USAGE = 2
FAILED = 4
SUMMARIES = {
    "run": "run a case and compare its outputs with the reference",
    "graph": "write the graph of a case or program, with the reason of each edge",
    "why": "explain why one task of a case or program waits for another",
    "check": "find the tasks of a case or program that race",
    "plugins": "list the installed plugins and whether they work on this machine",
    "doctor": "show what this machine lacks and how to install it",
    "config": "show every setting with its value and origin",
    "keys": "make keys for Workers on other hosts",
    "agent": "serve Workers of other hosts on this host",
    "trace": "show where the time of a program or a traced run went",
    "dump": "show or compare the arrays of tasks that a run has dumped",
    "bisect": "find the first task whose output differs between two runs of a case",
    "replay": "run the kernel of a dumped task again, alone",
    "record": "keep a run of a case in one file, which `pto run` runs again anywhere",
    "top": "show what the running programs are doing now",
    "new": "write a skeleton that runs without changes",
}
_LOG_SETTINGS = ("log_level", "log_format")  # commands parse the remaining --set texts themselves


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; print its errors and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not the stream of a test
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt as interrupt:
        for note in getattr(interrupt, "__notes__", []):
            _show_error(note)
        _show_error(f"pto: {str(interrupt) or 'interrupted'}")
        return exit_code_of(interrupt)
    except BrokenPipeError as error:  # the reader closed the pipe
        _drop_refused_output()
        return exit_code_of(error)
    except SystemExit as exit_:  # argparse raises SystemExit after --help or a usage error
        return exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 2
    finally:
        if argv is None:  # the process exits now; a later signal must not change the exit code
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _drop_refused_output()
    return code


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of a command that ended with an exception."""
    from pto_core.errors import PtoError

    if isinstance(error, PtoError):
        return type(error).exit_code  # the attribute of a ChildDiedError is the code of the child
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    return USAGE if isinstance(error, OSError) else FAILED


def _drop_refused_output() -> None:
    """Drop output that a full disk or a closed pipe has refused.

    The interpreter flushes it again at exit, and would print an error and change the exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(argv: list[str]) -> int:
    frame = _frame_parser()
    namespace = frame.parse_args(argv)
    if namespace.help or namespace.command is None:
        frame.print_help(sys.stdout if namespace.help else sys.stderr)
        return 0 if namespace.help else 2
    verbosity = _Verbosity()
    try:
        code = _run_command(namespace.command, namespace.arguments, verbosity)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - print unexpected exceptions without a traceback
        return _report(error, with_traceback=verbosity.traceback)


def _frame_parser() -> argparse.ArgumentParser:
    parser = _FrameParser(prog="pto", add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="version", version=f"pto {__version__}")
    parser.add_argument("command", nargs="?")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


class _FrameParser(argparse.ArgumentParser):
    """A parser that lists the subcommands without importing them."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"pto: error: {message}; see `pto --help`\n")

    def format_help(self) -> str:
        commands = "".join(f"  {name:<10} {text}\n" for name, text in summaries().items())
        return (
            "usage: pto [-h] [--version] COMMAND ...\n\n"
            "Task graphs on Ascend NPUs and their simulator.\n\n"
            f"commands (`pto COMMAND --help` shows more):\n{commands}\n"
            "options:\n"
            "  -h, --help  show this text\n"
            "  --version   show the version\n"
        )

    def format_usage(self) -> str:
        return "usage: pto [-h] [--version] COMMAND ...\n"


class _CommandParser(argparse.ArgumentParser):
    """A parser that reports invalid arguments in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"pto: error: {message}; see `{self.prog} --help`\n")


class _Verbosity:
    """Whether errors are printed with a traceback; set when the arguments have been parsed."""

    traceback = False


def _run_command(name: str, arguments: list[str], verbosity: _Verbosity) -> int:
    command = load(name)
    # "resolve" lets a command replace a common option by its own option of the same name.
    parser = _CommandParser(
        prog=f"pto {name}",
        description=getattr(command, "__doc__", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        conflict_handler="resolve",
    )
    _add_shared_arguments(parser)
    command.add_arguments(parser)
    # A command with several positional arguments accepts options between them.
    is_mixed = getattr(command, "HAS_MIXED_ARGUMENTS", False)
    parse = parser.parse_intermixed_args if is_mixed else parser.parse_args
    namespace = parse(arguments)
    _start_logging(namespace, verbosity)
    return int(command.run(namespace) or 0)


def summaries() -> dict[str, str]:
    """Return one line for each subcommand; subcommands of other projects' plugins come last.

    The line of a subcommand whose plugin is not installed names the distribution.
    """
    from pto_core.interfaces.plugin import RESERVED_COMMANDS
    from pto_core.plugins import distribution_of, installed

    sources = {name: record.source for record in installed("command") for name in record.names}
    listed = {}
    for name, summary in SUMMARIES.items():
        is_missing = name not in RESERVED_COMMANDS and name not in sources
        listed[name] = summary + (f" (needs {distribution_of('command', name)})" * is_missing)
    return listed | {
        name: f"added by {source}" for name, source in sources.items() if name not in SUMMARIES
    }


def load(name: str) -> Command:
    """Import the subcommand ``name``.

    Raises :class:`~pto_core.errors.UsageError` if there is no such subcommand, and
    :class:`~pto_core.errors.PluginError` if it belongs to a plugin that cannot be used.
    """
    from pto_core.interfaces.plugin import RESERVED_COMMANDS

    if name in RESERVED_COMMANDS:
        return cast("Command", import_module(f"pto_core.cli.{name}"))
    from pto_core.errors import UsageError
    from pto_core.errors.values import suggestion
    from pto_core.plugins import load_command

    known = summaries()
    if name not in known:
        raise UsageError(
            f"no command {name!r}{suggestion(name, known)}; commands: {', '.join(known)}",
            name="command",
            value=name,
        )
    return load_command(name)


def _add_shared_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-v", "--verbose", action="count", default=0, help="log more; -vv also shows tracebacks"
    )
    parser.add_argument(
        "--log-level", choices=("error", "warn", "info", "debug"), help="what is logged"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a setting; `pto config` lists them",
    )


def _start_logging(namespace: argparse.Namespace, verbosity: _Verbosity) -> None:
    from pto_core import log
    from pto_core.config import load_core

    verbose = int(getattr(namespace, "verbose", 0) or 0)
    verbosity.traceback = verbose >= 2
    by_count = {0: None, 1: "info"}.get(verbose, "debug")
    argument = {"log_level": getattr(namespace, "log_level", None) or by_count}
    texts = [text for text in namespace.set if text.partition("=")[0].strip() in _LOG_SETTINGS]
    config = load_core(argument, texts)
    verbosity.traceback |= config["log_level"] == "debug"
    log.configure(config)


def _report(error: Exception, *, with_traceback: bool) -> int:
    from pto_core.errors import PtoError

    if with_traceback:
        import traceback

        _show_error("".join(traceback.format_exception(error)).rstrip())
    if isinstance(error, PtoError):
        _show_error(f"pto: error: {_message(error)}")
    elif isinstance(error, OSError):
        _show_error(f"pto: error: {_describe(error)}")
    else:
        _show_error(f"pto: internal error: {type(error).__name__}: {error}")
        if not with_traceback:
            _show_error("pto: this is a bug in pto; run with -vv to see where it happened")
    return exit_code_of(error)


def _show_error(text: str) -> None:
    from pto_core import log

    log.show(text, "error")


def _describe(error: OSError) -> str:
    """Return the message of an error of the operating system, with its file and a remedy."""
    what = os.strerror(error.errno) if error.errno else str(error)
    advice = {
        errno.EACCES: "change its permissions, or use another folder",
        errno.EPERM: "change its permissions, or use another folder",
        errno.EROFS: "use a writable folder",
        errno.ENOSPC: "free some space, or use another disk",
        errno.EDQUOT: "free some space, or use another disk",
        errno.EFBIG: "raise the limit of the size of files with `ulimit -f`",
        errno.ENOENT: "create it first, or use another path",
        errno.EEXIST: "remove it first, or use another path",
        errno.EMFILE: "raise the limit of open files with `ulimit -n`",
    }.get(error.errno or 0, "")
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{what}" + (f"; {advice}" if advice else "")


def _message(error: PtoError) -> Any:
    notes = getattr(error, "__notes__", [])
    return "\n".join([error.message, *notes])
