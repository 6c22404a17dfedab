"""``kernel_config.py``: each error names file, key, value, and the expected form."""

from __future__ import annotations

from pathlib import Path

import pytest

from pto_core.cases.kernel_config import load_kernel_config
from pto_core.errors import UsageError

GOOD = """
KERNELS = [{"func_id": 0, "name": "add", "source": "add.cpp", "core_type": "aiv"}]
ORCHESTRATION = {"source": "graph.cpp", "function_name": "build"}
"""


@pytest.fixture
def config(tmp_path: Path):
    (tmp_path / "add.cpp").write_text("")
    (tmp_path / "graph.cpp").write_text("")
    (tmp_path / "python.py").write_text("def graph(rt): pass\n")

    def load(text: str):
        path = tmp_path / "kernel_config.py"
        path.write_text(text)
        # Modules are cached by path, so each text needs a separate file.
        path = path.rename(tmp_path / f"kernel_config_{abs(hash(text)):x}.py")
        return load_kernel_config(path)

    return load


def test_good_file(config, tmp_path) -> None:
    loaded = config(
        GOOD + 'RUNTIME_CONFIG = {"runtime": "x", "block_dim": 3}\nRUNTIME_ENV = {"A": "1"}\n'
    )
    (kernel,) = loaded.kernels("anything")
    assert (kernel.func_id, kernel.name, kernel.core_type) == (0, "add", "aiv")
    assert kernel.source == tmp_path / "add.cpp"
    assert loaded.orchestration("anything").function == "build"
    assert loaded.settings == {"runtime": "x", "block_dim": 3}
    assert loaded.environment == {"A": "1"}


def test_keys_of_pypto(config, tmp_path) -> None:
    keys = '"external": True, "enable_sdma": True, "extra_include_dirs": ["include", "/opt"]'
    loaded = config(
        GOOD.replace('"aiv"', f'"aiv", {keys}') + 'RUNTIME_CONFIG = {"enable_sdma": True}\n'
    )
    (kernel,) = loaded.kernels("anything")
    assert kernel.include_dirs == (tmp_path / "include", Path("/opt"))
    assert loaded.settings == {}
    (warning,) = loaded.warnings
    assert "RUNTIME_CONFIG['enable_sdma'] = True has no effect; simulated devices" in warning
    with pytest.raises(UsageError, match=r"'extra_include_dirs'\] is 'include'; expected a list"):
        config(GOOD.replace('"aiv"', '"aiv", "extra_include_dirs": "include"'))


def test_orchestration_by_runtime(config) -> None:
    loaded = config(
        GOOD.replace(
            'ORCHESTRATION = {"source": "graph.cpp", "function_name": "build"}',
            'ORCHESTRATION = {"one": {"source": "graph.cpp"}, '
            '"two": {"source": "python.py", "function_name": "graph"}}',
        )
    )
    assert not loaded.orchestration("one").is_python
    assert loaded.orchestration("two").is_python
    with pytest.raises(
        UsageError, match=r"no entry for the runtime 'three'; it has entries for one, two"
    ):
        loaded.orchestration("three")


def test_kernels_by_runtime(config) -> None:
    one = '[{"func_id": 0, "source": "add.cpp", "core_type": "aiv"}]'
    two = '[{"func_id": 0, "source": "graph.cpp", "core_type": "aic"}]'
    by_runtime = f"KERNELS = {{'one': {one}, 'two': {two}}}\n"
    loaded = config(GOOD + by_runtime)
    assert [kernel.name for kernel in loaded.kernels("one")] == ["add"]
    assert [kernel.name for kernel in loaded.kernels("two")] == ["graph"]
    with pytest.raises(UsageError, match=r"KERNELS has no entry for the runtime 'three'.*one, two"):
        loaded.kernels("three")
    with pytest.raises(UsageError, match=r"KERNELS\['two'\]\[0\]\['func_id'\] is 'x'"):
        config(GOOD + by_runtime.replace(two, two.replace("0", "'x'")))


def test_the_largest_func_id_is_accepted(config) -> None:
    (kernel,) = config(GOOD.replace('"func_id": 0', '"func_id": 4095')).kernels("anything")
    assert kernel.func_id == 4095


