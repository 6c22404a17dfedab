"""Find the two files of a case."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pto_core.errors import UsageError
from pto_core.errors.suggestion import suggestion

GOLDEN = "golden.py"
KERNEL_CONFIG = "kernel_config.py"


@dataclass(frozen=True)
class CaseFiles:
    """The absolute paths of a case's ``golden.py`` and ``kernel_config.py``."""

    golden: Path
    kernel_config: Path

    @property
    def folder(self) -> Path:
        """The folder that identifies the case to the user."""
        return self.golden.parent


def locate(
    folder: Path | None = None, kernels: Path | None = None, golden: Path | None = None
) -> CaseFiles:
    """Find the files of a case from its folder, or from its kernels folder and its golden file.

    The folder contains ``golden.py`` and either ``kernels/kernel_config.py`` or
    ``kernel_config.py``. The parameters ``kernels`` and ``golden`` override these locations. Raises
    a UsageError that names the missing file.
    """
    if folder is None and (kernels is None or golden is None):
        missing = "-k KERNELS" if kernels is None else "-g GOLDEN"
        raise UsageError(
            f"no case given: expected a folder with {GOLDEN} and kernels/{KERNEL_CONFIG}, "
            f"or -k KERNELS -g GOLDEN ({missing} is missing)",
            name="case",
        )
    if folder is not None and not folder.is_dir():
        raise _is_a_file(folder) if folder.exists() else _missing("case folder", folder)
    return CaseFiles(
        _golden_file(golden if golden is not None else _in(folder, GOLDEN)),
        _kernel_config(kernels) if kernels is not None else _kernel_config_in(_in(folder)),
    )


def _in(folder: Path | None, *names: str) -> Path:
    assert folder is not None, "checked by the caller"
    return folder.joinpath(*names)


def _golden_file(path: Path) -> Path:
    path = path / GOLDEN if path.is_dir() else path
    if not path.is_file():
        raise _missing("golden file", path)
    return path.absolute()


def _kernel_config(path: Path) -> Path:
    path = path if path.is_file() else path / KERNEL_CONFIG
    if not path.is_file():
        raise _missing("kernel configuration", path)
    return path.absolute()


def _kernel_config_in(folder: Path) -> Path:
    for path in (folder / "kernels" / KERNEL_CONFIG, folder / KERNEL_CONFIG):
        if path.is_file():
            return path.absolute()
    raise _missing("kernel configuration", folder / "kernels" / KERNEL_CONFIG)


def _is_a_file(path: Path) -> UsageError:
    better = f"pass its folder {path.parent}" if path.name == GOLDEN else "pass the case's folder"
    return UsageError(
        f"the case {path} is a file, not a folder; {better}",
        name="case folder",
        value=str(path),
        expected="a folder",
    )


def _missing(what: str, path: Path) -> UsageError:
    """Return the error for a missing path; it lists the content of the nearest existing folder."""
    existing = path.parent
    while not existing.is_dir() and existing != existing.parent:
        existing = existing.parent
    wanted = path.relative_to(existing).parts[0]
    names = sorted(entry.name for entry in existing.iterdir()) if existing.is_dir() else []
    hint = suggestion(wanted, names)
    if not hint:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        hint = f"; {existing} has {shown or 'no files'}"
    return UsageError(
        f"the {what} {path} does not exist{hint}", name=what, value=str(path), expected="a path"
    )
