"""Write the skeleton of a case or plugin that runs without changes."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from functools import partial
from pathlib import Path

from pto_core.errors import UsageError
from pto_core.plugins import canonical_name, default_name, installed

_SKELETONS = Path(__file__).parent / "skeleton"
# The runtime variant for which the case skeleton is written. For each other variant, a folder in
# case_for/ has the files that differ; case_api/ has those of another interface of C++ programs.
_CASE_VARIANT = "host_build_graph"
_API_VARIANT = "tensormap_and_ringbuffer"
_CASE_NAME = (r"[A-Za-z][A-Za-z0-9_-]*", "a letter, then letters, digits, - and _", "my_case")
_PLUGIN_NAME = (r"[a-z][a-z0-9_]*", "a small letter, then small letters, digits and _", "my_wire")
# The placeholder for the plugin's name in the files and file names of a skeleton.
_PLACEHOLDER = re.compile("template", re.IGNORECASE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``pto new``."""
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="kind")
    case = kinds.add_parser("case", help="a case that runs with `pto run`")
    case.add_argument("name", help="name of the new folder, created in the current folder")
    case.add_argument(
        "-r",
        "--runtime",
        type=partial(canonical_name, "runtime"),  # an alias, such as pto2, selects its variant
        choices=_variants(),
        help=f"runtime variant of the case (default: {_default_variant()})",
    )
    case.add_argument(
        "--api",
        choices=["2026-03", *_apis()],
        default="2026-03",
        help=f"published interface of the C++ sources; newer ones need {_API_VARIANT}",
    )
    plugin = kinds.add_parser(
        "plugin", help="a plugin that passes the contract tests of its family"
    )
    plugin.add_argument("family", choices=_families(), help="family of the plugin")
    plugin.add_argument(
        "name", help="name by which users select the plugin; part of the folder's name"
    )


def run(namespace: argparse.Namespace) -> int:
    """Write the folder; never overwrite an existing file."""
    name: str = namespace.name
    if namespace.kind == "case":
        _check_name(name, "case", *_CASE_NAME)
        folder = _write(_case_skeletons(namespace.runtime, namespace.api), Path(name), None)
        _show(folder, f"pto run {name}")
        return 0
    family: str = namespace.family
    _check_name(name, f"plugin {family}", *_PLUGIN_NAME)
    distribution = f"pto-{family}-{name}"
    _check_free(family, name, distribution)
    folder = _write([_SKELETONS / "plugin" / family], Path(distribution), name)
    # Build the native part against the installed core, not against a core from a package index.
    native = "--no-build-isolation " if (folder / "CMakeLists.txt").exists() else ""
    _show(folder, f"pip install {native}./{folder} && pytest {folder}")
    return 0


def _case_skeletons(runtime: str | None, api: str) -> list[Path]:
    """Return the folders of a case; later folders replace files of earlier folders."""
    is_newer = api in _apis()
    if is_newer and runtime not in (None, _API_VARIANT):
        raise UsageError(
            f"{runtime} has no case for the interface {api}; use -r {_API_VARIANT}",
            name="runtime",
            value=runtime,
        )
    variant = _API_VARIANT if is_newer else runtime or _default_variant()
    changed = [_SKELETONS / "case_for" / variant, _SKELETONS / "case_api" / api]
    return [_SKELETONS / "case", *(folder for folder in changed if folder.is_dir())]


def _apis() -> list[str]:
    return sorted(path.name for path in (_SKELETONS / "case_api").iterdir())


def _variants() -> list[str]:
    return sorted([_CASE_VARIANT, *(path.name for path in (_SKELETONS / "case_for").iterdir())])


def _default_variant() -> str:
    """Return the default of the setting ``runtime`` if there is a skeleton for it."""
    name = default_name("runtime", _CASE_VARIANT)
    return name if name in _variants() else _CASE_VARIANT


def _families() -> list[str]:
    return sorted(path.name for path in (_SKELETONS / "plugin").iterdir() if path.is_dir())


def _check_name(name: str, kind: str, pattern: str, expected: str, example: str) -> None:
    if re.fullmatch(pattern, name):
        return
    raise UsageError(
        f"{name!r} cannot be the name of a {kind.partition(' ')[0]}: expected {expected}, such as "
        f"`pto new {kind} {example}`",
        name="name",
        value=name,
        expected=expected,
    )


def _check_free(family: str, name: str, distribution: str) -> None:
    """Raise UsageError if a plugin of another distribution already has the name."""

    def normal(text: str) -> str:
        return re.sub("[-_.]+", "-", text).lower()

    for record in installed(family):
        if name in record.names and normal(record.distribution) != normal(distribution):
            raise UsageError(
                f"{name!r} is the name of an installed {family}, of {record.source}; nothing was "
                "written: choose another name, because two plugins of one name cannot be used",
                name="name",
                value=name,
            )


def _write(skeletons: list[Path], folder: Path, name: str | None) -> Path:
    """Copy the skeletons into a new folder; later skeletons replace files of earlier skeletons."""
    if folder.exists() or folder.is_symlink():
        raise UsageError(
            f"{folder.absolute()} already exists; nothing was written: choose another name, or "
            "remove it first",
            name="name",
            value=folder.name,
        )
    try:
        folder.mkdir()
        for skeleton in skeletons:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(skeleton, folder, ignore=ignored, dirs_exist_ok=True)
        if name is not None:
            _rename(folder, name)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise UsageError(
            f"{folder.absolute()} cannot be written: {_reason(error)}; change to a writable "
            "folder with enough free space, and try again",
            name="name",
            value=folder.name,
        ) from error
    return folder


def plugin_source(family: str, name: str) -> str:
    """Return the Python module of the plugin that ``pto new plugin FAMILY NAME`` writes."""
    package = _SKELETONS / "plugin" / family / "src" / f"pto_{family}_template"
    return _named((package / "__init__.py").read_text("utf-8"), name)


def _named(text: str, name: str) -> str:
    """Replace the placeholder by ``name``, and in class names by ``name`` in CamelCase."""

    def spelt(match: re.Match[str]) -> str:
        return name if match[0].islower() else name.title().replace("_", "")

    return _PLACEHOLDER.sub(spelt, text)


def _rename(folder: Path, name: str) -> None:
    """Replace the placeholder in the texts and names of all files."""
    # Rename the deepest paths first, so that the paths of their folders stay valid.
    for path in sorted(folder.rglob("*"), key=lambda path: len(path.parts), reverse=True):
        if path.is_file():
            path.write_text(_named(path.read_text("utf-8"), name), "utf-8")
        renamed = path.with_name(_named(path.name, name))
        if renamed != path:
            path.rename(renamed)


def _show(folder: Path, command: str) -> None:
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        print(path)
    print(f"run it with: {command}")


def _reason(error: OSError) -> str:
    """Return the system's message; if several files could not be copied, the first message."""
    if isinstance(error, shutil.Error) and error.args and error.args[0]:
        return str(error.args[0][0][2])
    return os.strerror(error.errno) if error.errno else str(error)
