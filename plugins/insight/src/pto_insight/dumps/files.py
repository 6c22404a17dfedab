"""Find the dumps that a command names: a file, or a folder of a run."""

from __future__ import annotations

from pathlib import Path

from pto_core.errors import UsageError
from pto_insight.dumps.recording import recover
from pto_insight.dumps.task_dump import TaskDump


def dumps_in(path: Path) -> dict[str, TaskDump]:
    """Return the dumps of a file or folder by the names of their files, in the order of tasks.

    A folder that a process left when it died is completed first. Raises UsageError.
    """
    if not path.is_dir():
        return {path.stem: TaskDump.read(path)}
    recover(path)
    found = {file.stem: TaskDump.read(file) for file in path.glob("*.npz")}
    if not found:
        folders = sorted(one.name for one in path.glob("*.run*") if one.is_dir())
        hint = f"; it has the runs {', '.join(folders[:8])}" if folders else ""
        raise UsageError(
            f"{path} has no dump of a task{hint}; pass a file or the folder of a run",
            name="dump",
            value=str(path),
        )
    return dict(sorted(found.items(), key=lambda one: (one[1].task is None, one[1].task or 0)))
