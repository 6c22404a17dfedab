"""Runs that end by a crash, a hang, an interrupt or a killed parent leave nothing behind."""

from __future__ import annotations

import os
import random
import secrets
import selectors
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pto_core
from pto_core.errors import TaskFailedError

CRASHES = {
    "SIGFPE": "volatile int zero = 0; f[0] = 100 / zero;",
    "SIGABRT": "__builtin_abort();",
    "SIGILL": "__builtin_trap();",
}
ROOT = Path(__file__).parents[2]
PTO = str(Path(sys.executable).with_name("pto"))
FOREVER = "for (volatile int64_t i = 0;; i = i + 1) {}"


def assert_all_is_well(case) -> None:
    """Require that nothing is left, and that the corrected case runs on the same machine."""
    assert case.leftovers() == []
    done = case.kernel("").run("-q")
    assert done.returncode == 0, done.stderr
    assert case.leftovers() == []


@pytest.mark.parametrize("name", CRASHES)
def test_crash_names_kernel_task_and_core(case, name: str) -> None:
    case.kernel(CRASHES[name])
    (error,) = pto_core.run_case(case.folder, settings={"cache_dir": case.cache}).errors
    assert isinstance(error, TaskFailedError)
    assert (error.task, error.func_id, error.kernel) == (0, 3, "twice")
    assert error.signal == signal.Signals[name]


def test_crash_is_reported_and_leaves_nothing(case) -> None:
    done = case.kernel(CRASHES["SIGFPE"]).run()
    assert done.returncode == 4
    for part in ("kernel 'twice' (func_id 3)", "task 0", "on AIV ", "SIGFPE"):
        assert part in done.stderr
    assert_all_is_well(case)


def test_crash_after_the_last_case_is_not_hidden(case) -> None:
    config = (case.folder / "kernels/kernel_config.py").read_text()
    dies = (
        "import pto_core.device.device as device\n"
        "device.Device.close = lambda self: __import__('os').abort()\n"
    )
    case.write("kernels/kernel_config.py", dies + config)
    done = case.run()
    assert done.returncode == 4
    assert "SIGABRT" in done.stderr
    assert case.leftovers() == []


def test_crash_outside_a_kernel_names_the_place(case) -> None:
    golden = (case.folder / "golden.py").read_text()
    case.write("golden.py", golden + "    ctypes.string_at(16)\n")
    done = case.run()
    assert done.returncode == 4
    assert "SIGSEGV" in done.stderr
    assert "in compute_golden, outside any kernel" in done.stderr
    assert case.leftovers() == []


def test_golden_that_kills_its_process(case) -> None:
    golden = (case.folder / "golden.py").read_text()
    case.write("golden.py", golden + "import os\nos._exit(9)\n")
    done = case.run()
    assert done.returncode == 4
    assert "ended with code 9 while loading" in done.stderr
    assert case.leftovers() == []


SURVIVORS = {
    "process": "import subprocess; subprocess.Popen(['sleep', '300'])",
    "process of another session": (
        "import subprocess; print('pid', subprocess.Popen(['sleep', '300'], "
        "start_new_session=True).pid, flush=True)"
    ),
    "fork": "import os, signal; os.fork() or signal.pause()",
}


@pytest.mark.parametrize("survivor", SURVIVORS)
def test_processes_of_user_code_are_not_waited_for(case, survivor: str) -> None:
    golden = (case.folder / "golden.py").read_text()
    case.write("golden.py", golden + f"    {SURVIVORS[survivor]}\n")
    done = case.run("-q", "--timeout", "60")
    assert (done.returncode, done.stdout.count("passed")) == (0, 1), done.stderr
    # it is in another session, so the run does not end it, but the test must
    if "pid" in done.stderr:
        os.kill(int(done.stderr.split("pid ")[1]), signal.SIGKILL)
    assert case.leftovers() == []


def test_a_forked_process_that_continues_the_case_ends_at_once(case) -> None:
    golden = (case.folder / "golden.py").read_text()
    case.write("golden.py", golden + "    import os\n    os.fork()\n")
    done = case.run("-q")
    assert (done.returncode, done.stdout.count("passed")) == (0, 1), done.stderr
    assert case.leftovers() == []


