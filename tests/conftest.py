"""A case for both build-graph runtimes, and the fake driver of the A2/A3 plugin."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from native_builds import NativeBuild

PTO = str(Path(sys.executable).with_name("pto"))
EXAMPLES = Path(__file__).parents[1] / "examples"
PACKAGE_OF_CARD = Path(__file__).parents[1] / "plugins" / "backend_a2a3"
PATIENCE_S = 60
LIMIT_S = 300
"""The time limit of a command on a busy machine: far more than any command needs."""

GOLDEN = """
import ctypes
import numpy as np

ALL_CASES = {{"first": {{"a": 2.0}}, "second": {{"a": 5.0}}}}
__outputs__ = ["f"]


def generate_inputs(params):
    a = np.full({count}, params["a"], np.float32)
    return [("a", a), ("f", np.zeros({count}, np.float32)), ("n", ctypes.c_int64({count}))]


def compute_golden(tensors, params):
    tensors["f"][:] = tensors["a"] * 2
"""

CONFIG = """
KERNELS = [{"func_id": 3, "name": "twice", "source": "twice.cpp", "core_type": "aiv"}]
ORCHESTRATION = {
    "host_build_graph": {"source": "host.cpp", "function_name": "graph"},
    "aicpu_build_graph": {"source": "aicpu.cpp", "function_name": "graph"},
}
"""

KERNEL = """
#include <unistd.h>

#include <cstdint>
#include <cstdio>

extern "C" void kernel_entry(int64_t* args) {{
  auto* a = reinterpret_cast<float*>(args[0]);
  auto* f = reinterpret_cast<float*>(args[1]);
  {statement}
  for (int64_t i = 0; i < args[2]; ++i) f[i] = a[i] * 2;
}}
"""

# A source that takes a compiler minutes, so that a test finds a compiler that was not ended.
SLOW_TO_COMPILE = """
#include <cstdint>
template <long N> constexpr long count() {{
  long sum = {salt}L + N;
  for (long i = 0; i < 400; ++i) for (long j = 0; j < 300; ++j) sum ^= i * j;
  return sum;
}}
template <long N> constexpr long value = count<N>() ^ value<N - 1>;
template <> constexpr long value<0> = 0;
extern "C" void kernel_entry(int64_t* args) {{ args[0] += value<800> & 0; }}
"""

HOST = """
#include <unistd.h>

#include <cstdio>

#include "runtime.h"

extern "C" int graph(Runtime* runtime, uint64_t* args, int arg_count) {{
  const size_t bytes = args[2] * sizeof(float);
  auto& api = runtime->host_api;
  void* a = api.device_malloc(bytes);
  void* f = api.device_malloc(bytes);
  api.copy_to_device(a, reinterpret_cast<void*>(args[0]), bytes);
  uint64_t task[] = {{reinterpret_cast<uint64_t>(a), reinterpret_cast<uint64_t>(f), args[2]}};
  auto add = [&] {{ return runtime->add_task(task, 3, 3, CoreType::AIV) >= 0; }};
  auto copy_back = [&] {{
    runtime->record_tensor_pair(reinterpret_cast<void*>(args[1]), f, bytes);
  }};
  copy_back();
  {statement}
  return !add();
}}
"""

AICPU = """
#include <cstdio>

#include "runtime.h"

