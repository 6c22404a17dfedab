"""`pto top` beside programs that run: what it shows, what it refuses, and when a program dies."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pto_core.cases.activity import device_record
from pto_core.cli.main import main
from pto_core.worker.live_state import worker_record

PTO = str(Path(sys.executable).with_name("pto"))
PATIENCE_S = 60

POD = """
import sys, time
from pto_core import ChipCallable, Out, TaskArgs, TensorArgType, Worker, kernel

@kernel(core="aiv")
def hold(out: Out):
    time.sleep(600)

def on_chip(rt, out: Out):
    rt.submit(hold, out)

def bump(args):
    args.tensor(0)[:] += 1

def given(tensor, tag):
    args = TaskArgs()
    args.add_tensor(tensor, tag)
    return args

w4, w3 = Worker(4, heap_ring_size=1 << 24), Worker(
    3, device_ids=[0], num_sub_workers=1, platform="a2a3sim",
    runtime="tensormap_and_ringbuffer", heap_ring_size=1 << 24)
chip, sub = w3.register(ChipCallable(on_chip)), w3.register(bump)

def on_host(orch, args, cfg):
    for _ in range(20):
        orch.submit_sub(sub, given(args.tensor(0), TensorArgType.INOUT))
    orch.submit_next_level(chip, given(args.tensor(0), TensorArgType.INOUT), cfg)  # the line

host = w4.register(on_host)
w4.add_worker(w3)
with w4:
    row = w4.shared_array(8)

    def graph(orch, args, cfg):
        orch.submit_next_level(host, given(row, TensorArgType.INOUT), cfg)

    w4.run(graph)
"""
LINE = POD.splitlines().index(next(line for line in POD.splitlines() if "# the line" in line)) + 1


class Pod:
    """A program with a host, a SUB child and a simulated chip, whose kernel does not return."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "pod.py"
        self._path.write_text(POD)
        self._program: subprocess.Popen[str] | None = None

    def running(self) -> subprocess.Popen[str]:
        if self._program is None or self._program.poll() is not None:
            command = [sys.executable, self._path]
            self._program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        return self._program

    def end(self) -> None:
        if self._program is not None:
            self._program.kill()
            self._program.communicate()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    made = Pod(tmp_path_factory.mktemp("pod"))
    yield made
    made.end()


@pytest.fixture
def pod(program: Pod) -> subprocess.Popen[str]:
    """Return the program, which a test may end."""
    return program.running()


def top(*arguments: object) -> Any:
    """Return what `pto top ... --json` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        assert main(["top", *map(str, arguments), "--json"]) == 0
    return json.loads(shown.getvalue())


def until(look: Callable[[], Any]) -> Any:
    """Return the first result that is true."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError("this did not become true within the time limit")


def program_of(pid: int) -> dict[str, Any] | None:
    return next((one for one in top()["programs"] if one["pid"] == pid), None)


