"""The options of commands that run a case."""

from __future__ import annotations

import argparse
from pathlib import Path

from pto_core.config.options import CHECK, HAZARDS

SEED_HELP = "run deterministically: the same seed gives the same order of events"
_Group = argparse._ArgumentGroup


def add_case_arguments(parser: argparse.ArgumentParser) -> tuple[_Group, _Group, _Group]:
    """Declare the options that select a case, its place and its execution; return the groups."""
    parser.add_argument("path", nargs="?", type=Path, metavar="CASE", help="folder of the case")
    where = parser.add_argument_group("the case")
    where.add_argument("-k", "--kernels", type=Path, help="folder with kernel_config.py")
    where.add_argument("-g", "--golden", type=Path, help="golden.py")
    place = parser.add_argument_group("where it runs")
    place.add_argument("-p", "--platform", "--backend", metavar="NAME", help="backend")
    place.add_argument("-r", "--runtime", metavar="NAME", help="runtime variant")
    place.add_argument("-d", "--device", metavar="N", help="number of the device")
    how = parser.add_argument_group("execution")
    how.add_argument(
        "--hazards",
        choices=(*HAZARDS, CHECK),
        help="hazards that order two tasks, in runtimes that find dependencies; check: tasks that "
        "race fail the run",
    )
    how.add_argument(
        "--timeout", type=_seconds, metavar="S", help="time limit of a case, in seconds"
    )
    return where, place, how


def natural(text: str) -> int:
    """Return the integer, at least 0, that the text states."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return seconds
