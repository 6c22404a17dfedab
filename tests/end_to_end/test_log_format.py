"""The log format ``json``: all lines on standard error are JSON objects."""

from __future__ import annotations

import json
from typing import Any

FORMAT = ("--set", "log_format=json")
JSON = ("--log-level", "debug", *FORMAT)


def records(done: Any) -> list[dict[str, Any]]:
    """Parse the lines on standard error; fail for a line that is not a JSON object."""
    found = [json.loads(line) for line in done.stderr.splitlines()]
    for record in found:
        assert {"event", "logger", "level", "timestamp"} <= record.keys()
        assert record["level"] in ("error", "warn", "info", "debug")
    return found


def texts(done: Any) -> str:
    return "\n".join(record.get("text", "") for record in records(done))


def test_a_case_that_passes(case) -> None:
    case.variables["PTO_SIM_SED"] = "1"
    case.kernel('__builtin_printf("hello from a kernel\\n");')
    done = case.run(*JSON)
    assert done.returncode == 0, done.stderr
    found = records(done)
    assert any("PTO_SIM_SED" in record.get("reason", "") for record in found)
    shown = texts(done).splitlines()
    assert "running first on a2a3sim, host_build_graph" in shown
    assert "hello from a kernel" in shown
    assert done.stdout.startswith("first: passed")


def test_messages_of_the_runtime(case) -> None:
    done = case.graph("host_build_graph", "runtime->print_runtime();").run(*JSON)
    assert done.returncode == 0, done.stderr
    (message,) = [record for record in records(done) if record["logger"] == "runtime"]
    assert message["text"].startswith("host_build_graph: 0 tasks, 0 edges")
    assert message["level"] == "info"


def test_errors(case, tmp_path) -> None:
    """Errors that end the command, errors of one case, and errors with a JSON document."""
    missing = case.run("--golden", str(tmp_path / "none.py"), *FORMAT)
    assert missing.returncode == 2
    assert records(missing)[-1]["level"] == "error"
    crashed = case.kernel("__builtin_trap();").run("-v", *FORMAT)
    assert crashed.returncode == 4
    assert "on AIV 0 crashed: ended with SIGILL" in texts(crashed)
    broken = case.kernel("this is not C++;").run("-v", *FORMAT)
    assert broken.returncode == 3
    assert "pto: error: " in texts(broken)
    as_document = case.run("--json", "--set", "bakend=x", *FORMAT)
    assert json.loads(as_document.stdout)["exit_code"] == 2
    assert "unknown setting 'bakend'" in texts(as_document)


def test_the_environment_chooses_the_format(case) -> None:
    case.variables["PTO_LOG_FORMAT"] = "json"
    assert "running first" in texts(case.run())
    assert case.run("--set", "log_format=text").stderr.splitlines()[-1].startswith("running first")
