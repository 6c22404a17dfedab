"""`pto new case`: a folder that is complete, or nothing at all."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

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


def test_a_new_case_is_complete(site, tmp_path):
    result = site.pto("new", "case", "my_case", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert files(tmp_path / "my_case") == FILES
    assert result.stdout.splitlines() == [
        *(f"my_case/{name}" for name in FILES),
        "run it with: pto run my_case",
    ]


def test_every_file_that_the_new_case_names_is_there(site, tmp_path):
    site.pto("new", "case", "x", cwd=tmp_path)
    kernels = tmp_path / "x" / "kernels"
    config = module(kernels / "kernel_config.py")
    for entry in (*config.KERNELS, config.ORCHESTRATION):
        assert (kernels / entry["source"]).is_file()
    function = config.ORCHESTRATION["function_name"]
    assert f" {function}(Runtime*" in (kernels / config.ORCHESTRATION["source"]).read_text()


def test_the_reference_of_the_new_case(site, tmp_path):
    site.pto("new", "case", "x", cwd=tmp_path)
    golden = module(tmp_path / "x" / "golden.py")
    for params in golden.ALL_CASES.values():
        tensors = dict(golden.generate_inputs(params))
        golden.compute_golden(tensors, params)
        expected = np.float64(params["scale"]) * tensors["a"] + tensors["b"]
        np.testing.assert_allclose(tensors["c"], expected, rtol=1e-5, atol=1e-6)
        assert tensors["count"].value == tensors["c"].size


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_nothing_is_overwritten(site, tmp_path, kind):
    target = tmp_path / "x"
    if kind == "folder":
        target.mkdir()
        (target / "golden.py").write_text("mine")
    elif kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to("nowhere")
    result = site.pto("new", "case", "x", cwd=tmp_path)
    assert result.returncode == 2
    assert "already exists; nothing was written" in result.stderr
    if kind == "folder":
        assert files(target) == ["golden.py"]
        assert (target / "golden.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["1x", "a/b", "../x", "", ".", "a b", "é"])
def test_a_name_that_cannot_be(site, tmp_path, name):
    result = site.pto("new", "case", name, cwd=tmp_path)
    assert result.returncode == 2
    assert "cannot be the name of a case: expected a letter" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_folder_that_cannot_be_written(site):
    result = site.pto("new", "case", "x", cwd="/proc")  # not even root may
    assert result.returncode == 2
    assert result.stderr.startswith("pto: error: /proc/x cannot be written: ")
    assert "change to a folder in which you may write" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_kind_that_does_not_exist(site, tmp_path):
    result = site.pto("new", "world", "x", cwd=tmp_path)
    assert result.returncode == 2
    assert "'world'" in result.stderr


PLUGIN_FILES = [
    "README.md",
    "pyproject.toml",
    "src/pto_transport_my_wire/__init__.py",
    "src/pto_transport_my_wire/py.typed",
    "tests/test_contract.py",
]


def test_a_new_plugin_has_its_name_everywhere(site, tmp_path):
    result = site.pto("new", "plugin", "transport", "my_wire", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    folder = tmp_path / "pto-transport-my_wire"
    assert files(folder) == PLUGIN_FILES
    assert result.stdout.splitlines() == [
        *(f"pto-transport-my_wire/{name}" for name in PLUGIN_FILES),
        "run it with: pip install ./pto-transport-my_wire && pytest pto-transport-my_wire",
    ]
    for name in PLUGIN_FILES:
        assert "template" not in (folder / name).read_text().lower(), name
    source = (folder / "src" / "pto_transport_my_wire" / "__init__.py").read_text()
    assert "class MyWireTransport:" in source
    assert 'name = "my_wire"' in source


@pytest.mark.parametrize("name", ["1x", "a/b", "A", "a-b", "", "é"])
def test_a_plugin_name_that_cannot_be(site, tmp_path, name):
    result = site.pto("new", "plugin", "transport", name, cwd=tmp_path)
    assert result.returncode == 2
    assert "cannot be the name of a plugin: expected a small letter" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_family_that_does_not_exist(site, tmp_path):
    result = site.pto("new", "plugin", "wire", "x", cwd=tmp_path)
    assert result.returncode == 2
    assert "'wire'" in result.stderr
    assert "transport" in result.stderr
