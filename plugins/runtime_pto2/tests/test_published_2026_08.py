"""Test the interface of August 2026: each group of its calls, and its errors, on the simulator."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pto_core import log, open_device
from pto_core.chip import ChipCallable, CoreCallable, Device, KernelSource, OrchestrationSource
from pto_core.errors import OrchestrationError, PtoError, UsageError

SOURCES = Path(__file__).parent / "published_2026_08"
KERNELS = {"SCALE": "aiv", "ADD": "aic", "BLOCKS": "aiv", "LANE": "aiv", "LANE_OF_CUBE": "aic"}
PROGRAMS = (
    *("allocated_outputs", "views", "permuted", "blocks", "explicit_dependencies", "data"),
    *("manual_tensor", "counts", "fatal", "outside", "scalar_first", "auto_in_manual"),
    *("unknown_dependency", "clusters", "predicates", "freed", "kept_operand"),
)
IN = np.arange(128, dtype=np.float32).reshape(8, 16) + 1


def chip(api: str | None = None, name: str = "programs", arrays: int = 2) -> ChipCallable:
    """Return the programs of a file with their kernels."""
    kernels = {
        func_id: CoreCallable(KernelSource(SOURCES / "kernel.cpp", [f"-D{name}"]), core)
        for func_id, (name, core) in enumerate(KERNELS.items())
    }
    source = OrchestrationSource(SOURCES / f"{name}.cpp", api=api)
    return ChipCallable(source, kernels, ("in", *["inout"] * (arrays - 1), "scalar"))


CHIP = chip()
GRAPHS = chip(name="graphs", arrays=3)


@pytest.fixture(scope="module", params=["threads", "deterministic"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    settings = {"sim.mode": request.param}
    with open_device("a2a3sim", runtime="pto2", block_dim=2, settings=settings) as opened:
        yield opened


def run(device: Device, program: str, **options: object) -> np.ndarray:
    """Run a program and return its output, which is -2 where the program writes nothing."""
    out = np.full_like(IN, -2)
    device.run(CHIP, IN, out, PROGRAMS.index(program), **options)
    return out


def swapped() -> np.ndarray:
    out = np.concatenate([IN[:, 8:], IN[:, :8]], axis=1)
    out[:, 0:8:2] *= -1
    return out


def numbered() -> np.ndarray:
    out = np.full(128, -2, np.float32)
    out[:100] = 10_000 + np.arange(100)
    out[112:] = 7
    return out.reshape(8, 16)


def lanes() -> np.ndarray:
    out = IN.copy().reshape(128)
    for block in range(30):
        out[3 * block : 3 * block + 3] = 10 * block + np.arange(3)
    return out.reshape(8, 16)


EXPECTED: dict[str, Callable[[], np.ndarray]] = {
    "allocated_outputs": lambda: 4 * IN + 5,
    "views": swapped,
    "permuted": lambda: IN.reshape(16, 8).T,
    "blocks": numbered,
    "explicit_dependencies": lambda: 2 * (3 * IN + 1),
    "data": lambda: IN * 2.5 + IN[0, 1],
    "clusters": lanes,
    "predicates": lambda: 2 * IN + 1.5,
    "manual_tensor": lambda: 4 * IN,
    "counts": lambda: np.full_like(IN, 204),
}


@pytest.mark.parametrize("program", EXPECTED)
def test_a_program_gives_the_right_result(device: Device, program: str) -> None:
    for hazards in ("raw", "full"):
        np.testing.assert_array_equal(run(device, program, hazards=hazards), EXPECTED[program]())


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("fatal", r"value 42 \(code 9\)"),
        ("outside", r"programs\.cpp:\d+: a view exceeds its tensor: dimension 1 .* \[9, 17\)"),
        ("scalar_first", r"a tensor was added after a scalar"),
        ("auto_in_manual", r"AUTO scope is opened inside a MANUAL scope"),
        ("freed", r"programs\.cpp:\d+: .* whose buffer has been freed: task 0 of ring 1 allocated"),
        ("unknown_dependency", r"has dependency 0, which names no task"),
    ],
)
def test_a_mistake_ends_the_run(device: Device, program: str, text: str) -> None:
    with pytest.raises(PtoError, match=text):
        run(device, program)


def test_an_error_has_the_published_code(device: Device) -> None:
    with pytest.raises(OrchestrationError) as caught:
        run(device, "fatal")
    assert caught.value.code == -9


# Each program of mistakes.cpp, in its order: its code and a part of its message.
MISTAKES = {
    "tensors_33": (5, r"mistakes\.cpp:\d+: more than 32 tensors"),
    "scalars_17": (5, r"mistakes\.cpp:\d+: more than 16 scalars"),
    "dependencies_3_of_2": (5, r"mistakes\.cpp:\d+: more dependencies than the N"),
    "dependencies_twice": (5, r"mistakes\.cpp:\d+: set_dependencies\(\) was called twice"),
    "dependency_of_ring_5": (5, r"mistakes\.cpp:\d+: .* has dependency 0, which names no task"),
    "expired_results": (5, r"mistakes\.cpp:\d+: get_ref\(0\) of a task .* scope has ended"),
    "expired_tensor": (5, r"mistakes\.cpp:\d+: .* allocated in a scope that has ended"),
    "result_1_of_1": (5, r"mistakes\.cpp:\d+: get_ref\(1\) of a task with 1 outputs"),
    "scope_left_open": (5, r"mistakes\.cpp:\d+: the orchestration returned in this scope"),
    "scope_ended_twice": (5, r"mistakes\.cpp:\d+: a scope is ended but none is open"),
    "scopes_64": (5, r"mistakes\.cpp:\d+: more than 64 scopes are open"),
    "auto_in_manual": (5, r"mistakes\.cpp:\d+: an AUTO scope is opened inside a MANUAL scope"),
    "unknown_kernel": (5, r"mistakes\.cpp:\d+: no kernel is registered for function id 77"),
    "no_kernels": (5, r"mistakes\.cpp:\d+: MixedKernels names no kernel"),
    "no_blocks": (5, r"mistakes\.cpp:\d+: set_block_num\(\) needs 1 or more blocks"),
    "blocks_1000": (3, r"mistakes\.cpp:\d+: a block task of 1000 blocks can never fit"),
    "predicate_of_float": (5, r"mistakes\.cpp:\d+: the operand of a predicate"),
    "element_outside": (5, r"mistakes\.cpp:\d+: an access with 2 indices"),
    "full_window": (1, r"the task ring of ring 0 .* at mistakes\.cpp:\d+.* PTO2_RING_TASK_WINDOW="),
    "full_window_of_outer_scope": (3, r"the task ring of ring 3 .* is full"),
    "full_heap": (2, r"the heap ring of ring 0 .* at mistakes\.cpp:\d+.* PTO2_RING_HEAP="),
    "too_large_output": (2, r"mistakes\.cpp:\d+: the outputs of .* can never fit into the heap"),
    "dependencies_20": (4, r"mistakes\.cpp:\d+: .* depends on 20 live tasks"),
    "full_tensor_map": (11, r"the tensor map's pool has no free space: .* at mistakes\.cpp:\d+"),
    "throws": (0, r"the orchestration threw an exception: no more"),
    "expired_operand": (5, r"mistakes\.cpp:\d+: the operand of the predicate .* scope has ended"),
    "graph_leaves_a_scope_open": (5, r"mistakes\.cpp:HERE: the body of a graph returned in this"),
    "graph_ends_a_scope_twice": (5, r"mistakes\.cpp:HERE: the body of a graph ends a scope that"),
    "graph_creates_a_tensor": (5, r"mistakes\.cpp:HERE: a TensorCreateInfo was added to a graph"),
}
SMALL = {
    "pto2.task_window": 32,
    "pto2.heap": "64K",
    "pto2.dep_pool": 16,
    "pto2.tensor_map_pool": 16,
}


@pytest.fixture(scope="module")
def small() -> Iterator[Device]:
    with open_device("a2a3sim", runtime="pto2", block_dim=2, settings=SMALL) as opened:
        yield opened


def mistakes(*signature: str) -> ChipCallable:
    kernels = {0: CoreCallable(KernelSource(SOURCES / "kernel.cpp", ["-DSCALE"]), "aiv")}
    return ChipCallable(OrchestrationSource(SOURCES / "mistakes.cpp"), kernels, signature)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_has_its_published_code_and_the_line(small: Device, mistake: str) -> None:
    made = mistakes("in", "inout", "scalar")
    code, text = MISTAKES[mistake]
    before = (SOURCES / "mistakes.cpp").read_text().partition(f"void {mistake}(")
    line = before[0].count("\n") + before[2].partition("// HERE")[0].count("\n") + 1
    with pytest.raises(PtoError, match=text.replace("HERE", str(line))) as caught:
        small.run(made, IN, IN.copy(), list(MISTAKES).index(mistake))
    copied = pickle.loads(pickle.dumps(caught.value))
    assert copied.code == -code


def test_a_wrong_number_of_arguments_has_its_published_code(small: Device) -> None:
    made = mistakes("in", "inout", "inout", "scalar", "scalar")
    with pytest.raises(UsageError, match=r"expects 4 arguments .* but was given 5") as caught:
        small.run(made, IN, IN.copy(), IN.copy(), 0, 0)
    assert caught.value.code == -5


def test_a_kernel_reads_the_fields_of_a_tensor_and_the_log_has_what_is_dumped(
    capfd: pytest.CaptureFixture[str],
) -> None:
    kernels = {0: CoreCallable(KernelSource(SOURCES / "layout.cpp"), "aiv")}
    made = ChipCallable(OrchestrationSource(SOURCES / "rest.cpp"), kernels, ("in", "inout"))
    out = np.full(32, -2, np.int64)
    with open_device("a2a3sim", runtime="pto2", settings={"log_level": "debug"}) as opened:
        opened.run(made, IN, out)
    log.configure({"log_level": "warn", "log_format": "text"})
    fields = [4 * (3 * 32 + 2 * 2 + 1), -1, 0, -5, 2, 0, 0, 0, 0, 101, 48]
    assert out.tolist()[:17] == [*fields, 32, 2, 40, 2**32 - 1, 42, 41]
    shown = capfd.readouterr().err
    for level in ("0", "1", "timing", "3"):
        assert f"log_lines: level {level}\n" in shown
    assert "dump: argument 0 of task 0 of ring 1: ChipTensor{" in shown
    assert "shapes=[4, 3], strides=[32, 2], start_offset=0" in shown
    assert "dump: argument 1 of task 0 of ring 1: ChipTensor{" in shown


def test_the_interface_can_be_stated(device: Device) -> None:
    with pytest.raises(UsageError, match=r"no interface '2026-05'.*it has 2026-03, 2026-08"):
        device.run(chip("2026-05"), IN, IN.copy(), 0)


def outputs_of_graph(
    device: Device, body: int, seed: int, *, as_graph: bool, hazards: str = "full"
) -> tuple[np.ndarray, int, int]:
    """Return the output of 12 calls of a body, how often it was called, and the look-ups."""
    out, calls = IN - 3, IN.copy()
    chosen = seed << 4 | body << 1 | as_graph
    report = device.run(GRAPHS, IN, out, calls, chosen, hazards=hazards)
    return out, int(calls[0, 0]), report.statistics["lookups"]


def test_random_graphs_equal_their_inline_form(device: Device) -> None:
    first = int(os.environ.get("PTO_GRAPH_SEED", "1"))
    total = 0
    saved = {"full": 0, "raw": 0}  # look-ups
    for seed in range(first, first + 25):
        for hazards in saved:  # with "raw", a record uses the edges that it knows
            options = {"seed": seed, "hazards": hazards}
            inline, calls, all_lookups = outputs_of_graph(device, 0, as_graph=False, **options)
            assert calls == 12
            graph, calls, lookups = outputs_of_graph(device, 0, as_graph=True, **options)
            np.testing.assert_array_equal(graph, inline, f"PTO_GRAPH_SEED={seed}, {hazards}")
            total += calls
            saved[hazards] += all_lookups - lookups
    assert 2 * 50 <= total < 0.7 * 12 * 50  # the others were expanded from a record
    assert saved["full"] == 0
    # The other mode looks up all edges, because it records their order.
    assert (saved["raw"] > 0) == (device.config["sim.mode"] == "threads")


def test_bodies_without_a_key_have_records_of_their_own(device: Device) -> None:
    inline, calls, _ = outputs_of_graph(device, 7, 7, as_graph=False)
    assert calls == 12
    graph, calls, _ = outputs_of_graph(device, 7, 7, as_graph=True)
    assert calls < 12
    np.testing.assert_array_equal(graph, inline)


BODIES = {"data": 1, "outside": 2, "counts": 3, "pointer": 4, "place": 5, "struct": 6}


@pytest.mark.parametrize("mode", ["threads", "deterministic"])
def test_the_operand_of_a_predicate_stays_in_memory_until_it_is_read(mode: str) -> None:
    settings = {"sim.mode": mode, "pto2.heap": "64K"}
    with open_device("a2a3sim", runtime="pto2", block_dim=2, settings=settings) as device:
        np.testing.assert_array_equal(run(device, "kept_operand"), IN * 2**10)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_that_cannot_be_repeated_is_called_each_time(device: Device, body: int) -> None:
    inline, _, _ = outputs_of_graph(device, body, 7, as_graph=False)
    graph, calls, _ = outputs_of_graph(device, body, 7, as_graph=True)
    assert calls == 12
    np.testing.assert_array_equal(graph, inline)