extern "C" int graph(Runtime* runtime) {{
  auto& api = runtime->aicpu_build_api;
  auto add = [&] {{
    const int task = api.add_task(runtime, runtime->orch_args, 3, 3, CoreType::AIV, 0);
    if (task >= 0) api.publish_task(runtime, task);
    return task >= 0;
  }};
  {statement}
  return !add();
}}
"""
SOURCES = {"host_build_graph": ("host.cpp", HOST), "aicpu_build_graph": ("aicpu.cpp", AICPU)}


class Run(subprocess.Popen[str]):
    """A command that must end within a limit; otherwise the test shows what its processes do."""

    def communicate(
        self, input: str | None = None, timeout: float | None = None
    ) -> tuple[str, str]:
        limit_s = LIMIT_S if timeout is None else timeout
        try:
            return super().communicate(input, limit_s)
        except subprocess.TimeoutExpired:
            doing = self._doing()
            os.killpg(self.pid, signal.SIGKILL)
            _, errors = super().communicate(timeout=PATIENCE_S)
            raise AssertionError(f"still running after {limit_s} s: {doing}\n{errors}") from None

    def await_text(self, text: str) -> None:
        """Wait until the command has written this text to standard error."""
        assert self.stderr is not None
        heard, deadline = b"", time.monotonic() + LIMIT_S
        while text.encode() not in heard:
            left = max(0, deadline - time.monotonic())
            assert select.select([self.stderr], [], [], left)[0], (heard, self._doing())
            got = os.read(self.stderr.fileno(), 1 << 16)
            assert got, (heard, self.poll())
            heard += got

    def _doing(self) -> list[str]:
        """Return names and states of its session's processes, and where in the kernel they wait."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                name, _, rest = (entry / "stat").read_text().rpartition(")")
                if int(rest.split()[3]) == self.pid:
                    places = [task.read_text() for task in (entry / "task").glob("*/wchan")]
                    found.append(f"{name}) {rest.split()[0]} {places}")
            except OSError:
                continue
        return found


