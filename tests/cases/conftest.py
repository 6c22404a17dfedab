"""Cases written by tests, `pto run` on them, and a look at what a run leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PTO = str(Path(sys.executable).with_name("pto"))

GOLDEN = """
import ctypes
import numpy as np

ALL_CASES = {"first": {"a": 2.0}, "second": {"a": 5.0}}
__outputs__ = ["f"]


def generate_inputs(params):
    a = np.full(64, params["a"], np.float32)
    return [("a", a), ("f", np.zeros(64, np.float32)), ("n", ctypes.c_int64(64))]


def compute_golden(tensors, params):
    tensors["f"][:] = tensors["a"] * 2
"""

CONFIG = """
KERNELS = [{"func_id": 3, "name": "twice", "source": "twice.cpp", "core_type": "aiv"}]
ORCHESTRATION = {"source": "graph.cpp", "function_name": "graph"}
"""

KERNEL = """
#include <cstdint>
extern "C" void kernel_entry(int64_t* args) {
  auto* a = reinterpret_cast<float*>(args[0]);
  auto* f = reinterpret_cast<float*>(args[1]);
  %s
  for (int64_t i = 0; i < args[2]; ++i) f[i] = a[i] * 2;
}
"""

GRAPH = """
#include "runtime.h"

extern "C" int graph(Runtime* runtime, uint64_t* args, int arg_count) {
  const size_t bytes = args[2] * sizeof(float);
  %s
  void* a = runtime->host_api.device_malloc(bytes);
  void* f = runtime->host_api.device_malloc(bytes);
  runtime->host_api.copy_to_device(a, reinterpret_cast<void*>(args[0]), bytes);
  runtime->record_tensor_pair(reinterpret_cast<void*>(args[1]), f, bytes);
  uint64_t task[] = {reinterpret_cast<uint64_t>(a), reinterpret_cast<uint64_t>(f), args[2]};
  return runtime->add_task(task, 3, 3, CoreType::AIV) < 0;
}
"""


@dataclass
class Case:
    """A case folder, the cache it is built in, and a mark by which its processes are known."""

    folder: Path
    cache: Path
    mark: str = field(default_factory=lambda: f"pto-test-{uuid.uuid4().hex}")

    def write(self, name: str, text: str) -> Case:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return self

    def kernel(self, statement: str) -> Case:
        return self.write("kernels/twice.cpp", KERNEL % statement)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PTO_CACHE_DIR": str(self.cache), "CASE_MARK": self.mark}

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        command = [PTO, "run", str(self.folder), *arguments]
        return subprocess.Popen(command, text=True, env=self.environment, **options)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.command("run", str(self.folder), *arguments)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [PTO, *arguments], capture_output=True, text=True, env=self.environment, check=False
        )
        assert "Traceback (most recent call last)" not in done.stderr or "note" in done.stderr
        return done

    def json(self, *arguments: str) -> dict[str, Any]:
        done = self.run("--json", *arguments)
        document: dict[str, Any] = json.loads(done.stdout)
        assert document["exit_code"] == done.returncode
        return document

    def leftovers(self) -> list[str]:
        """What runs or lies about that should not, after some patience for what is ending."""
        deadline = time.monotonic() + 10
        while (found := self._leftovers()) and time.monotonic() < deadline:
            os.sched_yield()
        return found

    def _leftovers(self) -> list[str]:
        folders = [self.cache / "scratch", self.cache / "locks"]
        files = [str(path) for folder in folders for path in folder.glob("*")]
        strays = [str(path) for path in self.folder.rglob("*") if path.suffix in (".pyc", ".core")]
        return [*files, *strays, *self.processes()]

    def processes(self) -> list[str]:
        """List the living processes that belong to runs of this case."""
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
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def case(tmp_path: Path, shared_cache: Path) -> Case:
    made = Case(tmp_path / "case", shared_cache)
    made.write("golden.py", GOLDEN).write("kernels/kernel_config.py", CONFIG)
    return made.kernel("").write("kernels/graph.cpp", GRAPH % "")


@pytest.fixture
def shared_memory() -> Any:
    """Compare the named shared memory of the machine before and after."""
    before = set(os.listdir("/dev/shm"))
    yield
    left = {name for name in set(os.listdir("/dev/shm")) - before if "pto" in name}
    assert left == set()
