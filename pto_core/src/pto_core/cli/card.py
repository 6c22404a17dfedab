"""Check a card in stages, for ``pto doctor --card``, and write a report that a person can send."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

from pto_core import __version__, plugins
from pto_core.cli.show import show_json, show_table
from pto_core.config import Config, load_core, load_with_plugins, process_environment
from pto_core.errors import BackendUnavailableError, UsageError
from pto_core.interfaces import CardBackend, CardStage
from pto_core.output_files import write_text
from pto_core.plugins import install

_NOT_AVAILABLE = 5
# A report contains the values of these variables and of no others.
_VARIABLES = (
    "ASCEND_HOME_PATH",
    "ASCEND_RT_VISIBLE_DEVICES",
    "ASCEND_TOOLKIT_HOME",
    "LD_LIBRARY_PATH",
)


def check_card(set_: Sequence[str], report: Path | None, *, as_json: bool) -> int:
    """Print the stages; return 0 if all passed, otherwise 5."""
    config = load_with_plugins({"backend": _card_backend(load_core(set_=set_)["backend"])}, set_)
    backend = plugins.load_unopened("backend", config["backend"])
    assert isinstance(backend, CardBackend)
    options: dict[str, str] = {}
    prefixes = {option.key.partition(".")[0] for option in backend.options()}
    for prefix in prefixes:
        options |= config.native_options(prefix)
    stages = backend.check_card(config["device"], options)
    description = _described(config, prefixes, stages)
    if report is not None:
        _write(report, description)
    if as_json:
        show_json(description)
    else:
        _show(stages, report)
    return 0 if description["works"] else _NOT_AVAILABLE


def _card_backend(chosen: str) -> str:
    """Return the chosen backend if it can check a card, otherwise the first that can."""
    names = [name for record in plugins.installed("backend") for name in record.names]
    for name in (*(name for name in names if name == chosen), *names):
        if isinstance(plugins.load_unopened("backend", name), CardBackend):
            return name
    fix = install("ptorun-backend-a2a3")
    raise BackendUnavailableError(
        f"no installed backend can check a card; {fix}",
        reason="no installed backend can check a card",
        fix=fix,
    )


def _described(config: Config, prefixes: Set[str], stages: Sequence[CardStage]) -> dict[str, Any]:
    """Describe the check. ``prefixes``: the prefixes of the backend's settings."""
    environment = process_environment()
    return {
        "works": all(stage.error is None for stage in stages),
        "backend": config["backend"],
        "device": config["device"],
        "settings": {
            setting.key: str(setting.value)
            for setting in config.settings()
            if setting.key.partition(".")[0] in prefixes and setting.origin != "default"
        },
        "version": __version__,
        "machine": platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "environment": {name: environment[name] for name in _VARIABLES if name in environment},
        "stages": [
            {
                "name": stage.name,
                "label": stage.label,
                "found": stage.found,
                "error": stage.error and type(stage.error).__name__,
                "message": stage.error and stage.error.message,
            }
            for stage in stages
        ],
    }


def _write(report: Path, description: dict[str, Any]) -> None:
    text = json.dumps(description, indent=2).replace(str(Path.home()), "~")
    try:
        write_text(report, text + "\n")
    except OSError as error:
        raise UsageError(
            f"the report cannot be written to {report}: {error.strerror}; choose another file",
            name="report",
            value=report,
        ) from None


def _show(stages: Sequence[CardStage], report: Path | None) -> None:
    rows = [
        ("ok", stage.name, stage.label, stage.found)
        if stage.error is None
        else ("FAILED", stage.name, stage.label, stage.error.message)
        for stage in stages
    ]
    show_table("card", ("", "stage", "on", "found"), rows)
    if stages[-1].error is None:
        label = stages[-1].label
        print(f"the {'card' if label == 'device' else label} works")
    elif report is None:
        print("`pto doctor --report FILE` writes the stages to a file that you can send")
    else:
        print(f"{report} contains the stages; send it with your question")
