"""The command as a whole: its imports, its messages, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from fake_distributions import pto_here

import pto_core
from pto_core.cli.main import SUMMARIES
from pto_core.interfaces.plugin import RESERVED_COMMANDS
from pto_core.plugins import distribution_of

COMMAND = """
import argparse
from pto_core import errors

def add_arguments(parser):
    parser.add_argument("what", nargs="?", default="nothing")

def run(namespace):
    {body}
"""


def command(site, body: str, name: str = "act") -> None:
    site.module(f"fake_{name}", COMMAND.format(body=body))
    site.install(f"fake-{name}", {"pto.commands": f"{name} = fake_{name}"}, version="4.2")


# The modules that `pto --help` may import, besides those of the interpreter's start.
ALLOWED_ROOTS = {"pto_core"}
ALLOWED_PACKAGES = {"log", "standard_streams", "cli", "errors", "interfaces", "plugins"}


def test_help_imports_only_what_it_needs(site):
    program = (
        "before = set(sys.modules); from pto_core.cli.main import main; code = main(['--help']);"
        "import json; print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)"
    )
    result = site.run(program)
    imported = json.loads(result.stderr)
    roots = {name.partition(".")[0] for name in imported}
    assert roots - sys.stdlib_module_names <= ALLOWED_ROOTS
    found = {name.split(".")[1] for name in imported if name.startswith("pto_core.")}
    assert found <= ALLOWED_PACKAGES
    commands = {name for name in imported if name.startswith("pto_core.cli.")}
    assert commands == {"pto_core.cli.main"}


def test_help_lists_commands_of_plugins_without_importing_them(site):
    site.install("fake-hello", {"pto.commands": "hello = no_such_module"}, version="4.2")
    result = site.pto("--help")
    assert result.returncode == 0
    assert "hello      added by fake-hello 4.2" in result.stdout
    for name in SUMMARIES:
        assert f"  {name} " in result.stdout


def test_the_reserved_names_are_the_commands_of_the_core():
    elsewhere = {name for name in SUMMARIES if distribution_of("command", name)}
    assert elsewhere == {
        "agent",
        "bisect",
        "check",
        "dump",
        "graph",
        "keys",
        "new",
        "replay",
        "record",
        "top",
        "trace",
        "why",
    }
    assert set(RESERVED_COMMANDS) == set(SUMMARIES) - elsewhere


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_command_has_help(name):
    result = pto_here(name, "--help")
    assert result.returncode == 0
    assert f"usage: pto {name}" in result.stdout
    assert result.stderr == ""


def test_version():
    assert pto_here("--version").stdout == f"pto {pto_core.__version__}\n"


def test_no_command_is_a_usage_error_that_shows_the_help():
    result = pto_here()
    assert (result.returncode, result.stdout) == (2, "")
    assert "commands" in result.stderr


def test_an_unknown_command():
    result = pto_here("plugns")
    assert result.returncode == 2
    assert result.stderr.startswith(
        "pto: error: no command 'plugns'; did you mean 'plugins'?; commands: run, "
    )
    assert result.stderr.count("\n") == 1


def test_an_unknown_option():
    result = pto_here("plugins", "--jsn")
    assert result.returncode == 2
    assert "--jsn" in result.stderr


def test_a_command_of_a_plugin(site):
    command(site, "print('did', namespace.what); return 1")
    result = pto_here("act", "something")
    assert (result.returncode, result.stdout) == (1, "did something\n")


def test_a_broken_command_names_its_distribution(site):
    site.install("fake-hello", {"pto.commands": "hello = no_such_module"}, version="4.2")
    result = pto_here("hello")
    assert result.returncode == 2
    assert "command 'hello' (fake-hello 4.2)" in result.stderr
    assert "no_such_module" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("WrongResultError('m')", 1),
        ("UsageError('m')", 2),
        ("ConfigError('m')", 2),
        ("UnknownPluginError('m')", 2),
        ("CompileError('m')", 3),
        ("TaskFailedError('m')", 4),
        ("DeadlockError('m')", 4),
        ("BackendUnavailableError('m')", 5),
    ],
)
def test_an_error_is_one_line_with_its_own_exit_code(site, error, code):
    command(site, f"raise errors.{error}")
    result = pto_here("act")
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr == "pto: error: m\n"


def test_an_error_of_the_system_is_one_line(site):
    command(site, "open('/no/such/file')")
    result = pto_here("act")
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "/no/such/file" in result.stderr


def test_an_internal_error_is_reported_as_a_bug(site):
    command(site, "1 / 0")
    result = pto_here("act")
    assert result.returncode == 4
    assert "internal error: ZeroDivisionError" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments", [["-vv"], ["--log-level", "debug"], ["--set", "log_level=debug"]]
)
def test_a_traceback_is_shown_on_request(site, arguments):
    command(site, "raise errors.UsageError('m')")
    result = site.pto("act", *arguments)
    assert result.returncode == 2
    assert "Traceback" in result.stderr
    assert result.stderr.endswith("pto: error: m\n")


def test_all_messages_are_json_lines_on_request(site):
    command(site, "raise errors.UsageError('m')")
    result = site.pto("act", "-vv", "--set", "log_format=json")
    assert result.returncode == 2
    traceback, message = [json.loads(line) for line in result.stderr.splitlines()]
    assert traceback["text"].startswith("Traceback")
    assert (message["text"], message["level"]) == ("pto: error: m", "error")


def test_a_bad_setting_stops_every_command(site, tmp_path):
    command(site, "return 0")
    (tmp_path / "pto.toml").write_text("\nbakend = 'sim'\n")
    result = pto_here("act", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr == (
        "pto: error: unknown setting 'bakend' (pto.toml:2); did you mean 'backend'?\n"
    )


def test_interrupt_is_one_line(site):
    # A shell starts background jobs with SIGINT ignored.
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command(site, f"{start}; signal.raise_signal(signal.SIGINT); return 0")
    result = site.pto("act")
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "pto: interrupted\n")


@pytest.mark.parametrize("length", [1, 1_000_000])
def test_a_closed_output_pipe_is_no_error(site, length):
    """A short output is written when the command ends; a long output is written earlier."""
    command(site, f"print('x' * {length}); return 0")
    read, write = os.pipe()
    os.close(read)
    program = "from pto_core.cli.main import main; sys.exit(main(['act']))"
    start = f"import sys; sys.path.insert(0, {str(site.folder)!r}); "
    result = subprocess.run(
        [sys.executable, "-c", start + program],
        stdout=write,
        stderr=subprocess.PIPE,
        env={name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"},
        text=True,
        check=False,
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (141, "")


def on_a_terminal(site, *arguments: str) -> str:
    """Run ``pto`` with a terminal as its output and return the text that appears there."""
    screen, terminal = os.openpty()
    program = "from pto_core.cli.main import main; sys.exit(main(sys.argv[1:]))"
    start = f"import sys; sys.path.insert(0, {str(site.folder)!r}); "
    with subprocess.Popen(
        [sys.executable, "-c", start + program, *arguments], stdout=terminal
    ) as process:
        os.close(terminal)
        shown = b""
        while chunk := read_screen(screen):
            shown += chunk
        assert process.wait() == 0
    os.close(screen)
    return shown.decode()


def read_screen(screen: int) -> bytes:
    try:
        return os.read(screen, 4096)
    except OSError:  # the error with which Linux reports that the other side has closed
        return b""


def test_a_terminal_gets_a_table(site):
    site.backend("red")
    assert "━" in on_a_terminal(site, "plugins")
    assert "━" not in site.pto("plugins").stdout
