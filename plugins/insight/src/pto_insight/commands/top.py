"""Show what the running programs of this user are doing: Workers, children and simulated devices.

On a terminal the screen refreshes in place until Ctrl-C. Without a terminal, and with --json, the
state is printed once. PID: only the program that has this process. The programs do nothing for
this command but write their state to shared memory about every 50 ms while they work.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pto_core.cases.activity import (
    ask_device,
    device_lines,
    device_record,
    kernel_text,
    with_new_text,
)
from pto_core.errors import UsageError
from pto_core.worker.live_state import task_text, worker_lines, worker_record

VERSION = 1
_FILE = "/memfd:pto-"
_FIRST_LOOK_S = 0.25  # long enough for rates, and for the answers of devices
_BLOCK = 512  # the unit of st_blocks
_MIB = 1 << 20

Record = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto top``."""
    parser.add_argument("pid", nargs="?", type=int, metavar="PID", help="a process of a program")
    parser.add_argument("--json", action="store_true", help="print one JSON object and end")
    parser.add_argument(
        "--interval", type=_interval, default=1.0, metavar="S", help="seconds between two screens"
    )


def _interval(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0.1 or more")
    return seconds


def run(namespace: argparse.Namespace) -> int:
    """Show the programs. Raises UsageError for a PID that cannot be shown."""
    before = _Look()
    time.sleep(_FIRST_LOOK_S)
    look = _Look()
    programs = look.programs(before, namespace.pid)
    if namespace.json:
        print(json.dumps({"version": VERSION, "programs": programs}, indent=2))
    elif not sys.stdout.isatty():
        print("\n".join(_lines(programs)))
    else:
        _refresh(look, programs, namespace)
    return 0


def _refresh(look: _Look, programs: list[Record], namespace: argparse.Namespace) -> None:
    """Show the screen again and again in the terminal's second screen, until Ctrl-C."""
    out = sys.stdout
    out.write("\x1b[?1049h\x1b[?25l")
    try:
        while True:
            out.write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in _screen(programs)))
            out.write("\x1b[J")
            out.flush()
            time.sleep(namespace.interval)
            before, look = look, _Look()
            programs = look.programs(before, None)
            if namespace.pid is not None:
                programs = [one for one in programs if namespace.pid in one["pids"]]
    except KeyboardInterrupt:
        pass
    finally:
        out.write("\x1b[?25h\x1b[?1049l")
        out.flush()


def _screen(programs: list[Record]) -> list[str]:
    """Return the lines, cut to the size of the terminal."""
    columns, rows = shutil.get_terminal_size()
    lines = [
        line if len(line) <= columns else line[: columns - 1] + "…" for line in _lines(programs)
    ]
    if len(lines) < rows:
        return lines
    return [*lines[: rows - 2], f"... {len(lines) - rows + 2} more lines"]


