"""Show the arrays of tasks that a run has dumped, or compare two dumps.

`pto dump show PATH` prints a task, or a table of the tasks in the folder of a run. `pto dump diff A
B` compares two tasks, or the tasks of two runs. Dumps are files that `pto run --dump` or
`device.run(dump=...)` wrote. Exit codes of diff: 0 equal, 1 different.
"""

from __future__ import annotations

import argparse
import html
import sys
from pathlib import Path

from pto_core.errors import UsageError
from pto_core.output_files import printable
from pto_insight.dumps.recording import CALLS, recover
from pto_insight.dumps.task_dump import TaskDump
from pto_insight.dumps.text import checked_dtype, compared, described, table
from pto_insight.run_page import LEGEND, dump_section, static_page

_FILES = {"show": 1, "diff": 2}
_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto dump``."""
    parser.add_argument("what", metavar="COMMAND", help="show or diff")
    parser.add_argument("files", nargs="*", type=Path, metavar="PATH", help="a file or a folder")
    parser.add_argument(
        "--dtype", metavar="TYPE", help="type of the arrays that are known as bytes only"
    )
    parser.add_argument("--html", action="store_true", help="show: print a page with pictures")


def run(namespace: argparse.Namespace) -> int:
    """Print the tasks or their differences."""
    what, files = namespace.what, namespace.files
    if len(files) != _FILES.get(what):
        raise UsageError(
            f"pto dump {' '.join(map(str, [what, *files]))} is no command; use pto dump show PATH, "
            "or pto dump diff A B",
            name="command",
            value=what,
        )
    dtype = checked_dtype(namespace.dtype)
    if what == "diff":
        if namespace.html:
            raise UsageError("--html is for pto dump show", name="html")
        return _diff(files[0], files[1], dtype)
    dumps = list(_dumps_in(files[0]).values())
    text = table(dumps) if files[0].is_dir() else described(dumps[0], dtype)
    if namespace.html:
        heading = f"<pre>{html.escape(text)}</pre>\n" if files[0].is_dir() else ""
        sections = (dump_section(dump, dtype) for dump in dumps)
        text = static_page(f"Tasks of {files[0].name}", "".join((heading, LEGEND, *sections)))
    sys.stdout.write(printable(text) + "\n")
    return 0


def _diff(first: Path, second: Path, dtype: str | None) -> int:
    """Print the first tasks that differ, in the order of submits."""
    one, other = _dumps_in(first), _dumps_in(second)
    if not (first.is_dir() and second.is_dir()):
        one, other = ({"": next(iter(dumps.values()))} for dumps in (one, other))
    found = {
        name: list(compared(dump, other[name], dtype))
        for name, dump in one.items()
        if name in other
    }
    different = [name for name, paragraphs in found.items() if paragraphs]
    for name in different[:_SHOWN]:
        print(f"{one[name].label}  {one[name].where}".rstrip())
        print("\n".join(found[name]))
    if len(different) > _SHOWN:
        print(f"and {len(different) - _SHOWN} further tasks")
    alone = (first, one.keys() - other.keys()), (second, other.keys() - one.keys())
    for path, only in alone:
        if only:
            print(f"only in {path}: {', '.join(sorted(only))}")
    print(f"{len(different)} of {len(found)} tasks differ")
    return 1 if different or any(only for _, only in alone) else 0


def _dumps_in(path: Path) -> dict[str, TaskDump]:
    """Return the dumps of a file or folder by the names of their files, in the order of tasks.

    A folder that a process left when it died is completed first. Raises UsageError.
    """
    if not path.is_dir():
        return {path.stem: TaskDump.read(path)}
    recover(path)
    found = {file.stem: TaskDump.read(file) for file in path.glob("*.npz")}
    if not found:
        runs = [*path.glob("*.run*"), *path.glob("*/*.run*")]
        folders = sorted(str(one.relative_to(path)) for one in runs if one.is_dir())
        hint = f"; it has the runs {', '.join(folders[:8])}" if folders else ""
        hint = "; its run has not ended" if (path / CALLS).exists() else hint
        raise UsageError(
            f"{path} has no dump of a task{hint}; pass a file or the folder of a run",
            name="dump",
            value=str(path),
        )
    return dict(sorted(found.items(), key=lambda one: (one[1].task is None, one[1].task or 0)))
