"""The sources of modules that are sent, and the comparison of modules that are not sent."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pto_core.errors import ProtocolError, RightsError, UsageError
from pto_transport_zmq.remote import program_modules
from pto_transport_zmq.remote.program_modules import (
    SOURCES_BYTES_MAX,
    UsedModule,
    check_used,
    module_sources,
    modules_folder,
    remove_modules,
    use_modules,
    used_modules,
    write_modules,
)
from pto_transport_zmq.remote.rights import Rights


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder on ``sys.path``; unload its modules at the end."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        file = folder / (name.replace("__of__", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    importlib.invalidate_caches()


def test_a_package_travels_with_its_modules_only(folder: Path) -> None:
    write(folder, pack__of____init__="", pack__of__inner__of__deep="A = 1", single="B = 2")
    (folder / "pack" / "data.json").write_text("{}")
    assert module_sources(["pack", "single"]) == {
        "pack/__init__.py": b"",
        "pack/inner/deep.py": b"A = 1",
        "single.py": b"B = 2",
    }


def test_modules_that_cannot_travel_are_refused(folder: Path) -> None:
    write(folder, pack__of____init__="", large="")
    for name in ("no_such_module", "pack.inner", "__main__"):
        with pytest.raises(UsageError, match=f"has '{name}', which is not a top-level module"):
            module_sources([name])
    (folder / "pack" / "fast.abi3.so").write_bytes(b"")
    with pytest.raises(
        UsageError, match=r"fast\.abi3\.so is not Python source; install the module there"
    ):
        module_sources(["pack"])
    with pytest.raises(UsageError, match="sys cannot be sent"):
        module_sources(["sys"])
    os.truncate(folder / "large.py", SOURCES_BYTES_MAX + 1)
    with pytest.raises(UsageError, match=f"1 files with {SOURCES_BYTES_MAX + 1} bytes; the limits"):
        module_sources(["large"])


def test_sources_are_written_to_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made, other = modules_folder(), modules_folder()
    for one in (made, other):  # like the folder of another agent with the same process id
        write_modules(one, {"pack/__init__.py": b"A = 1"})
        assert Path(one).stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(sys, "path", list(sys.path))
    use_modules(made, ["pack_of_a_program"])
    assert sys.path[0] == made
    with pytest.raises(UsageError, match="the module json in ship= is in use by the agent"):
        use_modules(made, ["json"])
    remove_modules(made)
    assert list(tmp_path.iterdir()) == [Path(other)]
    remove_modules(made)  # nothing is left to remove
    with pytest.raises(FileExistsError):
        write_modules(other, {})


def test_sources_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    folder = str(tmp_path / "modules")
    for name in ("../evil.py", "/evil.py", "a/../../evil.py"):
        with pytest.raises(ProtocolError, match="is not a relative path below a folder"):
            write_modules(folder, {name: b""})
    with pytest.raises(ProtocolError, match="'a' is both a file and a folder"):
        write_modules(folder, {"a": b"", "a/b.py": b""})
    half = bytes(SOURCES_BYTES_MAX // 2)
    with pytest.raises(ProtocolError, match=f"have {SOURCES_BYTES_MAX + 1} bytes; the limit is"):
        write_modules(folder, {"a.py": half, "b.py": half, "c.py": b"#"})
    assert not os.path.exists(folder)


def test_sources_need_the_right_for_python_code() -> None:
    sources = {"pack/__init__.py": b""}
    assert Rights("ann", "k").permitted_modules(sources) == sources
    barred = Rights("ann", "k", python_code=False)
    assert barred.permitted_modules({}) == {}
    with pytest.raises(RightsError, match=r"pack has Python code, which .* python_code = true"):
        barred.permitted_modules(sources)


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_modules_are_found_in_code_closures_and_the_modules_they_use(folder: Path) -> None:
    write(
        folder,
        steps=(
            "import pack.direct\nfrom called import helper\nimport unused\n"
            "def same():\n    return helper()\n"
            "def step(args):\n    import inside\n    same()\n    return pack.direct.A\n"
            "def made(value):\n    def inner(args):\n        return value\n    return inner\n"
        ),
        pack__of____init__="",
        pack__of__direct="import json\nimport numpy\nA = 1",
        called="import deeper\ndef helper(): pass",
        deeper="",
        inside="",
        unused="",
        captured="def function(): pass",
    )
    steps, captured = load("steps"), load("captured")
    found = {one.name: one for one in used_modules([steps.step], shipped=())}
    wanted = {"pack", "pack.direct", "called", "deeper", "inside", "numpy"}
    assert set(found) == wanted
    assert found["numpy"].version == sys.modules["numpy"].__version__
    assert found["deeper"].user == "called"
    assert found["inside"].digest
    shipped = used_modules([steps.step], shipped=["pack", "called"])
    assert {one.name for one in shipped} == {"deeper", "inside", "numpy"}
    inner = used_modules([steps.made(captured.function)], shipped=())
    assert {one.name for one in inner} == {"captured"}


def problem(**members: Any) -> str:
    with pytest.raises(UsageError) as info:
        check_used([UsedModule(user="step", **members)])
    return str(info.value)


def test_modules_of_the_program_must_be_equal(folder: Path) -> None:
    write(folder, pack__of____init__="raise ImportError", pack__of__tools="A = 1", steps="")
    code = "import pack.tools\ndef step(args):\n    return pack.tools.A\n"
    write(folder, steps=code, pack__of____init__="")
    used = used_modules([load("steps").step], shipped=())
    assert [one.name for one in used] == ["pack", "pack.tools"]
    check_used(used)
    write(folder, pack__of__tools="A = 2")
    with pytest.raises(UsageError, match=r"pack\.tools, which has other content .*ship=\['pack'\]"):
        check_used(used)
    assert "uses the module gone.part, which the other host lacks; send it with ship=['gone']" in (
        problem(name="gone.part", digest=bytes(32))
    )


def test_the_leading_numbers_of_versions_must_be_equal(folder: Path) -> None:
    for name, version in (("lib_a", "2.5.1"), ("lib_b", "0.5.1"), ("lib_c", "")):
        write(folder, **{name: ""})
        if version:
            info = folder / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    for name, version in (("lib_a", "2.0"), ("lib_b", "0.5"), ("lib_c", "1.0"), ("lib_a", "")):
        check_used([UsedModule(name, "step", version=version)])
    assert "lib_a: version 1.26 on the parent's host, 2.5.1 on the other host; install" in (
        problem(name="lib_a", version="1.26")
    )
    assert "version 0.4.9 on the parent's host, 0.5.1" in problem(name="lib_b", version="0.4.9")
    assert "lib_d, version 1.0 on the parent's host, which the other host lacks; install it" in (
        problem(name="lib_d", version="1.0")
    )


def test_the_metadata_of_all_distributions_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(
        program_modules.metadata, "packages_distributions", lambda: calls.append(1) or {}
    )
    program_modules._distributions.cache_clear()
    check_used([UsedModule(name, "f", version="1.0") for name in ("ast", "dis", "json")])
    assert len(calls) == 1
    program_modules._distributions.cache_clear()
