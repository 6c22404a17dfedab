"""Check this machine, and show for each problem the command that fixes it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pto_core.cli.card import check_card
from pto_core.cli.diagnosis import Finding, examine
from pto_core.cli.show import show_json, show_table
from pto_core.config import load_core

_NOT_AVAILABLE = 5
_CELL_MAX = 70


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``pto doctor``."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--card", action="store_true", help="try a card in stages instead")
    parser.add_argument("--report", type=Path, metavar="FILE", help="with --card: write a report")


def run(namespace: argparse.Namespace) -> int:
    """Print the findings; return 0 if the chosen backend can run cases here, otherwise 5."""
    if namespace.card or namespace.report:
        return check_card(namespace.set, namespace.report, as_json=namespace.json)
    config = load_core(set_=namespace.set)
    findings = [_without_unneeded_fix(finding) for finding in examine(config)]
    works = all(finding.ok for finding in findings if finding.required)
    if namespace.json:
        show_json({"works": works, "findings": [asdict(finding) for finding in findings]})
        return 0 if works else _NOT_AVAILABLE
    rows = [(_verdict(f), f.name, _in_a_cell(f)) for f in findings]
    show_table("doctor", ("", "what", "found"), rows, _problems(findings))
    backend = f"backend {config['backend']}"
    print(f"{backend} can run here" if works else f"{backend} cannot run here: see MISSING")
    return 0 if works else _NOT_AVAILABLE


def _in_a_cell(finding: Finding) -> str:
    is_short = finding.ok or len(finding.detail) <= _CELL_MAX
    return finding.detail if is_short else "not usable"


def _problems(findings: Sequence[Finding]) -> list[str]:
    """Return a note for each problem, with what does not fit in the table."""
    return [
        f"{finding.name}: {finding.detail}. To fix it: {finding.fix}"
        for finding in findings
        if not finding.ok
    ]


def _without_unneeded_fix(finding: Finding) -> Finding:
    return replace(finding, fix="") if finding.ok else finding


def _verdict(finding: Finding) -> str:
    if finding.ok:
        return "ok"
    return "MISSING" if finding.required else "optional"