@dataclass
class Case:
    """A case folder with its cache and temporary folder. A marker identifies its processes."""

    folder: Path
    cache: Path
    temporary: Path
    mark: str = field(default_factory=lambda: f"pto-test-{uuid.uuid4().hex}")
    variables: dict[str, str] = field(default_factory=dict)
    shared_memory: set[str] = field(default_factory=lambda: set(os.listdir("/dev/shm")))

    def write(self, name: str, text: str) -> Case:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return self

    def golden(self, count: int) -> Case:
        """Write a reference with arrays of ``count`` floats."""
        return self.write("golden.py", GOLDEN.format(count=count))

    def config(self, lines: str = "") -> Case:
        return self.write("kernels/kernel_config.py", CONFIG + lines)

    def kernel(self, statement: str = "") -> Case:
        """Write a kernel that begins with ``statement``, which can use ``a`` and ``f``."""
        return self.write("kernels/twice.cpp", KERNEL.format(statement=statement))

    def slow_to_compile(self, name: str, salt: int) -> Case:
        """Write a kernel that takes a compiler minutes; a new ``salt`` avoids the cache."""
        return self.write(f"kernels/{name}", SLOW_TO_COMPILE.format(salt=salt))

    def graph(self, runtime: str, statement: str = "") -> Case:
        """Write an orchestration that executes ``statement`` before it adds its one task.

        ``add()`` adds a task and returns whether that succeeded. For host_build_graph there is also
        ``copy_back()``.
        """
        name, source = SOURCES[runtime]
        return self.write(f"kernels/{name}", source.format(statement=statement))

    @property
    def environment(self) -> dict[str, str]:
        own = {"PTO_CACHE_DIR": self.cache, "TMPDIR": self.temporary, "CASE_MARK": self.mark}
        return {**os.environ, **{key: str(value) for key, value in own.items()}, **self.variables}

    def start(self, *arguments: str, **options: Any) -> Run:
        """Start `pto run` like a shell: in the foreground of a separate session."""
        return self.start_command("run", str(self.folder), *arguments, **options)

    def start_command(self, *arguments: str, **options: Any) -> Run:
        usual = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "start_new_session": True,
        }
        return Run([PTO, *arguments], text=True, env=self.environment, **{**usual, **options})

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.command("run", str(self.folder), *arguments)

    def run_on(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.command("run", str(folder), *arguments)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        run = self.start_command(*arguments)
        output, errors = run.communicate()
        assert "Traceback (most recent call last)" not in errors or "note" in errors
        return subprocess.CompletedProcess(run.args, run.returncode, output, errors)

    def json(self, *arguments: str) -> dict[str, Any]:
        done = self.run("--json", *arguments)
        document: dict[str, Any] = json.loads(done.stdout)
        assert document["exit_code"] == done.returncode
        return document

    def leftovers(self, *, within_cache: bool = True) -> list[str]:
        """Return the processes and files that are left after a time in which processes can end."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self._leftovers(within_cache)) and time.monotonic() < deadline:
            time.sleep(0.01)
        return found

    def assert_all_is_well(self) -> None:
        """Require that nothing is left, and that the vector example still runs with this cache."""
        assert self.leftovers() == []
        done = self.run_on(EXAMPLES / "01_vector", "-q")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "constant: passed (a2a3sim, host_build_graph, device 0)\n"
        assert self.leftovers() == []

    def _leftovers(self, within_cache: bool) -> list[str]:
        in_cache = (self.cache / "scratch", self.cache / "locks") if within_cache else ()
        folders = (*in_cache, self.temporary)
        files = [str(path) for folder in folders for path in folder.glob("*")]
        leftovers = [
            str(path) for path in self.folder.rglob("*") if path.suffix in (".pyc", ".core")
        ]
        shared = set(os.listdir("/dev/shm")) - self.shared_memory
        return [*files, *leftovers, *sorted(shared), *self.processes()]

    def processes(self) -> list[str]:
        """List the live processes that belong to runs of this case, in any session."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if (
                    not entry.name.isdigit()
                    or self.mark.encode() not in (entry / "environ").read_bytes()
                ):
                    continue
                if (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found.append(f"{entry.name}: {(entry / 'cmdline').read_bytes()!r}")
            except OSError:
                continue
        return found


@pytest.fixture(scope="session")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that each test fills again.

    The cache finds an artefact by the path of its source. Sources that are equal in many tests are
    compiled once if their path is equal, too.
    """
    return tmp_path_factory.mktemp("compiled") / "case"


@pytest.fixture
def case(tmp_path: Path, shared_cache: Path, compiled_folder: Path) -> Iterator[Case]:
    """Return a correct case for both build-graph runtimes; its runs must leave nothing behind."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    shutil.rmtree(compiled_folder, ignore_errors=True)
    made = Case(compiled_folder, shared_cache, temporary).golden(64).config().kernel()
    for runtime in SOURCES:
        made.graph(runtime)
    yield made
    assert made.leftovers() == []


@pytest.fixture(params=SOURCES)
def runtime(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def fake_card(
    native_build: NativeBuild, monkeypatch: pytest.MonkeyPatch, folder_of_all: Path
) -> None:
    """Let the backend a2a3 use its fake driver, whose devices start the device process."""
    build = native_build(PACKAGE_OF_CARD)
    driver = {
        "memory_mib": "512",
        "process": build / "tests" / "device_process" / "device_process",
        "libraries": build / "native" / "device" / "installed",
        "silicon": "blocks=2 seed=5 duplicates=1",
    }
    # All test processes share the cache, so that each variant is compiled once.
    monkeypatch.setenv("PTO_CACHE_DIR", str(folder_of_all / "card_cache"))
    monkeypatch.setenv("PTO_FAKE_DRIVER", ",".join(f"{key}={driver[key]}" for key in driver))
    monkeypatch.setenv("PTO_A2A3_FAKE", "1")
    monkeypatch.setenv("PTO_A2A3_LIBRARY_FOLDER", str(build / "tests" / "fake_driver" / "fake"))
    monkeypatch.setenv("PTO_A2A3_POOL_MIB", "256")
    monkeypatch.setenv("PTO2_RING_HEAP", str(1 << 20))


@pytest.fixture
def card(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the label of the device under test: the fake device, or that of ``--card``."""
    number = request.config.getoption("card")
    if number is None:
        request.getfixturevalue("fake_card")
        return "fake device"
    monkeypatch.delenv("PTO_A2A3_FAKE", raising=False)
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", number)
    return "device"