def held(pod: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the program when its kernel has been running for a while."""

    def look() -> dict[str, Any] | None:
        assert pod.poll() is None, pod.communicate()
        found = program_of(pod.pid)
        if found is None or not found["devices"] or found["oldest"] is None:
            return None
        kernels = found["devices"][0]["running"]
        is_old = bool(kernels) and (kernels[0]["age_s"] or 0) > 0.3
        return found if is_old and found["devices"][0]["text"] else None

    found: dict[str, Any] = until(look)
    return found


def test_a_tree_of_workers_with_a_chip(pod) -> None:
    found = held(pod)
    assert "pod.py" in found["command"]
    assert found["rss_bytes"] > 1 << 20
    assert found["shared_bytes"] > 0
    above, below = found["workers"]
    assert (above["path"], below["path"]) == ("L4", "L4/host0")
    (host,) = above["children"]
    assert host["state"] == "running"
    assert host["task"]["callable"].endswith("on_host")
    chip, sub = below["children"]
    assert (sub["state"], sub["done"], sub["in_flight"]) == ("idle", 20, 0)
    assert (below["submitted"], below["finished"], below["in_flight"]) == (21, 20, 1)
    task = chip["task"]
    assert (Path(task["file"]).name, task["line"]) == ("pod.py", LINE)
    assert task["age_s"] > 0.2
    (device,) = found["devices"]
    assert device["process"] == chip["pid"]
    (kernel,) = device["running"]
    assert (kernel["kernel"], kernel["core"]) == ("hold", "AIV 0")
    assert "ring 0: 1 tasks in a window of " in device["text"]
    assert found["oldest"]["age_s"] >= kernel["age_s"]
    assert set(found["pids"]) >= {pod.pid, host["pid"], chip["pid"], sub["pid"]}


def test_any_process_of_the_program_selects_it(pod) -> None:
    child = held(pod)["workers"][1]["children"][1]["pid"]
    (found,) = top(child)["programs"]
    assert found["pid"] == pod.pid
    text = subprocess.run([PTO, "top", str(child)], capture_output=True, text=True, check=True)
    assert "oldest: " in text.stdout
    assert "\x1b" not in text.stdout


def test_a_process_without_workers_is_refused() -> None:
    shown = subprocess.run([PTO, "top", "1"], capture_output=True, text=True, check=False)
    assert shown.returncode == 2
    assert "process 1 cannot be shown: it " in shown.stderr


@pytest.mark.parametrize("name", ["geteuid", "stat"])
def test_other_users_and_namespaces_are_refused(pod, name, monkeypatch, capsys) -> None:
    held(pod)
    assert main(["top", str(pod.pid)]) == 0
    if name == "geteuid":
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        reason = "it belongs to another user"
    else:
        other = os.stat("/proc/self/ns/net")
        real = os.stat

        def stat(path: Any, **more: Any) -> os.stat_result:
            return other if path == "/proc/self/ns/pid" else real(path, **more)

        monkeypatch.setattr(os, "stat", stat)
        reason = "it is in another PID namespace"
    capsys.readouterr()
    assert main(["top", str(pod.pid)]) == 2
    assert reason in capsys.readouterr().err


def planted(state: bytes, version: int = 1) -> int:
    """Return a file with the table of a Worker of this process without children."""
    descriptor = os.memfd_create("pto-worker")
    magic = int.from_bytes(b"PTOWORKE", "little")
    os.pwrite(descriptor, struct.pack("<IIQI", 0, version, magic, os.getpid()), 0)
    os.pwrite(descriptor, state.ljust(128, b"\0"), 192)
    return descriptor


def table_of(pid: int) -> int:
    """Open the file with the state of the Worker of a process."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        if os.readlink(link).startswith("/memfd:pto-worker"):
            descriptor = os.open(link, os.O_RDWR)
            if (record := worker_record(descriptor)) is not None and record["process"] == pid:
                return descriptor
            os.close(descriptor)
    raise AssertionError(f"process {pid} has no such file")


def test_another_version_is_not_read(pod) -> None:
    descriptor = planted(b"", version=2)
    assert worker_record(descriptor) == {"version": 2, "process": os.getpid()}
    os.close(descriptor)
    held(pod)
    descriptor = table_of(pod.pid)
    os.pwrite(descriptor, struct.pack("<I", 7), 4)
    try:
        shown = subprocess.run(
            [PTO, "top", str(pod.pid)], capture_output=True, text=True, check=False
        )
        found = program_of(pod.pid)
    finally:
        os.pwrite(descriptor, struct.pack("<I", 1), 4)
        os.close(descriptor)
    assert shown.returncode == 2
    assert "its state has version 7" in shown.stderr
    assert found is None


def test_a_torn_state_is_never_shown() -> None:
    """A writer that is always between two fields: each state that is read belongs together."""
    descriptor = planted(b"")
    is_over = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not is_over.is_set():
            written += 1
            os.pwrite(descriptor, struct.pack("<Q", 2 * written + 1), 192)
            os.pwrite(descriptor, struct.pack("<q", written), 192 + 16)
            os.pwrite(descriptor, struct.pack("<q", written), 192 + 24)
            os.pwrite(descriptor, struct.pack("<Q", 2 * written + 2), 192)

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end or len(seen) < 2:
            record = worker_record(descriptor)
            if record is not None:
                assert record["submitted"] == record["finished"]
                seen.add(record["submitted"])
    finally:
        is_over.set()
        writer.join()
    os.pwrite(descriptor, struct.pack("<Q", 2 * written + 3), 192)
    assert worker_record(descriptor) is None
    os.close(descriptor)


def test_a_kernel_that_ends_between_the_two_copies_is_not_shown(monkeypatch) -> None:
    descriptor = os.memfd_create("pto-device")
    os.ftruncate(descriptor, 20480)
    os.pwrite(descriptor, struct.pack("<IIIiIi", 0x41435450, 1, 2, 0, 0, os.getpid()), 0)
    os.pwrite(descriptor, struct.pack("<QQii", 7, 41, 2, 25), 128)
    record = device_record(descriptor)
    assert record is not None
    assert [one["task"] for one in record["running"]] == ["41"]
    real = os.pread

    def pread(*arguments: int) -> bytes:
        found = real(*arguments)
        os.pwrite(descriptor, struct.pack("<Q", 8), 128)
        return found

    monkeypatch.setattr(os, "pread", pread)
    record = device_record(descriptor)
    assert record is not None
    assert (record["running"], record["kernels_ended"]) == ([], 4)
    os.close(descriptor)


def read_until(terminal: int, wanted: str) -> str:
    text = ""

    def look() -> bool:
        nonlocal text
        while select.select([terminal], [], [], 0)[0]:
            text += os.read(terminal, 1 << 16).decode()
        return wanted in text

    until(look)
    return text


def test_the_screen_refreshes_until_ctrl_c(pod) -> None:
    held(pod)
    ours, theirs = pty.openpty()
    shown = subprocess.Popen(
        [PTO, "top", str(pod.pid), "--interval", "0.1"],
        stdin=theirs,
        stdout=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
    )
    try:
        first = read_until(ours, "hold, task 0")
        assert first.startswith("\x1b[?1049h")
        assert all(len(line) < 130 for line in first.splitlines())
        read_until(ours, "\x1b[H")  # the next screen overwrites the first one
        pod.kill()
        pod.communicate()
        read_until(ours, "no program of this user has")
        shown.send_signal(signal.SIGINT)
        assert read_until(ours, "\x1b[?1049l").endswith("\x1b[?25h\x1b[?1049l")
        assert shown.wait(PATIENCE_S) == 0
    finally:
        shown.kill()
        shown.wait()
        os.close(ours)
        os.close(theirs)
    assert program_of(pod.pid) is None


def test_ctrl_c_shows_the_state_of_the_worker(pod) -> None:
    held(pod)
    pod.send_signal(signal.SIGINT)
    _, text = pod.communicate(timeout=PATIENCE_S)
    assert "state when the run was interrupted:\nL4: 0 of 1 tasks ended" in text
    assert "on_host (pod.py:" in text
