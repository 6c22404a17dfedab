"""Run a profile of the tests: first most of them in parallel, then those that run alone.

`./quickstart test` calls this. `--all` runs every test, `--slow` those that the quick profile
leaves out. All other options are pytest's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NO_TESTS = 5
"""The exit code of pytest if the options select no test."""
PROCESSES = min((os.cpu_count() or 1) + 2, 8)
"""More processes than cores, because tests also wait: for time limits, for processes."""
PARALLEL = ("-n", str(PROCESSES), "--dist=worksteal")


def main(arguments: list[str]) -> int:
    profile = "quick"
    if arguments and arguments[0] in ("--all", "--slow"):
        profile, arguments = arguments[0].removeprefix("--"), arguments[1:]
    begin_s = time.monotonic()
    codes = []
    total: dict[str, int] = {}
    for load, options in (("parallel", PARALLEL), ("alone", ())):
        code, counts = run_pytest(profile, load, [*options, *arguments])
        codes.append(code)
        total = {name: total.get(name, 0) + count for name, count in counts.items()}
        if code not in (0, 1, NO_TESTS):
            break
    summary = ", ".join(f"{count} {name}" for name, count in total.items() if count)
    print(f"profile {profile}: {summary or 'no tests'} in {time.monotonic() - begin_s:.0f} s")
    return max(code for code in codes if code != NO_TESTS or set(codes) == {NO_TESTS})


def run_pytest(profile: str, load: str, options: list[str]) -> tuple[int, dict[str, int]]:
    """Call pytest once; return its exit code, and the number of tests by outcome."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.json"
        command = [sys.executable, "-m", "pytest", f"--profile={profile}", f"--load={load}"]
        # Permit byte code: without it, each process compiles all tests when it collects them.
        environment = {
            name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        }
        # pytest also receives SIGINT and reports it; this process waits for that report.
        process = subprocess.Popen(
            [*command, f"--counts={counts}", *options], cwd=ROOT, env=environment
        )
        while True:
            try:
                code = process.wait()
                break
            except KeyboardInterrupt:
                continue
        return code, json.loads(counts.read_text()) if counts.exists() else {}


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
