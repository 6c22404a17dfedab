"""`host_api.upload_kernel_binary`: an orchestration loads a kernel that the case does not list."""

from __future__ import annotations

import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest

THRICE = """
#include <cstdint>
extern "C" void kernel_entry(int64_t* args) {
  auto* a = reinterpret_cast<float*>(args[0]);
  auto* f = reinterpret_cast<float*>(args[1]);
  for (int64_t i = 0; i < args[2]; ++i) f[i] = a[i] * 3;
}
"""

# C++ statements that read the file into memory. The memory is freed before the task runs.
UPLOAD = """
  uint64_t address = 0;
  {{
    std::vector<uint8_t> bytes(1 << 20);
    FILE* file = std::fopen("{library}", "rb");
    if (file == nullptr) return 81;
    bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
    std::fclose(file);
    address = api.upload_kernel_binary({func_id}, bytes.data(), bytes.size());
    std::fill(bytes.begin(), bytes.end(), 0);
  }}
  std::remove("{library}");
  if (address == 0 || runtime->get_function_bin_addr({func_id}) != address) return 82;
  return runtime->add_task(task, 3, {func_id}, CoreType::AIV) < 0;
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Compile a kernel with a plain compiler call, without the framework."""
    (tmp_path / "thrice.cpp").write_text(THRICE)
    made = tmp_path / "thrice.bin"
    compiler = shlex.split(sysconfig.get_config_var("CXX") or "c++")[0]
    flags = ("-O2", "-fPIC", "-shared", "-o", str(made), str(tmp_path / "thrice.cpp"))
    subprocess.run([compiler, *flags], check=True)
    return made


def upload(case, library: Path, func_id: int):
    """Make the case upload ``library`` and run it; the expected result is three times the input."""
    text = (case.folder / "golden.py").read_text()
    case.write("golden.py", text.replace('tensors["a"] * 2', 'tensors["a"] * 3'))
    case.graph("host_build_graph", UPLOAD.format(library=library, func_id=func_id))
    text = (case.folder / "kernels/host.cpp").read_text()
    return case.write("kernels/host.cpp", f"#include <algorithm>\n#include <vector>\n{text}")


@pytest.mark.parametrize("func_id", [3, 9])
def test_uploaded_kernel_runs(case, library: Path, func_id: int) -> None:
    """The kernel replaces the kernel that the case lists (3), or has an id of its own (9)."""
    done = upload(case, library, func_id).run()
    assert done.returncode == 0, done.stderr
    assert not library.exists(), "the orchestration did not remove the library"


def test_bytes_that_are_no_kernel(case, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.bin"
    nonsense.write_bytes(b"not a library at all")
    done = upload(case, nonsense, 9).run()
    assert done.returncode == 3, done.stderr
    assert "the binary of 20 bytes for function id 9 could not be uploaded" in done.stderr
