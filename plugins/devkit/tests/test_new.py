"""`pto new` writes a complete folder, or nothing."""

from __future__ import annotations

import errno
import importlib.util
import tomllib
from pathlib import Path

import numpy as np
import pytest
from fake_distributions import pto_here

from pto_core.cli.main import main
from pto_core.plugins import FAMILIES

FILES = [
    "golden.py",
    "kernels/aiv/add.cpp",
    "kernels/aiv/scale.cpp",
    "kernels/kernel_config.py",
    "kernels/orchestration/graph.cpp",
]


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def files(folder):
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(str(p.relative_to(folder)) for p in found if p.suffix != ".pyc")


def test_a_new_case_is_complete(tmp_path):
    result = pto_here("new", "case", "my_case", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert files(tmp_path / "my_case") == FILES
    assert result.stdout.splitlines() == [
        *(f"my_case/{name}" for name in FILES),
        "run it with: pto run my_case",
    ]


def test_every_file_that_the_new_case_names_is_there(tmp_path):
    pto_here("new", "case", "x", "-r", "host_build_graph", cwd=tmp_path)
    kernels = tmp_path / "x" / "kernels"
    config = module(kernels / "kernel_config.py")
    for entry in (*config.KERNELS, config.ORCHESTRATION):
        assert (kernels / entry["source"]).is_file()
    function = config.ORCHESTRATION["function_name"]
    assert f" {function}(Runtime*" in (kernels / config.ORCHESTRATION["source"]).read_text()


def test_the_reference_of_the_new_case(tmp_path):
    pto_here("new", "case", "x", cwd=tmp_path)
    golden = module(tmp_path / "x" / "golden.py")
    for params in golden.ALL_CASES.values():
        tensors = dict(golden.generate_inputs(params))
        golden.compute_golden(tensors, params)
        expected = np.float64(params["scale"]) * tensors["a"] + tensors["b"]
        np.testing.assert_allclose(tensors["c"], expected, rtol=1e-5, atol=1e-6)
        assert tensors["count"].value == tensors["c"].size


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_nothing_is_overwritten(tmp_path, kind):
    target = tmp_path / "x"
    if kind == "folder":
        target.mkdir()
        (target / "golden.py").write_text("mine")
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to("nowhere")
    result = pto_here("new", "case", "x", cwd=tmp_path)
    assert result.returncode == 2
    assert "already exists; nothing was written" in result.stderr
    if kind == "folder":
        assert files(target) == ["golden.py"]
        assert (target / "golden.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["1x", "a/b", "../x", "", ".", "a b", "é"])
def test_an_invalid_case_name_is_refused(tmp_path, name):
    result = pto_here("new", "case", name, cwd=tmp_path)
    assert result.returncode == 2
    assert "cannot be the name of a case: expected a letter" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written():
    result = pto_here("new", "case", "x", cwd=Path("/proc"))  # not even root can write there
    assert result.returncode == 2
    assert result.stderr.startswith("pto: error: /proc/x cannot be written: ")
    assert "change to a writable folder" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_kind_that_does_not_exist(tmp_path):
    result = pto_here("new", "world", "x", cwd=tmp_path)
    assert result.returncode == 2
    assert "'world'" in result.stderr


PLUGIN_FILES = {
    "backend": [
        "CMakeLists.txt",
        "README.md",
        "native/backend.cpp",
        "native/kernels.hpp",
        "native/memory.hpp",
        "pyproject.toml",
        "src/pto_backend_my_wire/__init__.py",
        "src/pto_backend_my_wire/py.typed",
        "tests/test_my_wire_backend.py",
    ],
    "runtime": [
        "CMakeLists.txt",
        "README.md",
        "native/graph.cpp",
        "native/graph.hpp",
        "native/library.cpp",
        "native/runtime.cpp",
        "native/runtime.hpp",
        "pyproject.toml",
        "src/pto_runtime_my_wire/__init__.py",
        "src/pto_runtime_my_wire/include/entry_wrapper.hpp",
        "src/pto_runtime_my_wire/include/runtime.h",
        "src/pto_runtime_my_wire/py.typed",
        "tests/graph.cpp",
        "tests/test_my_wire_orchestration.py",
        "tests/test_my_wire_runtime.py",
    ],
    "transport": [
        "README.md",
        "pyproject.toml",
        "src/pto_transport_my_wire/__init__.py",
        "src/pto_transport_my_wire/py.typed",
        "tests/test_my_wire_transport.py",
    ],
    "launcher": [
        "README.md",
        "pyproject.toml",
        "src/pto_launcher_my_wire/__init__.py",
        "src/pto_launcher_my_wire/py.typed",
        "tests/test_my_wire_launcher.py",
    ],
    "scheduler": [
        "README.md",
        "pyproject.toml",
        "src/pto_scheduler_my_wire/__init__.py",
        "src/pto_scheduler_my_wire/py.typed",
        "tests/test_my_wire_scheduler.py",
    ],
}


@pytest.mark.parametrize("family", PLUGIN_FILES)
def test_a_new_plugin_has_its_name_everywhere(tmp_path, family):
    result = pto_here("new", "plugin", family, "my_wire", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    project = f"pto-{family}-my_wire"
    assert files(tmp_path / project) == PLUGIN_FILES[family]
    how = "--no-build-isolation " if family in ("backend", "runtime") else ""
    assert result.stdout.splitlines() == [
        *(f"{project}/{name}" for name in PLUGIN_FILES[family]),
        f"run it with: pip install {how}./{project} && pytest {project}",
    ]
    for name in PLUGIN_FILES[family]:
        assert "template" not in (tmp_path / project / name).read_text().lower(), name
    package = tmp_path / project / "src" / f"pto_{family}_my_wire"
    source = (package / "__init__.py").read_text()
    assert f"class MyWire{family.title()}:" in source
    assert 'name = "my_wire"' in source
    stated = tomllib.loads((tmp_path / project / "pyproject.toml").read_text())["project"]
    assert stated["name"] == project
    assert stated["entry-points"] == {f"pto.{family}s": {"my_wire": f"{package.name}:plugin"}}


def test_new_plugins_have_no_test_module_of_the_same_name(tmp_path):
    """Pytest imports test files by base name, so two files with one name conflict in one call."""
    for family in PLUGIN_FILES:
        for name in ("red", "blue"):
            assert pto_here("new", "plugin", family, name, cwd=tmp_path).returncode == 0
    modules = [path.name for path in tmp_path.glob("pto-*/tests/*.py")]
    assert len(modules) == 12
    assert len(set(modules)) == len(modules)


def test_every_family_with_a_contract_has_a_skeleton():
    assert PLUGIN_FILES.keys() == set(FAMILIES) - {"command", "observer"}


@pytest.mark.parametrize("name", ["1x", "a/b", "A", "a-b", "", "é"])
def test_an_invalid_plugin_name_is_refused(tmp_path, name):
    result = pto_here("new", "plugin", "transport", name, cwd=tmp_path)
    assert result.returncode == 2
    assert "cannot be the name of a plugin: expected a small letter" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_family_that_does_not_exist(tmp_path):
    result = pto_here("new", "plugin", "wire", "x", cwd=tmp_path)
    assert result.returncode == 2
    assert "'wire'" in result.stderr
    assert "transport" in result.stderr


@pytest.mark.parametrize("family", PLUGIN_FILES)
def test_nothing_of_a_plugin_is_overwritten(tmp_path, family):
    target = tmp_path / f"pto-{family}-x"
    target.mkdir()
    (target / "README.md").write_text("mine")
    result = pto_here("new", "plugin", family, "x", cwd=tmp_path)
    assert result.returncode == 2
    assert f"{target} already exists; nothing was written" in result.stderr
    assert files(target) == ["README.md"]


def test_the_name_of_an_installed_plugin_is_refused(site, tmp_path):
    site.backend("taken")
    result = pto_here("new", "plugin", "backend", "taken", cwd=tmp_path)
    assert result.returncode == 2
    assert "'taken' is the name of an installed backend, of fake-taken 1.0" in result.stderr
    assert "choose another name" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    # Another family may use the name. The distribution that has the name already may be written
    # again.
    site.install("pto-transport-taken", {"pto.transports": "taken = pto_transport_taken:plugin"})
    assert pto_here("new", "plugin", "transport", "taken", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("family", PLUGIN_FILES)
def test_a_full_disk_leaves_no_partial_plugin(tmp_path, monkeypatch, capsys, family):
    write_text, written = Path.write_text, []

    def fill_up(path, *arguments, **options):
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        written.append(path)
        return write_text(path, *arguments, **options)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "write_text", fill_up)
    assert main(["new", "plugin", family, "x"]) == 2
    assert "cannot be written: No space left on device; change to" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_alias_of_a_variant_selects_its_case(tmp_path):
    for name, variant in (("a", "pto2"), ("b", "tensormap_and_ringbuffer")):
        assert pto_here("new", "case", name, "-r", variant, cwd=tmp_path).returncode == 0
    written = {name: files(tmp_path / name) for name in "ab"}
    assert written["a"] == written["b"]
    for name in written["a"]:
        if (tmp_path / "a" / name).suffix == ".cpp":
            assert (tmp_path / "a" / name).read_text() == (tmp_path / "b" / name).read_text()
