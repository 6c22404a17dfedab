"""Damaged traces, access logs, flight recorders, keys and lists of clients are clear errors."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core.errors import PtoError, UsageError
from pto_insight.graphs import AccessLog, TaskGraph
from pto_insight.traces import Trace
from pto_insight.traces.files import read_trace, write_trace
from pto_insight.traces.worker_trace import WorkerTrace, read_any_trace
from pto_transport_zmq.link.interface import KeyPair
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.keys import key_pair, write_client_keys
from pto_transport_zmq.remote.rights import read_rights

MUTATIONS = 60
TRACES = ["dev.trace.npz", "work.trace.npz", "last.device0.flight", "last.L3.flight"]

PROGRAM = """
import os, signal, sys
from pathlib import Path
import numpy as np
from pto_core import InOut, Out, Worker, kernel, open_device, task
from pto_insight.traces.files import write_trace

@kernel(core="aiv")
def add(x: InOut):
    x += 1

@kernel(core="aiv")
def dies(x: InOut):
    os.kill(os.getpid(), signal.SIGKILL)

def graph(rt, x: InOut):
    for _ in range(6):
        rt.submit(add, x)

def dying(rt, x: InOut):
    rt.submit(add, x)
    rt.submit(dies, x)

@task
def works(row: Out):
    row[:] = 1

if sys.argv[1] == "device":
    with open_device("a2a3sim", runtime="tensormap_and_ringbuffer") as device:
        report = device.run(graph, np.zeros(4), trace=1, accesses=True)
        write_trace(report.trace, Path("dev"))
        report.accesses.save("log.npz")
        device.run(dying, np.zeros(4))
else:
    with Worker(level=3, num_sub_workers=1) as worker:
        rows = worker.shared_array((9, 1))
        with worker.trace() as trace, worker.session() as s:
            for row in rows:
                s.submit(works, row)
        trace.write("work")
        with worker.session() as s:
            s.submit(works, rows[0]).result()
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one intact file of each kind."""
    folder = tmp_path_factory.mktemp("samples")
    environment = os.environ | {"PTO_FLIGHT_RECORDER": "last", "PTO_TRACE_RING_RECORDS": "16"}
    for what in ("device", "worker"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, what], cwd=folder, env=environment, check=False
        )
        assert done.returncode == -signal.SIGKILL
    link = load_links("zmq")
    write_client_keys(folder / "keys", "zmq", link.key_pair(), link.key_pair().public)
    (folder / "clients.toml").write_text(
        '[[client]]\nname = "ann"\nkey = "k"\nmemory = "2G"\nimports = ["a.b"]\nadmin = true\n'
    )
    return folder


def mutated(chance: random.Random, content: bytes) -> bytes:
    """Return the content with flipped bits, overwritten or exchanged blocks, or without its end."""
    changed = bytearray(content)
    at, other = chance.randrange(len(changed)), chance.randrange(len(changed))
    size = chance.choice([1, 8, 64, 512])
    match chance.choice(["bit", "head", "bits", "cut", "fill", "exchange"]):
        case "bit":
            changed[at] ^= 1 << chance.randrange(8)
        case "head":
            changed[at % 256] ^= 1 << chance.randrange(8)
        case "bits":
            for _ in range(20):
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        case "cut":
            del changed[at:]
        case "fill":
            changed[at : at + size] = chance.choice([b"\0", b"\xff"]) * size
        case "exchange":
            block = changed[at : at + size]
            changed[at : at + size] = changed[other : other + size]
            changed[other : other + size] = block
    return bytes(changed)


def use_trace(file: Path) -> None:
    trace = read_any_trace(file)
    trace.table()
    prefix = file.with_name("again")
    if isinstance(trace, WorkerTrace):
        trace.write(prefix)
    else:
        write_trace(trace, prefix)


def use_log(file: Path) -> None:
    TaskGraph(AccessLog.load(file)).to_json()


def survived(use: Callable[[Path], None], file: Path, content: bytes) -> bool:
    """Return whether a damaged file was used; fail for any exception that users should not see."""
    file.write_bytes(content)
    try:
        use(file)
    except PtoError:
        return False
    return True


@pytest.mark.parametrize("name", [*TRACES, "log.npz"])
def test_mutations_of_traces_and_logs(samples: Path, tmp_path: Path, name: str) -> None:
    use = use_log if name == "log.npz" else use_trace
    intact = (samples / name).read_bytes()
    assert survived(use, tmp_path / name, intact)
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    used = [survived(use, tmp_path / name, mutated(chance, intact)) for _ in range(MUTATIONS)]
    assert not all(used)


def test_mutations_of_keys_and_lists_of_clients(samples: Path, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    (tmp_path / "client.public").write_bytes((samples / "keys" / "client.public").read_bytes())
    uses = {"keys/client.secret": read_pair, "clients.toml": read_rights}
    for name, use in uses.items():
        intact = (samples / name).read_bytes()
        for _ in range(MUTATIONS):
            survived(use, tmp_path / Path(name).name, mutated(chance, intact))


def read_pair(file: Path) -> KeyPair:
    file.chmod(0o600)
    return key_pair(file.parent, "client", "zmq")


OTHER_VALUES: list[Any] = [None, True, -1, 2**70, 1.5, "x", [], {}, [[]], {"x": 1}]


def changed_members(content: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield copies of a description in which one member has another type, or is missing."""
    for name in content:
        for value in OTHER_VALUES:
            yield {**content, name: value}
        yield {key: value for key, value in content.items() if key != name}
        if isinstance(content[name], dict):
            for inner in changed_members(content[name]):
                yield {**content, name: inner}


@pytest.mark.parametrize("name", ["dev.trace.npz", "work.trace.npz", "log.npz"])
def test_other_types(samples: Path, tmp_path: Path, name: str) -> None:
    use = use_log if name == "log.npz" else use_trace
    with np.load(samples / name) as members:
        arrays = {member: members[member] for member in members.files}
    description = json.loads(arrays["description"].tobytes())
    for other in changed_members(description):
        if json.dumps(other) != json.dumps(description):
            text = np.frombuffer(json.dumps(other).encode(), "u1")
            refuse(use, tmp_path / name, {**arrays, "description": text})
    for member in arrays:
        others = [np.zeros(3), np.zeros((2, 2), "i8"), np.array(1), arrays[member].view("u1")[1:]]
        for array in others:
            refuse(use, tmp_path / name, {**arrays, member: array})
        refuse(use, tmp_path / name, {key: arrays[key] for key in arrays if key != member})


def refuse(use: Callable[[Path], None], file: Path, arrays: dict[str, Any]) -> None:
    np.savez(file, **arrays)
    with pytest.raises(UsageError, match="or it is damaged"):
        use(file)


def test_paths_are_texts_too(samples: Path) -> None:
    assert isinstance(read_trace(str(samples / "dev.trace.npz")), Trace)
    assert isinstance(read_any_trace(str(samples / "work.trace.npz")), WorkerTrace)
    assert isinstance(AccessLog.load(str(samples / "log.npz")), AccessLog)
    with pytest.raises(UsageError, match="kind 'trace of a Worker "):
        read_trace(str(samples / "work.trace.npz"))
    with pytest.raises(FileNotFoundError):
        read_trace(str(samples / "missing.npz"))
