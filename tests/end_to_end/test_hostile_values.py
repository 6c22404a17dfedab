"""Values of every kind in the place of every argument: accepted, or a clear error of pto."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import (
    CallConfig,
    ChipCallable,
    ContinuousTensor,
    CoreCallable,
    In,
    InOut,
    KernelSource,
    Scalar,
    TaskArgs,
    Worker,
    kernel,
    task,
)
from pto_core.cases import run_case
from pto_core.cases.golden import load_golden
from pto_core.cases.kernel_config import load_kernel_config
from pto_core.config import load
from pto_core.errors import ConfigError, PtoError, UsageError
from pto_core.worker.hosts import Hosts

TRIALS = 1500
VECTOR = Path(__file__).parents[2] / "examples" / "01_vector"
CHIP = {"runtime": "tensormap_and_ringbuffer"}


PRELUDE = """
import fractions, functools, math
import numpy as np

class NoRepr:
    def __repr__(self):
        raise RuntimeError("no repr")

class NoTruth(NoRepr):
    __hash__ = None
    def __bool__(self):
        raise RuntimeError("no truth")
    def __eq__(self, other):
        raise RuntimeError("no comparison")
"""
VALUES = """
None; True; -1; 3; 2**31; 2**63; 2**64; 10**5000; math.inf; math.nan; 1e300; 1j
fractions.Fraction(10**400); ""; "x"; "\\udc80"; "a\\0b"; "~nosuchuser/x"; b"\\xff"
NoRepr(); NoTruth(); {"x": NoRepr()}; {3: 4}; iter(()); np.array([1, 2]); np.array(3)
np.float64("nan"); np.array([None]); functools.reduce(lambda a, _: [a], range(2000), [])
"""
NESTED = functools.reduce(lambda inner, _: [inner], range(2000), [])
ATOMS = [atom for line in VALUES.strip().splitlines() for atom in line.split("; ")]


def expression(chance: random.Random) -> str:
    """Return the source of a value, sometimes in a list, tuple or dict."""
    pattern = chance.choice(["{}", "{}", "{}", "{}", "[{}]", "({}, 1)", "{{'x': {}}}"])
    return pattern.format(chance.choice(ATOMS))


def value_of(source: str) -> Any:
    names: dict[str, Any] = {}
    exec(PRELUDE, names)
    return eval(source, names)


@task
def change(x: InOut, n: Scalar) -> None: ...


@kernel(core="aiv")
def nothing(x: InOut) -> None: ...


def graph(rt: Any, x: InOut) -> None:
    rt.submit(nothing, x)


class World:
    """The objects whose methods receive the values."""

    def __init__(self) -> None:
        self.device = pto_core.open_device("a2a3sim", **CHIP)
        self.worker = Worker(level=3, num_sub_workers=1).init()
        self.handle = self.worker.register(change)
        self.array = self.worker.shared_array((4,))
        self.args = TaskArgs()
        self.args.add_tensor(self.array)
        self.args.add_scalar(1)

    def close(self) -> None:
        self.worker.close()
        self.device.close()

    def submit(self, **options: Any) -> None:
        self.worker.run(lambda orch, *_: orch.submit_sub(self.handle, self.args, **options))

    def session(self, *values: Any, **options: Any) -> None:
        with self.worker.session() as session:
            session.submit(*values, **options)

    def group(self, members: Any) -> None:
        with self.worker.session() as session:
            session.submit_group(change, members)

    def on_device(self, add: Callable[[Any, Any], object]) -> None:
        self.device.run(lambda rt, x: add(rt, x), np.zeros(4))


def points(world: World) -> dict[str, Callable[[Any], object]]:
    """Return the entry points by name; each receives one value in the place of an argument."""
    w = world.worker
    return points_of_level_2(world) | {
        "Worker.level": lambda v: Worker(v),
        "Worker.platform": lambda v: Worker(3, v),
        "Worker.runtime": lambda v: Worker(3, "a2a3sim", v, [0]),
        "Worker.device_ids": lambda v: Worker(3, "a2a3sim", **CHIP, device_ids=v),
        "Worker.num_sub_workers": lambda v: Worker(3, num_sub_workers=v),
        "Worker.heap_ring_size": lambda v: Worker(3, heap_ring_size=v),
        "Worker.child_mode": lambda v: Worker(3, child_mode=v),
        "Worker.policy": lambda v: Worker(3, policy=v),
        "Worker.config": lambda v: Worker(3, config=v),
        "Worker.host": lambda v: Worker(3, host=v),
        "Worker.keys": lambda v: Worker(3, host="tcp://h:1", keys=v),
        "Worker.ship": lambda v: Worker(3, host="tcp://h:1", ship=v),
        "Worker.hosts": lambda v: Worker(3, hosts=v),
        "Worker.task_timeout_s": lambda v: Worker(3, task_timeout_s=v),
        "Worker.start_method": lambda v: Worker(3, start_method=v),
        "Hosts.launcher": lambda v: Hosts.on(v),
        "Hosts.num": lambda v: Hosts.on("local", num=v),
        "Hosts.resources": lambda v: Hosts.on("local", num=1, resources=v),
        "register": lambda v: w.register(v),
        "register.workers": lambda v: w.register(change, workers=v),
        "unregister": lambda v: w.unregister(v),
        "add_worker": lambda v: w.add_worker(v),
        "remove_worker": lambda v: w.remove_worker(v),
        "add_remote_worker": lambda v: w.add_remote_worker(v),
        "shared_array.shape": lambda v: w.shared_array((0, v)),
        "shared_array": lambda v: w.shared_array(v),
        "shared_array.dtype": lambda v: w.shared_array((2,), v),
        "run": lambda v: w.run(v),
        "run.args": lambda v: w.run(lambda *_: None, v),
        "run.config": lambda v: w.run(lambda *_: None, None, v),
        "run.hazards": lambda v: w.run(lambda *_: None, hazards=v),
        "capture": lambda v: w.capture(v),
        "capture.args": lambda v: w.capture(lambda *_: None, v),
        "capture.config": lambda v: w.capture(lambda *_: None, None, v),
        "capture.hazards": lambda v: w.capture(lambda *_: None, hazards=v),
        "graph": lambda v: w.graph(v),
        "replay": lambda v: w.replay(v),
        "replay.args": lambda v: w.replay(w.capture(lambda *_: None), v),
        "session.config": lambda v: w.session(v).__enter__().__exit__(None, None, None),
        "session.hazards": lambda v: w.session(hazards=v),
        "session.progress": lambda v: w.session(progress=v),
        "trace": lambda v: w.trace(v).__enter__(),
        "malloc": lambda v: w.malloc(v),
        "remote_malloc": lambda v: w.remote_malloc(v, 0),
        "submit_sub.worker": lambda v: world.submit(worker=v),
        "submit_sub.after": lambda v: world.submit(after=v),
        "submit_sub.retries": lambda v: world.submit(retries=v),
        "submit_sub.timeout_s": lambda v: world.submit(timeout_s=v),
        "submit_sub.hint": lambda v: world.submit(hint=v),
        "submit": lambda v: world.session(v),
        "submit.array": lambda v: world.session(change, v, 1),
        "submit.scalar": lambda v: world.session(change, world.array, v),
        "submit_group": lambda v: world.group(v),
        "submit_group.member": lambda v: world.group([v]),
        "submit.worker": lambda v: world.session(change, world.array, 1, worker=v),
    }


def points_of_level_2(world: World) -> dict[str, Callable[[Any], object]]:
    d = world.device
    return {
        "TaskArgs.add_tensor": lambda v: TaskArgs().add_tensor(v),
        "TaskArgs.tag": lambda v: TaskArgs().add_tensor(world.array, v),
        "TaskArgs.add_scalar": lambda v: TaskArgs().add_scalar(v),
        "TaskArgs.add_dep": lambda v: TaskArgs().add_dep(v),
        "from_array": lambda v: ContinuousTensor.from_array(v),
        "from_pointer": lambda v: ContinuousTensor.from_pointer(v, (2,), "float32"),
        "from_pointer.shape": lambda v: ContinuousTensor.from_pointer(64, v, "float32"),
        "from_pointer.dtype": lambda v: ContinuousTensor.from_pointer(64, (2,), v),
        "task": lambda v: task(v),
        "task.retries": lambda v: task(retries=v),
        "kernel.core": lambda v: kernel(core=v),
        "CoreCallable": lambda v: CoreCallable(v, "aiv"),
        "CoreCallable.signature": lambda v: CoreCallable(len, "aiv", signature=v),
        "CoreCallable.name": lambda v: repr(CoreCallable(len, "aiv", name=v)),
        "In": lambda v: In(v, 3),
        "In.shape": lambda v: In("float32", v),
        "Scalar": lambda v: Scalar(v),
        "KernelSource": lambda v: KernelSource(v),
        "KernelSource.options": lambda v: KernelSource("x.cpp", options=v),
        "ChipCallable": lambda v: ChipCallable(v),
        "ChipCallable.children": lambda v: ChipCallable(graph, v),
        "ChipCallable.signature": lambda v: ChipCallable(graph, signature=v),
        "ChipCallable.argument_names": lambda v: ChipCallable(graph, argument_names=v),
        "CallConfig.block_dim": lambda v: CallConfig(block_dim=v),
        "CallConfig.output_prefix": lambda v: CallConfig(output_prefix=v),
        "open_device": lambda v: pto_core.open_device(v),
        "open_device.settings": lambda v: pto_core.open_device("a2a3sim", settings=v),
        "open_device.device": lambda v: pto_core.open_device("a2a3sim", settings={"device": v}),
        "device.run": lambda v: d.run(v),
        "device.run.array": lambda v: d.run(graph, v),
        "device.run.config": lambda v: d.run(graph, np.zeros(4), config=v),
        "device.run.timeout_s": lambda v: d.run(graph, np.zeros(4), timeout_s=v),
        "device.run.hazards": lambda v: d.run(graph, np.zeros(4), hazards=v),
        "device.run.trace": lambda v: d.run(graph, np.zeros(4), trace=v),
        "device.run.accesses": lambda v: d.run(graph, np.zeros(4), accesses=v),
        "device.run.stream": lambda v: d.run(graph, np.zeros(4), stream=v),
        "rt.submit": lambda v: world.on_device(lambda rt, x: rt.submit(v, x)),
        "rt.submit.array": lambda v: world.on_device(lambda rt, _: rt.submit(nothing, v)),
        "config.load": lambda v: load(v),
        "config.load.key": lambda v: load({"flight_recorder": v}),
        "run_case": lambda v: run_case(v),
        "run_case.case": lambda v: run_case(VECTOR, [v]),
        "run_case.repeat": lambda v: run_case(VECTOR, repeat=(v,)),
        "run_case.settings": lambda v: run_case(VECTOR, settings={"device": [[v]]}),
        "run_case.timeout_s": lambda v: run_case(VECTOR, timeout_s=[v]),
    }


CASE = """
def generate_inputs(params):
    return INPUTS