class _Look:
    """One look at all programs: the state of each Worker and device, and the processes."""

    def __init__(self) -> None:
        self.time_ns = time.monotonic_ns()
        self.workers: dict[tuple[int, str], Record] = {}  # by process and path
        self.devices: dict[tuple[int, int], Record] = {}  # by process and inode
        self.refused: dict[int, str] = {}  # the reason for each process that cannot be shown
        self._shared: dict[int, tuple[int, set[int]]] = {}  # by inode: bytes, and its processes
        for pid, descriptor in self._files():
            with suppress(OSError):
                self._read(pid, descriptor)
        self._parents = {
            child["pid"]: worker["process"]
            for worker in self.workers.values()
            for child in worker["children"]
            if child["pid"]
        }

    def _files(self) -> Iterator[tuple[int, int]]:
        """Yield each unnamed file of pto of each process of this user, as an open descriptor."""
        namespace = os.stat("/proc/self/ns/pid").st_ino
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal() or int(folder.name) == os.getpid():
                continue
            pid = int(folder.name)
            with suppress(OSError):  # the process has ended, or does not let us look
                if folder.stat().st_uid != os.geteuid():
                    self.refused[pid] = "it belongs to another user"
                elif (folder / "ns/pid").stat().st_ino != namespace:
                    self.refused[pid] = "it is in another PID namespace; look from inside of that"
                else:
                    yield from self._files_of(pid, folder)

    def _files_of(self, pid: int, folder: Path) -> Iterator[tuple[int, int]]:
        for link in (folder / "fd").iterdir():
            with suppress(OSError):
                if not os.readlink(link).startswith(_FILE):
                    continue
                descriptor = os.open(link, os.O_RDWR)
                try:
                    yield pid, descriptor
                finally:
                    os.close(descriptor)

    def _read(self, pid: int, descriptor: int) -> None:
        state = os.fstat(descriptor)
        if state.st_uid != os.geteuid():
            return
        _, holders = self._shared.setdefault(state.st_ino, (state.st_blocks * _BLOCK, set()))
        holders.add(pid)
        record = worker_record(descriptor)
        is_worker = record is not None
        if record is None:
            record = device_record(descriptor)
        if record is None or record["process"] != pid:
            return  # other memory, or the process has inherited the file from its parent
        if len(record) == 2:
            self.refused[pid] = (
                f"its state has version {record['version']}, which this version of pto cannot read"
            )
        elif is_worker:
            self.workers[pid, record["path"]] = record
        else:
            ask_device(descriptor)
            self.devices[pid, state.st_ino] = record

    def _root(self, pid: int) -> int:
        """Return the first process of a program, from one of its processes."""
        parent = self._parents.get(pid)
        if parent is None:
            above = _number(pid, "PPid")
            own = [holders for _, holders in self._shared.values() if pid in holders]
            has_device = any(pid == owner for owner, _ in self.devices)
            if not has_device or not any(above in holders for holders in own):
                return pid
            parent = above  # `pto run` follows the device of its child
        return self._root(parent)

    def programs(self, before: _Look, pid: int | None) -> list[Record]:
        """Return the state of each program, with rates since the look before; raise UsageError."""
        owners = [process for process, _ in (*self.workers, *self.devices)]
        roots = {process: self._root(process) for process in (*owners, *self._parents)}
        members: dict[int, set[int]] = {}
        for process, root in roots.items():
            members.setdefault(root, {root}).add(process)
        found = [
            self._program(before, root, processes)
            for root, processes in sorted(members.items())
            if pid is None or pid in processes
        ]
        if pid is not None and not found:
            is_there = Path(f"/proc/{pid}").exists()
            why = self.refused.get(pid) or (
                "it has no Worker and no simulated device"
                if is_there
                else "there is no such process"
            )
            raise UsageError(f"process {pid} cannot be shown: {why}", name="pid", value=pid)
        return found

    def _program(self, before: _Look, root: int, pids: set[int]) -> Record:
        seconds = (self.time_ns - before.time_ns) / 1e9
        workers, devices = [], []
        for key, worker in self.workers.items():
            if key[0] in pids:
                earlier = before.workers.get(key)
                workers.append(_with_rates(worker, earlier, seconds))
        for place, device in self.devices.items():
            if place[0] in pids:
                earlier = before.devices.get(place)
                rate = _rate(device, earlier, "kernels_ended", seconds)
                devices.append({**with_new_text(device, earlier), "kernels_per_s": rate})
        shared = [nbytes for nbytes, holders in self._shared.values() if holders & pids]
        return {
            "pid": root,
            "command": _command(root),
            "age_s": _age_s(root),
            "pids": sorted(pids),
            "rss_bytes": sum(map(_own_bytes, pids)),
            "shared_bytes": sum(shared),
            "workers": sorted(workers, key=lambda one: one["path"]),
            "devices": devices,
            "oldest": _oldest(workers, devices),
        }


def _with_rates(worker: Record, before: Record | None, seconds: float) -> Record:
    earlier = {one["path"]: one for one in before["children"]} if before else {}
    children = [
        {
            **child,
            "tasks_per_s": _rate(child, earlier.get(child["path"]), "done", seconds),
            "rss_bytes": _number(child["pid"], "VmRSS") * 1024 if child["pid"] else None,
        }
        for child in worker["children"]
    ]
    rate = sum(child["tasks_per_s"] or 0 for child in children)
    return {**worker, "tasks_per_s": round(rate, 1), "children": children}


def _rate(now: Record, before: Record | None, key: str, seconds: float) -> float | None:
    return None if before is None else round(max(now[key] - before[key], 0) / seconds, 1)


def _oldest(workers: list[Record], devices: list[Record]) -> Record | None:
    """Return the task or kernel that has been running for the longest time."""
    found = [
        {**child["task"], "where": child["path"]}
        for worker in workers
        for child in worker["children"]
        if child["task"] is not None and child["task"]["callable"] is not None
    ]
    found += [
        {**kernel, "where": f"device {device['device']}"}
        for device in devices
        for kernel in device["running"]
        if kernel["age_s"] is not None
    ]
    return max(found, key=lambda one: one["age_s"], default=None)


def _number(pid: int, name: str) -> int:
    """Return a number of ``/proc/PID/status``; 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return int(value.split()[0])
    return 0


def _own_bytes(pid: int) -> int:
    """Return the memory of a process without shared memory."""
    return max(_number(pid, "VmRSS") - _number(pid, "RssShmem"), 0) * 1024


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    return " ".join(words).strip()


def _age_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return round(max(time.clock_gettime(time.CLOCK_BOOTTIME) - started_s, 0.0), 1)


def _lines(programs: list[Record]) -> list[str]:
    if not programs:
        return ["no program of this user has a Worker or a simulated device"]
    lines = []
    for program in programs:
        lines += [
            f"process {program['pid']}, {program['age_s']:,.0f} s: {program['command']}",
            f"  memory: {program['rss_bytes'] // _MIB:,} MiB in {len(program['pids'])} processes, "
            f"{program['shared_bytes'] / _MIB:,.1f} MiB shared",
        ]
        lines += [f"  {line}" for worker in program["workers"] for line in worker_lines(worker)]
        lines += [f"  {line}" for device in program["devices"] for line in device_lines(device)]
        if program["oldest"] is not None:
            oldest = program["oldest"]
            text = task_text(oldest) if "callable" in oldest else kernel_text(oldest)
            lines.append(f"  oldest: {text}, in {oldest['where']}")
    return lines
