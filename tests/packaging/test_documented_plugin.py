"""The plugin that docs/writing-a-plugin.md writes: packed, installed and held to its contract.

It is made of the page's blocks alone, with the second backend of the tests as its library. What a
stranger would change for a chip of their own, and no more, is changed here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.toolchain

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "writing-a-plugin.md"
LIBRARY = ROOT / "tests" / "native" / "inline_backend.cpp"

# Our chip has no device file, takes C++ kernels of the host, has no settings, and one thread.
PYTHON_CHANGES = {
    "Path.cwd()  # in a real plugin: Path(__file__).parent": "Path(__file__).parent",
    'Path("/dev/mychip0")': 'Path("/dev/null")',
    'compilers=("mychip-clang++",), flags=("-O2", f"-m{core_type}")': "",
    'Option("mychip.queues", 4, parse.integer(1, 64), "queues", native="queues"),': "",
    'Option("mychip.memory", 2**30, parse.size_bytes, "bytes", native="memory_bytes"),': "",
    'frozenset({"threads"})': 'frozenset({"callbacks"})',
}
LIBRARY_CHANGES = {'sizeof(pto_backend_api), "inline"': 'sizeof(pto_backend_api), "mychip"'}
# The backend of a screen is there to run every graph; this much of the contract it leaves out.
LEFT_OUT = {
    "test_unknown_options_are_refused",
    "test_leaks_are_reported",
    "test_topology",
    "test_impossible_shapes_are_refused",
    "test_counters",
    "test_abort",
    "test_kernel_faults",
}
RUNTIME_TEST = """
from pto_core.testing import RuntimeContract


class TestHostBuildGraph(RuntimeContract):
    runtime = "host_build_graph"
    backend = "mychip"
"""
TEST_CHANGES = {'backend = "a2a3sim"': 'backend = "mychip"', "TestSimulator": "TestMyChip"}


def block(language, containing):
    """Give the one block of the page in ``language`` with ``containing`` in it."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (text,) = (text for text in found if containing in text)
    return text


def changed(text, changes):
    for old, new in changes.items():
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in\n{text}"
        text = text.replace(old, new)
    return text


@pytest.fixture
def project(tmp_path):
    """The folder of the plugin, outside the repository."""
    folder = tmp_path / "mychip"
    package = folder / "src" / "pto_backend_mychip"
    package.mkdir(parents=True)
    files = {
        folder / "pyproject.toml": block("toml", "pto.backends"),
        folder / "CMakeLists.txt": block("cmake", "find_package"),
        folder / "backend.cpp": changed(LIBRARY.read_text(), LIBRARY_CHANGES),
        package / "__init__.py": changed(block("python", "class MyChip"), PYTHON_CHANGES),
        tmp_path / "test_mychip.py": changed(block("python", "BackendContract"), TEST_CHANGES),
    }
    for path, text in files.items():
        path.write_text(text)
    return folder


def outcomes(environment, folder, file):
    """Run a test file where the plugin is installed; gives what passed and what did not."""
    (folder / "pytest.ini").write_text("[pytest]\n")  # this folder, and no other above, counts
    program = "import pytest, sys; pytest.main(['-q', '-rA', sys.argv[1]])"
    output = environment.run(environment.python, "-c", program, file, cwd=folder)
    found = re.findall(rf"^(\w+) {file}::\w+::(\w+)", output, re.MULTILINE)
    passed = {name for outcome, name in found if outcome == "PASSED"}
    assert passed, output
    return passed, {name for outcome, name in found if outcome != "PASSED"}


def test_the_documented_backend_is_packed_and_installed_and_keeps_its_contract(
    project, wheelhouse, environment, tmp_path
):
    built = wheelhouse.build(project, tmp_path)
    # The kit opens devices through the public API, which takes a runtime variant.
    environment.pip("install", built.wheel, "ptorun-runtime-hbg", "pytest")
    assert "mychip" in environment.run(environment.folder / "bin" / "pto", "plugins", cwd=tmp_path)
    ours = {name for name in environment.installed() if name.startswith(("ptorun-", "pto-"))}
    assert ours == {"ptorun-core", "ptorun-runtime-hbg", "pto-backend-mychip"}
    passed, others = outcomes(environment, tmp_path, "test_mychip.py")
    assert others == LEFT_OUT
    assert len(passed) >= 20
    (tmp_path / "test_runtime.py").write_text(RUNTIME_TEST)
    passed, others = outcomes(environment, tmp_path, "test_runtime.py")
    assert not others
    assert {"test_diamond", "test_independent_tasks", "test_public_graph"} <= passed
