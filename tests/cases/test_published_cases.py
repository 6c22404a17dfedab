"""Cases written for the published runner: options, keys, compilers, and crashes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pto_core
from pto_core.errors import OrchestrationError, UsageError
from pto_core.kernels import OrchestrationSource

CRASHES = {
    "SIGSEGV": "*reinterpret_cast<volatile int*>(16) = 1;",
    "SIGABRT": "__builtin_abort();",
}
STATIC = "cxx=g++ -static-libstdc++"


def test_options_without_effect_are_named(case) -> None:
    arguments = ("-c", "6ebaf77", "--enable-profiling", "--build")
    done = case.run("-q", *arguments)
    assert done.returncode == 0, done.stderr
    for message in (
        "-c has no effect: the tile library in PTO_ISA_ROOT is used",
        "--enable-profiling has no effect: .* -v or --json shows them",
        "--build has no effect: changed sources are always rebuilt",
    ):
        assert re.search(message, done.stderr), done.stderr
    silent = case.run("--silent", *arguments)
    assert (silent.returncode, silent.stderr) == (0, "")


def test_keys_of_later_runners_are_named(case) -> None:
    config = (case.folder / "kernels/kernel_config.py").read_text()
    later = 'RUNTIME_CONFIG = {"rounds": 10, "orch_thread_num": 2, "block_dim": 3}\n'
    case.write("kernels/kernel_config.py", config + later)
    done = case.run("-q")
    assert done.returncode == 0, done.stderr
    assert "RUNTIME_CONFIG['rounds'] = 10 has no effect; use --repeat N" in done.stderr
    assert "RUNTIME_CONFIG['orch_thread_num'] = 2 has no effect; every run has" in done.stderr
    case.write("kernels/kernel_config.py", config + 'RUNTIME_CONFIG = {"round": 10}\n')
    assert case.run("-q").returncode == 2


@pytest.mark.parametrize(("mode", "name"), [("threads", "SIGSEGV"), ("deterministic", "SIGABRT")])
def test_a_crash_in_the_orchestration_is_reported_as_such(case, runtime, mode, name) -> None:
    case.graph(runtime, f"{CRASHES[name]}")
    settings = {"cache_dir": case.cache, "runtime": runtime, "sim.mode": mode}
    (error,) = pto_core.run_case(case.folder, settings=settings).errors
    assert isinstance(error, OrchestrationError)
    assert error.message.startswith(f"the orchestration crashed: ended with {name} (")
    assert "kernel" not in error.message


def test_a_crash_in_the_orchestration_is_not_attributed_to_a_running_kernel(case) -> None:
    """The orchestration of aicpu_build_graph waits until its task runs, and then crashes."""
    crash = "*reinterpret_cast<volatile int*>(16) = 1;"
    case.kernel('*(volatile float*)f = 1; for (;;) __asm__ volatile("" ::: "memory");')
    case.graph(
        "aicpu_build_graph",
        "auto* f = reinterpret_cast<volatile float*>(runtime->orch_args[1]);\n"
        f"  if (add()) {{ while (f[0] == 0) {{}} {crash} }}",
    )
    settings = {"cache_dir": case.cache, "runtime": "aicpu_build_graph", "jobs": 2}
    (error,) = pto_core.run_case(case.folder, settings=settings).errors
    assert error.message.startswith("the orchestration crashed: ended with SIGSEGV")


def test_a_crash_of_an_orchestration_in_this_process_is_printed(case) -> None:
    source = case.folder / "kernels" / "host.cpp"
    case.graph("host_build_graph", CRASHES["SIGSEGV"])
    program = (
        "import sys, numpy as np\n"
        "from pto_core import ChipCallable, open_device\n"
        "from pto_core.kernels import OrchestrationSource\n"
        "with open_device('a2a3sim', runtime='host_build_graph') as device:\n"
        "    device.run(ChipCallable(OrchestrationSource(sys.argv[1], 'graph')), np.zeros(4), 4)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, source],
        env=case.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode < 0
    assert "pto: the orchestration crashed with SIGSEGV, device 0" in done.stderr


def test_a_path_that_is_not_utf8(case, tmp_path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    shutil.copytree(case.folder, folder)
    for _ in ("built", "cached"):
        done = case.run_on(folder, "-q")
        assert (done.returncode, done.stderr) == (0, "")
    (folder / "kernels" / "twice.cpp").write_text("wrong\n")
    done = case.run_on(folder)
    assert done.returncode == 3
    assert "kernel twice.cpp does not compile" in done.stderr
    assert case.run_on(folder, "--json").returncode == 3


def test_orchestrations_and_kernels_that_print_may_bring_their_own_library(case, runtime) -> None:
    name = {"host_build_graph": "host.cpp", "aicpu_build_graph": "aicpu.cpp"}[runtime]
    case.graph(runtime, 'std::cout << "from the graph " << std::fixed << 2.5 << std::endl;')
    source = case.folder / "kernels" / name
    source.write_text("#include <iostream>\n" + source.read_text())
    case.kernel('std::cout << "from the kernel " << f[0] << std::endl;')
    kernel = case.folder / "kernels" / "twice.cpp"
    kernel.write_text("#include <iostream>\n" + kernel.read_text())
    done = case.run("-q", "-r", runtime, "--set", STATIC)
    assert done.returncode == 0, done.stderr
    assert "from the graph 2.5" in done.stderr
    assert "from the kernel 0" in done.stderr


def test_bfloat16_in_half_precision_is_in_the_failure(case) -> None:
    library = case.folder / "isa"
    case.write("isa/include/pto/pto-inst.hpp", "using bfloat16_t = float;\n")
    case.write("old/stdfloat", "#error no <stdfloat> here\n")
    case.write("old-g++", f'#!/bin/sh\nexec g++ -I{case.folder}/old "$@"\n')
    (case.folder / "old-g++").chmod(0o755)
    case.kernel("bfloat16_t value = 1; (void)value; a[0] = 77;")
    kernel = case.folder / "kernels" / "twice.cpp"
    kernel.write_text("#include <pto/pto-inst.hpp>\n" + kernel.read_text())
    settings = ("--set", f"pto_isa_root={library}", "--set", f"cxx={case.folder}/old-g++")
    done = case.run("-q", *settings)
    assert done.returncode == 1
    before, _, failure = done.stderr.partition("'f'")
    for part in (before, failure):
        assert "kernel twice.cpp uses bfloat16" in part
        assert "in half precision" in part


def test_host_build_graph_of_august_2026_runs_on_the_runtime_with_its_calls(case) -> None:
    case.write(
        "kernels/host.cpp",
        '#include "pto_orchestration_api.h"\n'
        'extern "C" void graph(const ChipTaskArgs& args) {\n'
        "  CoreTaskArgs task;\n"
        "  task.add_input(args.tensor(0).ref());\n"
        "  task.add_output(args.tensor(1).ref());\n"
        "  rt_submit_aiv_task(3, task);\n"
        "}\n",
    )
    case.write(
        "kernels/twice.cpp",
        '#include "tensor.h"\n'
        "#ifndef __gm__\n#define __gm__\n#endif\n"
        "#ifndef __aicore__\n#define __aicore__\n#endif\n"
        'extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {\n'
        "  const auto& a = *reinterpret_cast<const ChipTensor*>(args[0]);\n"
        "  const auto& f = *reinterpret_cast<const ChipTensor*>(args[1]);\n"
        "  for (uint64_t i = 0; i < a.numel(); ++i) {\n"
        "    f.data_as<float>()[i] = 2 * a.data_as<float>()[i];\n"
        "  }\n"
        "}\n",
    )
    done = case.run("-v", "-r", "host_build_graph")
    assert done.returncode == 0, done.stderr
    assert "tensormap_and_ringbuffer" in done.stdout
    assert "2026-08" in done.stdout
    source = OrchestrationSource(case.folder / "kernels/host.cpp", "graph")
    with (
        pto_core.open_device("a2a3sim", runtime="host_build_graph") as device,
        pytest.raises(UsageError, match=r"2026-08 .*runtime='tensormap_and_ringbuffer'"),
    ):
        device.run(pto_core.ChipCallable(source), np.zeros(4), 4)