def test_kernel_that_forks_and_spins(case) -> None:
    case.kernel(f"if (fork() == 0) {{ {FOREVER} }}")
    assert case.run("-q").returncode == 0
    assert case.leftovers() == []


def test_interrupt_while_a_survivor_keeps_the_pipes_open(case) -> None:
    golden = (case.folder / "golden.py").read_text()
    statement = "import os; os.fork(); print('here', flush=True)\n    while True: pass\n"
    case.write("golden.py", golden + f"    {statement}")
    run = case.start()
    run.await_text("here")
    run.send_signal(signal.SIGINT)
    run.communicate()
    assert run.returncode == 130
    assert case.leftovers() == []


def test_interrupt_while_kernels_wait_for_each_other(case) -> None:
    sources = ROOT / "plugins" / "runtime_pto2" / "tests" / "published_2026_08"
    kernels = [
        {"func_id": number, "source": str(sources / "cohort_kernel.cpp"), "core_type": core}
        for number, core in enumerate(("aiv", "aic"))
    ]
    orchestration = {
        "source": str(sources / "cohorts.cpp"),
        "function_name": "aicpu_orchestration_entry",
    }
    case.write(
        "kernels/kernel_config.py",
        f"KERNELS = {kernels}\nORCHESTRATION = {orchestration}\n"
        "RUNTIME_CONFIG = {'runtime': 'tensormap_and_ringbuffer'}\n",
    )
    case.write(
        "golden.py",
        "import numpy as np\n__outputs__ = ['out']\n"
        "def generate_inputs(params):\n"
        "    return [('out', np.zeros(128, np.float32)), ('program', 4)]\n"  # endless
        "def compute_golden(tensors, params): pass\n",
    )
    run = case.start()
    run.await_text("waiting")
    run.send_signal(signal.SIGINT)
    output, errors = run.communicate()
    assert run.returncode == 130, errors
    assert output == ""
    assert errors.splitlines()[-1:] == [f"pto: interrupted while {DOING['run']}"]
    assert case.leftovers() == []


def interrupted_at(case, phase: str, random_: random.Random) -> subprocess.Popen[str]:
    """Start a run that spends its time in ``phase``, and wait until the phase has begun."""
    if phase == "compile":
        return case.slow_to_compile("twice.cpp", random_.getrandbits(60)).start()
    if phase == "build":
        spin = f'puts("here"); {FOREVER}'
        graph = (case.folder / "kernels/host.cpp").read_text()
        text = "#include <cstdio>\n" + graph.replace("const size_t", f"{spin}\n  const size_t", 1)
        case.write("kernels/host.cpp", text)
    elif phase == "run":
        case.kernel(f'__builtin_puts("here"); {FOREVER}')
    else:
        golden = (case.folder / "golden.py").read_text()
        case.write("golden.py", golden + "    print('here')\n    while True: pass\n")
    run = case.start()
    run.await_text("here")
    return run


DOING = {
    "compile": "compiling",
    "build": "running on the device",
    "run": "running on the device",
    "reference": "in compute_golden",
}


@pytest.mark.parametrize("phase", DOING)
def test_interrupt_in_each_phase(case, phase: str) -> None:
    seed = secrets.randbits(32)
    print("seed", seed)
    run = interrupted_at(case, phase, random.Random(seed))
    if phase == "compile":
        # Wait until the compiler runs, so that the signal arrives during the compilation.
        while not any("cc1plus" in line for line in case.processes()):
            assert run.poll() is None
    run.send_signal(signal.SIGINT)
    output, errors = run.communicate()
    assert run.returncode == 130, errors
    assert output == ""
    assert errors.splitlines()[-1:] == [f"pto: interrupted while {DOING[phase]}"]
    assert "Traceback" not in errors
    state = errors.partition("state when the run was interrupted:\ndevice 0, host_build_graph: ")[2]
    assert bool(state) == (phase != "compile"), errors
    if phase == "run":
        assert state.startswith("0 kernels ended, 1 running\n  twice, task 0, on AIV ")
        assert "host_build_graph: 1 tasks, 0 completed, 1 on cores" in state
    assert case.leftovers() == []


