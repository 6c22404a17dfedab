"""Run the checks of CANN and of a card, each in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pto_backend_a2a3.options import OPTIONS
from pto_core import errors
from pto_core.config import child_environment
from pto_core.errors import PtoError
from pto_core.errors.native import from_status
from pto_core.interfaces import CardStage

_PROGRAM = Path(__file__).with_name("card_check")
_HOST_STAGES = ("libraries", "device", "copy", "registers")
_DEVICE_STAGES = ("dispatcher", "handshake", "task")


def check_card(*settings: str, timeout_s: float) -> list[CardStage]:
    """Run the check with settings such as ``device=0``; return the stages up to the first failure.

    A crash, or no end in time, is a failure of the stage in which it happened.
    """
    problem = ""
    with subprocess.Popen(
        [_PROGRAM, *settings], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            output, words = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, words = process.communicate()
            problem = f"it did not end within {timeout_s:g} s"
    stages = [_stage(line) for line in output.decode(errors="replace").splitlines()]
    is_explained = bool(stages) and stages[-1].error is not None
    if process.returncode == 0 or is_explained:
        return stages
    problem = problem or f"it ended with {_ending(process.returncode)}"
    written = words.decode(errors="replace").strip()
    on_device = any(setting.startswith("images=") for setting in settings)
    name = (*_HOST_STAGES, *(_DEVICE_STAGES if on_device else ()), "close", "exit")[len(stages)]
    message = f"the check of the card failed in the stage {name!r}: {problem}"
    error = PtoError(f"{message}; it wrote: {written}" if written else message)
    return [*stages, CardStage(name, error=error)]


def check_example(device: int, options: Mapping[str, str], *, timeout_s: float) -> CardStage:
    """Run one task through all parts, in a process of its own, with the settings in ``options``."""
    settings = {
        one.variable: options[one.native] for one in OPTIONS if one.native and one.native in options
    }
    command = (sys.executable, "-m", "pto_backend_a2a3.example", str(device))
    try:
        done = subprocess.run(
            command,
            env=child_environment(settings),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return CardStage(
            "example", error=PtoError(f"the example did not end within {timeout_s:g} s")
        )
    except ValueError:
        problem = f"the example ended with {_ending(done.returncode)}; it wrote: {done.stderr}"
        return CardStage("example", error=PtoError(problem))
    if "error" in answer:
        error = getattr(errors, answer["error"], PtoError)(answer["message"])
        return CardStage("example", error=error)
    return CardStage("example", answer["label"], answer["found"])


def _stage(line: str) -> CardStage:
    fields = json.loads(line)
    error = None
    if fields["status"] != 0:
        error = from_status(
            fields["status"],
            fields["message"],
            vendor_function=fields["function"],
            vendor_code=fields["code"],
        )
    return CardStage(fields["stage"], fields["label"], fields["found"], error)


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