def compute_golden(tensors, params):
    tensors["x"][:] = 1
INPUTS = [("x", np.zeros(2)), ("n", 3)]
"""
CONFIG = """
ORCHESTRATION = {"source": "x.cpp", "function_name": "f"}
KERNELS = [{"func_id": 0, "source": "x.cpp", "core_type": "aiv"}]
"""
GOLDEN_NAMES = [
    "RTOL",
    "ATOL",
    "ALL_CASES",
    "DEFAULT_CASE",
    "TENSOR_ORDER",
    "__outputs__",
    "INPUTS",
]
GOLDEN_NAMES += ["INPUTS[0]", "INPUTS[1]", "generate_inputs", "compute_golden"]
CONFIG_NAMES = ["KERNELS", "ORCHESTRATION", "RUNTIME_CONFIG", "RUNTIME_ENV", "KERNELS[0]"]
CONFIG_NAMES += [f"KERNELS[0][{key!r}]" for key in ("func_id", "source", "core_type", "signature")]
CONFIG_NAMES += [f"ORCHESTRATION[{key!r}]" for key in ("source", "function_name", "signature")]


def golden(file: Path) -> None:
    loaded = load_golden(file)
    inputs = loaded.generate(loaded.default_case)
    tensors = {tensor.name: tensor.array for tensor in inputs.tensors}
    loaded.compute(inputs, tensors, loaded.default_case)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(2**32)
    print("seed", seed)
    return random.Random(seed)


def unclear(use: Callable[[Any], object], value: Any) -> str:
    """Return the text of an exception that is no error of pto, or nothing."""
    try:
        use(value)
    except PtoError:
        return ""
    except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt and SystemExit too
        return f"{type(error).__name__}: {str(error)[:100]}"
    return ""


IN_FILES = [
    ('ATOL = float("inf")', "ATOL is inf"),
    ("RTOL = NoRepr()", "RTOL is <NoRepr instance"),
    ("DEFAULT_CASE = []", r"DEFAULT_CASE is \[\]"),
    ("ALL_CASES = {NoRepr(): 1}", r"ALL_CASES\[<NoRepr instance"),
    ("KERNELS[0]['signature'] = True", "signature is True; pass a list"),
    ("KERNELS[0]['core_type'] = []", r"core_type'. is \[\]"),
    ("RUNTIME_ENV = {'A': 'a\\0b'}", "RUNTIME_ENV.'A'. is 'a.x00b'"),
]


@pytest.mark.parametrize(("line", "message"), IN_FILES)
def test_a_wrong_value_in_a_file_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "x.cpp").touch()
    is_config = "KERNELS" in line or "RUNTIME" in line
    (tmp_path / "f.py").write_text(f"{PRELUDE}{CONFIG if is_config else CASE}{line}\n")
    with pytest.raises(UsageError, match=message):
        (load_kernel_config if is_config else golden)(tmp_path / "f.py")


IN_CALLS = [
    ("config.load.key", "~nosuchuser/x", "there is no home folder of ~nosuchuser"),
    ("shared_array.shape", 2**63, "9223372036854775808"),
    ("submit_sub.worker", 2**64, "worker is 18446744073709551616"),
    ("submit_sub.hint", np.array([1, 2]), r"hint is array\(\[1, 2\]\)"),
    ("run.args", [1, 2], r"args\[0\] is 1, which is no array; pass a tuple of arrays"),
    ("replay.args", 3, r"args is 3; pass a tuple of arrays of the Worker .* args=\(x,\)"),
    ("run.hazards", NESTED, r"hazards is \[\[\[\[\[...\]\]\]\]\]"),
    ("Hosts.resources", {"CPU": 10**400}, "an integer of 1329 bits"),
    ("open_device.settings", {"device": NESTED}, r"device = \[\[\[\[\[...\]\]\]\]\]"),
]


@pytest.mark.parametrize(("name", "value", "message"), IN_CALLS)
def test_a_wrong_argument_is_named(world: World, name: str, value: Any, message: str) -> None:
    with pytest.raises((UsageError, ConfigError), match=message):
        points(world)[name](value)


def test_random_values_at_every_entry_point(world: World, chance: random.Random) -> None:
    places = points(world)
    bad = {}
    for _ in range(TRIALS):
        name, source = chance.choice(list(places)), expression(chance)
        value = value_of(source)
        if what := unclear(places[name], value):
            bad[name, source] = what
    assert not bad, "\n".join(f"{place}: {what}" for place, what in sorted(bad.items()))


def test_random_values_in_the_files_of_a_case(tmp_path: Path, chance: random.Random) -> None:
    (tmp_path / "x.cpp").touch()
    bad = {}
    for number in range(TRIALS // 4):
        file, source = tmp_path / f"f{number}.py", expression(chance)
        text, names, load_file = chance.choice(
            [(CASE, GOLDEN_NAMES, golden), (CONFIG, CONFIG_NAMES, load_kernel_config)]
        )
        name = chance.choice(names)
        file.write_text(f"{PRELUDE}{text}{name} = {source}\n")
        if what := unclear(load_file, file):
            bad[name, source] = what
    assert not bad, "\n".join(f"{place}: {what}" for place, what in sorted(bad.items()))
