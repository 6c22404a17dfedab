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
from pto_insight.run_page import LEGEND, difference_section, dump_section, static_page

_FILES = {"show": 1, "diff": 2}
_SHOWN = 10
_SCALES = (
    "<p>Arrays of the same shape and type have the same scale. In a difference, dark is 0.</p>\n"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto dump``."""
    parser.add_argument("what", metavar="COMMAND", help="show or diff")
    parser.add_argument("files", nargs="*", type=Path, metavar="PATH", help="a file or a folder")
    parser.add_argument(
        "--dtype", metavar="TYPE", help="type of the arrays that are known as bytes only"
    )
    parser.add_argument("--html", action="store_true", help="print a page with pictures")


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
        return _diff(files[0], files[1], dtype, is_page=namespace.html)
    dumps = list(_dumps_in(files[0]).values())
    text = table(dumps) if files[0].is_dir() else described(dumps[0], dtype)
    if namespace.html:
        heading = f"<pre>{html.escape(text)}</pre>\n" if files[0].is_dir() else ""
        sections = (dump_section(dump, dtype) for dump in dumps)
        text = static_page(f"Tasks of {files[0].name}", "".join((heading, LEGEND, *sections)))
    sys.stdout.write(printable(text) + "\n")
    return 0


def _diff(first: Path, second: Path, dtype: str | None, *, is_page: bool) -> int:
    """Print the first tasks that differ, in the order of submits."""
    one, other = _dumps_in(first), _dumps_in(second)
    if not (first.is_dir() and second.is_dir()):
        one, other = ({"": next(iter(dumps.values()))} for dumps in (one, other))
    common = [name for name in one if name in other]
    found = {name: compared(one[name], other[name], dtype) for name in common}
    different = [name for name in common if found[name]]
    ending = []
    if len(different) > _SHOWN:
        ending.append(f"and {len(different) - _SHOWN} further tasks")
    alone = (first, one.keys() - other.keys()), (second, other.keys() - one.keys())
    for path, only in alone:
        if only:
            ending.append(f"only in {path}: {', '.join(sorted(only))}")
    ending.append(f"{len(different)} of {len(found)} tasks differ")
    shown = different[:_SHOWN]
    if is_page:
        paths = html.escape(f"first:  {first}\nsecond: {second}\n" + "\n".join(ending))
        sections = (difference_section(one[name], found[name]) for name in shown)
        body = "".join((f"<pre>{paths}</pre>\n", LEGEND, _SCALES, *sections))
        ending = [static_page(f"Differences between {first.name} and {second.name}", body)]
    else:
        for name in shown:
            print("\n".join(found[name].summary(one[name])))
            for array in found[name].arrays:
                print("\n".join(array.lines()))
    print(printable("\n".join(ending)))
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