def test_interrupt_at_random_instants(case, request) -> None:
    """The instants range from the first instruction of the command to its last."""
    seed = secrets.randbits(32)
    print("seed", seed)
    random_ = random.Random(seed)
    assert case.run("-q").returncode == 0
    for _ in range(200 if request.config.getoption("--full") else 20):
        fresh = random_.random() < 0.5
        case.kernel(f"volatile long salt = {random_.getrandbits(60)};" if fresh else "")
        run = case.start("--repeat", "20")
        after_s = random_.uniform(0.1, 1.2)
        with selectors.DefaultSelector() as selector:
            # The descriptor becomes readable when the process ends. Wait at most `after_s` for
            # this.
            descriptor = os.pidfd_open(run.pid)
            selector.register(descriptor, selectors.EVENT_READ)
            selector.select(after_s)
            os.close(descriptor)
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate()
        assert run.returncode in (0, 130, -signal.SIGINT), (after_s, errors)
        assert case.leftovers() == [], after_s
    assert_all_is_well(case)


# Invariant: When the parent of a case is killed, its child and the compilers of both end, too.
@pytest.mark.parametrize("phase", ["compile", "run"])
def test_a_killed_parent_ends_all_its_processes(case, phase: str) -> None:
    run = interrupted_at(case, phase, random.Random(secrets.randbits(32)))
    if phase == "compile":
        while not any("cc1plus" in line for line in case.processes()):
            assert run.poll() is None
    run.kill()
    run.communicate()
    # The cache may still have files of the killed run; the next run removes them.
    assert case.leftovers(within_cache=False) == []
    assert case.kernel("").run("-q").returncode == 0
    assert case.leftovers() == []


# A program that dies while its compiler continues to write into the scratch folder.
DIES_AMID_A_BUILD = """
import os, signal, subprocess
from pathlib import Path
from pto_core.toolchain.cache import ArtefactCache

cache = ArtefactCache(Path(os.environ["PTO_CACHE_DIR"]))
cache.prepare()
scratch = cache.scratch()
folder = scratch.__enter__()
writes = "mkdir $0/x; echo; while :; do mkdir -p $0/x; done"
compiler = subprocess.Popen(["sh", "-c", writes, folder], stdout=subprocess.PIPE)
compiler.stdout.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_that_is_killed_amid_a_build_leaves_nothing(uncompiled) -> None:
    case = uncompiled
    case.write("golden.py", (case.folder / "golden.py").read_text() + DIES_AMID_A_BUILD)
    done = case.run()
    assert done.returncode == 4, done.stderr
    assert "SIGKILL" in done.stderr
    assert case.leftovers() == []


def test_terminated_parent_cleans_up(case) -> None:
    run = interrupted_at(case, "run", random.Random(1))
    run.terminate()
    run.communicate()
    assert run.returncode == -signal.SIGTERM
    assert case.leftovers() == []


def test_full_disk_in_the_cache(case, tmp_path) -> None:
    case.cache = tmp_path / "other-cache"
    source = case.folder / "kernels/twice.cpp"
    # the library of the kernel is larger than the limit, and the status page of the run smaller
    source.write_text(source.read_text() + 'extern "C" const char filler[1 << 17] = {1};\n')
    limited = 'ulimit -f 100; exec "$@"'  # blocks of 512 bytes
    run = subprocess.run(
        ["/bin/sh", "-c", limited, "sh", PTO, "run", str(case.folder)],
        capture_output=True, text=True, check=False, env=case.environment,
    )  # fmt: skip
    assert run.returncode == 3, run.stderr
    assert str(case.cache) in run.stderr
    assert "cache_dir" in run.stderr
    assert_all_is_well(case)


def test_cache_that_cannot_be_written(case, tmp_path) -> None:
    case.cache = tmp_path / "a-file"
    case.cache.write_text("")
    done = case.run()
    assert done.returncode == 3
    assert str(case.cache) in done.stderr
