"""Execute a user's Python file, and report the location of its errors."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from pto_core.errors import PtoError, UsageError
from pto_core.errors.values import suggestion


def load_module(path: Path) -> ModuleType:
    """Execute a Python file as a separate module; it can import modules from its folder.

    Writes no bytecode. If the file raises an exception, raises a UsageError with its file and line.
    """
    name = f"pto_case_{path.stem}_{abs(hash(path)):x}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    with blaming(path, "cannot be loaded"):
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        sys.modules[name] = module
        try:
            exec(code, module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
    return module


@contextlib.contextmanager
def blaming(path: Path, what: str) -> Iterator[None]:
    """Turn any exception of the user's code into a UsageError that names its location."""
    try:
        yield
    except PtoError:
        raise
    except SyntaxError as error:
        raise UsageError(
            f"{error.filename or path}:{error.lineno}: {path.name} {what}: {error.msg}",
            name=path.name,
        ) from error
    except (Exception, SystemExit) as error:
        line = _innermost_line(error, path)
        place = f"{path}:{line}" if line else str(path)
        message = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            message += "; install it with `pip install torch`, or use NumPy arrays"
        if isinstance(error, ModuleNotFoundError) and error.name in ("simpler", "simpler_setup"):
            message += (
                "; this file is a scene test of August 2026: install ptorun-compat-simpler and run "
                f"`python {path.name} -p a2a3sim`"
            )
        raise UsageError(f"{place}: {path.name} {what}: {message}", name=path.name) from error


def user_traceback(error: BaseException) -> str:
    """Format the traceback of an exception in user code; omit the frames of this package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = str(Path(__file__).parents[1])
    theirs = [frame for frame in frames if not frame.filename.startswith(own)]
    if not theirs:
        return ""
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(theirs)]
    return "".join([*lines, *traceback.format_exception_only(error)])


def required(module: ModuleType, name: str, expected: str) -> Any:
    """Return the value of ``name`` in the module; raises UsageError if it is missing."""
    if hasattr(module, name):
        return getattr(module, name)
    defined = [other for other in vars(module) if not other.startswith("__")]
    hint = suggestion(name, defined)
    raise UsageError(
        f"{module.__file__} has no {name}{hint or f'; expected {expected}'}",
        name=name,
        expected=expected,
    )


def warn_of_misspelt(module: ModuleType, optional: tuple[str, ...], path: Path) -> None:
    """Warn about each name in the file that may be a misspelt optional name.

    This is not an error, because the file may define such names for its own use.
    """
    import difflib

    from pto_core import log

    for name in vars(module):
        if name in optional or not (name.isupper() or name.startswith("__") or "_" in name):
            continue
        near = difflib.get_close_matches(name, optional, n=1, cutoff=0.85)
        if near and not hasattr(module, near[0]):
            reason = f"{path} defines {name}, which pto does not use; did you mean {near[0]!r}?"
            log.get(__name__).warning("case file", reason=reason)


def _innermost_line(error: BaseException, path: Path) -> int | None:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return lines[-1] if lines else None