def test_absolute_paths_and_path_objects(config, tmp_path) -> None:
    source = f"__import__('pathlib').Path({str(tmp_path / 'add.cpp')!r})"
    (kernel,) = config(GOOD.replace('"add.cpp"', source)).kernels("anything")
    assert kernel.source == tmp_path / "add.cpp"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("KERNELS =", "KERNEL =", r"KERNELS|KERNEL"),
        ("ORCHESTRATION =", "ORCHESTRATON =", "has no ORCHESTRATION; did you mean 'ORCHESTRATON'"),
        ('"func_id": 0', '"func_id": "0"', r"KERNELS\[0\]\['func_id'\] is '0'; expected an int"),
        ('"func_id": 0', '"func_id": -1', "is -1"),
        ('"func_id": 0', '"func_id": 4096', "is 4096; expected an int from 0 to 4095"),
        ('"func_id": 0, ', "", "has no 'func_id'"),
        ('"func_id"', '"funcid"', "unknown key 'funcid'; did you mean 'func_id'"),
        ('"aiv"', '"aivv"', "'aic' or 'aiv'; did you mean 'aiv'"),
        ('"aiv"', "1", r"\['core_type'\] is 1"),
        ("add.cpp", "ad.cpp", r"\['source'\] is 'ad.cpp'.*did you mean 'add.cpp'"),
        ('"add.cpp"', "7", r"\['source'\] is 7; expected the path"),
        ('"name": "add"', '"name": 3', r"\['name'\] is 3"),
        ("graph.cpp", "grap.cpp", r"ORCHESTRATION\['source'\].*did you mean 'graph.cpp'"),
        ("function_name", "function", r"unknown key 'function'; known keys: source, function_name"),
        ('"build"', '"not a name"', r"\['function_name'\] is 'not a name'"),
        (
            '"source": "graph.cpp", "function_name": "build"',
            '"source": "python.py"',
            "function_name",
        ),
        ("KERNELS = [", "KERNELS = 1 or [", r"KERNELS is 1; expected a list"),
        ("[{", "['x', {", r"KERNELS\[0\] is 'x'; expected a dict"),
        ("KERNELS = [", "KERNELS = len(3) or [", "cannot be loaded: TypeError"),
        ("KERNELS = [", "KERNELS = (", "cannot be loaded"),
        ("KERNELS = [", "import not_there_at_all\nKERNELS = [", "ModuleNotFoundError"),
        ("KERNELS = [", "raise SystemExit(3)\nKERNELS = [", "SystemExit"),
    ],
)
def test_mistake(config, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError, match=message) as caught:
        config(GOOD.replace(old, new, 1))
    assert "kernel_config_" in caught.value.message, "the message does not name the file"


def test_two_kernels_with_one_func_id(config) -> None:
    twice = GOOD.replace("}]", '}, {"func_id": 0, "source": "graph.cpp", "core_type": "aic"}]')
    with pytest.raises(UsageError, match=r"KERNELS\[1\].* is 0; .*KERNELS\[0\] \('add'\)"):
        config(twice)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("RUNTIME_CONFIG = 3", "RUNTIME_CONFIG is 3; expected a dict"),
        ("RUNTIME_ENV = {'A': 1}", r"RUNTIME_ENV\['A'\] is 1; expected a text for a variable"),
    ],
)
def test_mistake_in_optional_names(config, line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config(GOOD + line)


def test_name_similar_to_an_optional_name_is_warned_about(config, capsys) -> None:
    config(GOOD + "RUNTIME_CONFG = {}\n")
    assert "did you mean 'RUNTIME_CONFIG'" in capsys.readouterr().err
    config(GOOD + "RUNTIME_CONFIG = {}\nRUNTIME_CONFG = {}\nKERNEL = 1\n")
    assert capsys.readouterr().err == ""


def test_line_of_an_error_is_reported(config) -> None:
    with pytest.raises(UsageError, match=r"\.py:4: .* ZeroDivisionError"):
        config(GOOD + "1 / 0\n")
    with pytest.raises(UsageError, match=r"\.py:4: .* cannot be loaded: "):
        config(GOOD + "x = = 1\n")


def test_no_bytecode_is_left(config, tmp_path) -> None:
    config(GOOD)
    assert not list(tmp_path.rglob("*.pyc"))
