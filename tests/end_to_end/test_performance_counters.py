"""The performance counters of kernels, of this machine and of a library that plays its system."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pto_insight.traces.analysis import recorded_counters
from pto_insight.traces.files import read_trace

NAMES = (
    *("task-clock", "page-faults", "context-switches"),
    *("cycles", "instructions", "cache-misses", "branch-misses"),
)
PAGES = """
char* pages = static_cast<char*>(aligned_alloc(1 << 22, 1 << 22));
for (int i = 0; i < 64; ++i) pages[i << 16] = 1;
free(pages);
"""
# Plays perf_event_open. Event n of a group counts n * 100 between two readings. Hardware events
# fail with the number in FAILURE, and are not scheduled if STOPPED is set. Only LIMIT events can be
# opened.
SYSTEM = """
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int members[4096];    /* of the group that the descriptor leads */
static uint64_t reads[4096]; /* of the leader */
static int stopped[4096];
static int opened;

long syscall(long number, ...) {
  static long (*next)(long, ...);
  if (next == 0) next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  if (number != SYS_perf_event_open) return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  const struct perf_event_attr* event = (const struct perf_event_attr*)a[0];
  const char* failure = getenv("FAILURE");
  if (event->type == PERF_TYPE_HARDWARE && failure != 0) return errno = atoi(failure), -1;
  if (getenv("LIMIT") != 0 && opened++ >= atoi(getenv("LIMIT"))) return errno = EMFILE, -1;
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int leader = (int)a[3] < 0 ? file : (int)a[3];
  if (leader == file) members[file] = 0, reads[file] = 0;
  stopped[leader] = event->type == PERF_TYPE_HARDWARE && getenv("STOPPED") != 0;
  ++members[leader];
  return file;
}

ssize_t read(int file, void* bytes, size_t size) {
  static ssize_t (*next)(int, void*, size_t);
  if (next == 0) next = (ssize_t (*)(int, void*, size_t))dlsym(RTLD_NEXT, "read");
  if (file < 0 || file >= 4096 || members[file] == 0) return next(file, bytes, size);
  ++reads[file];
  uint64_t answer[16] = {(uint64_t)members[file], reads[file], stopped[file] ? 0 : reads[file]};
  for (int i = 0; i < members[file]; ++i) answer[3 + i] = reads[file] * 100 * (i + 1);
  memcpy(bytes, answer, size < sizeof answer ? size : sizeof answer);
  return size;
}

int close(int file) {
  static int (*next)(int);
  if (next == 0) next = (int (*)(int))dlsym(RTLD_NEXT, "close");
  if (file >= 0 && file < 4096) members[file] = 0;
  return next(file);
}
"""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("system")
    (folder / "system.c").write_text(SYSTEM)
    command = ["gcc", "-shared", "-fPIC", "-o", folder / "system.so", folder / "system.c", "-ldl"]
    subprocess.run(command, check=True)
    return folder / "system.so"


def missing(errors: str) -> list[str]:
    found = re.search(r"the counters (.*) are not available: perf_event_open failed", errors)
    return found[1].split(", ") if found else []


def test_this_machine_counts_or_says_why_not(case, tmp_path: Path) -> None:
    source = case.kernel(PAGES).folder / "kernels" / "twice.cpp"
    source.write_text("#include <cstdlib>\n" + source.read_text())
    done = case.run("--pmu", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    trace = read_trace(tmp_path)
    assert {*trace.counters, *missing(done.stderr)} == set(NAMES)
    assert not {*trace.counters} & {*missing(done.stderr)}
    if missing(done.stderr):
        assert re.search(r"\(E[A-Z]+, .*\), kernel.perf_event_paranoid is -?\d+\.", done.stderr)
    if "page-faults" in trace.counters:
        assert 64 <= int(trace.counters["page-faults"][0]) < 128
        (clock,) = trace.counters["task-clock"].tolist()
        assert 0 < clock <= 1.5 * int(trace.tasks["end"][0] - trace.tasks["start"][0]) + 100_000


def test_the_counters_of_a_system_reach_the_summary(case, system: Path, tmp_path: Path) -> None:
    case.variables["LD_PRELOAD"] = str(system)
    done = case.run("--pmu", "--repeat", "2", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "are not available" not in done.stderr
    summary = case.command("trace", "summary", str(tmp_path)).stdout
    head, row = re.search(r"counters, mean of a task\n(.*)\n(.*)\n", summary).groups()
    assert head.split() == ["kernel", "tasks", *NAMES]
    assert row.split() == [
        "twice",
        "2",
        *(f"{100 * number:.1f}" for number in (2, 1, 3, 1, 2, 3, 4)),
    ]
    assert "branch-misses" in (tmp_path / "1" / "first.html").read_text()
    case.variables["FAILURE"] = "13"
    done = case.run("--pmu", "--out", str(tmp_path))
    assert missing(done.stderr) == list(NAMES[3:])
    assert "(EACCES, Permission denied)" in done.stderr
    trace = read_trace(tmp_path)
    times, totals = recorded_counters(trace)["page-faults"]
    assert (times.tolist(), totals.tolist()) == (trace.tasks["end"].tolist(), [100])
    assert {name: values.tolist() for name, values in trace.counters.items()} == {
        "task-clock": [200],
        "page-faults": [100],
        "context-switches": [300],
    }


def test_counters_that_the_system_does_not_count_are_named(
    case, system: Path, tmp_path: Path
) -> None:
    case.variables |= {"LD_PRELOAD": str(system), "STOPPED": "1"}
    done = case.run("--pmu", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"the counters {', '.join(NAMES[3:])} have no values" in done.stderr
    assert {*read_trace(tmp_path).counters} == {*NAMES[:3]}
    case.variables["LIMIT"] = "10"  # 7 to find out what there is, 3 for the thread of the kernel
    done = case.run("--pmu", "--repeat", "2", "--out", str(tmp_path))
    assert done.stderr.count("could not open their counters (EMFILE") == 1
    assert {*read_trace(tmp_path).counters} == {*NAMES[:3]}


OPEN_EVENTS = """
import os, resource
from contextlib import ExitStack
from pto_core import CallConfig, InOut, kernel, open_device

def opened():
    files = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.path.exists(file) and os.readlink(file) == "/dev/null" for file in files)

@kernel(core="aiv")
def count(x: InOut):
    x[:] = opened() - before

def graph(rt, x: InOut):
    rt.submit(count, x)

import numpy
before = opened()
x = numpy.zeros(4)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
with ExitStack() as devices:
    for number in range(50):
        device = open_device("a2a3sim", runtime="pto2", device=number, settings={"sim.workers": 1})
        devices.enter_context(device)
        device.run(graph, x, config=CallConfig(enable_pmu=1))
        print(int(x[0]), opened() - before)
    device.run(graph, x)
    print(int(x[0]), opened() - before)
"""


def test_the_events_of_a_run_are_open_until_its_end(case, system: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(system)}
    command = [sys.executable, "-c", OPEN_EVENTS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [*["7 0"] * 50, "0 0"], done.stderr
    assert done.stderr == ""


def test_a_run_without_the_option_and_a_deterministic_run_count_nothing(
    case, tmp_path: Path
) -> None:
    off = ("--pmu", "--set", "enable_pmu=0")
    for options in (("--trace",), off, ("--pmu", "--seed", "1")):
        done = case.run(*options, "--out", str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert read_trace(tmp_path).counters == {}
    assert "a deterministic run has no counters" in done.stderr
