"""rt.submit: directions, scalars, views, and the arguments that it refuses."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core import (
    CoreCallable,
    Device,
    In,
    InOut,
    KernelSource,
    NoDep,
    Out,
    OutExisting,
    Scalar,
    kernel,
)
from pto_core.device import Graph
from pto_core.errors import CapacityError, PtoError, UnsupportedError, UsageError

F32 = "float32"


@kernel(core="aiv")
def add(a: In, b: In, out: Out):
    np.add(a, b, out=out)


@kernel(core="aiv")
def scale(x: InOut, factor: Scalar(F32)):
    x *= factor


@kernel(core="aic")
def untyped(*args):
    pass


@kernel(core="aiv")
def fill(value: Scalar(int), *outs: Out):
    for out in outs:
        out[...] = value


def refused(device: Device, build: Callable[..., Any], kind: type[PtoError] = UsageError) -> str:
    """Return the message of the refusal; check that the device remains usable."""

    def graph(rt, a, f):
        build(rt, a, f)

    with pytest.raises(kind) as caught:
        device.run(graph, np.zeros((4, 8), F32), np.zeros((4, 8), F32))
    out = np.zeros(3, np.int64)
    device.run(lambda rt, x: rt.submit(fill, 7, x), out)
    assert (out == 7).all()
    return str(caught.value)


def test_tasks_declare_their_reads_and_writes(tensors: Device) -> None:
    def graph(rt, a: In, b: In, f: Out):
        total, first, second = (rt.tensor(a.shape, a.dtype) for _ in range(3))
        ids = [
            rt.submit(add, a, b, total),
            rt.submit(fill, 1, first),
            rt.submit(add, total, first, first),
            rt.submit(fill, 2, second),
            rt.submit(add, total, second, second),
            rt.submit(add, first, second, f),
        ]
        assert len(set(ids)) == 6
        assert ids == sorted(ids)
        assert total.address != 0

    a, b = np.full((4, 8), 2, F32), np.full((4, 8), 3, F32)
    f = np.zeros((4, 8), F32)
    report = tensors.run(graph, a, b, f)
    assert (f == 13).all()
    assert report.tasks == 6


def test_views_have_numpy_semantics_in_python_kernels(tensors: Device) -> None:
    seen: dict[int, tuple[Any, ...]] = {}

    @kernel(core="aiv")
    def read_view(which: Scalar, x: In):
        seen[which] = (x.copy(), x.flags.writeable)

    indices = [
        np.s_[:],
        np.s_[2],
        np.s_[1:3],
        np.s_[:, 2:5],
        np.s_[1:3, -1],
        np.s_[:, :, 1],
        np.s_[3, 2, 1],
        np.s_[4:4],
        np.s_[2:99],
    ]
    host = np.arange(4 * 5 * 6, dtype=np.int32).reshape(4, 5, 6)

    def graph(rt, a):
        views = [a[index] for index in indices]
        views.append(a.T)
        views.append(a[1:3].transpose((2, 0, 1))[1:4, :, 2])
        views.append(a[1].reshape((3, 10))[1:])
        views.append(a[:, 1][2])
        views.append(a.reshape(120).reshape((2, 60)).T[3])
        for which, view in enumerate(views):
            rt.submit(read_view, which, view)

    tensors.run(graph, host)
    expected = [host[index] for index in indices] + [
        host.T,
        host[1:3].transpose(2, 0, 1)[1:4, :, 2],
        host[1].reshape(3, 10)[1:],
        host[:, 1][2],
        host.reshape(2, 60).T[3],
    ]
    assert len(seen) == len(expected)
    for which, wanted in enumerate(expected):
        array, writeable = seen[which]
        np.testing.assert_array_equal(array, wanted)
        assert not writeable


def test_the_shape_of_a_view_is_that_of_numpy(tensors: Device) -> None:
    def graph(rt, a):
        assert a[1].shape == (8,)
        assert a[:, 1:3].shape == (4, 2)
        assert a[1, 2].shape == ()
        assert a.T.shape == (8, 4)
        assert a[0:2].reshape((2, 2, 4)).shape == (2, 2, 4)

    tensors.run(graph, np.zeros((4, 8), F32))


def test_writes_through_views_change_the_argument(tensors: Device) -> None:
    def graph(rt, a: InOut):
        rt.submit(scale, a[1], 2.0)
        rt.submit(scale, a[:, 2:4].T, 10)
        rt.submit(fill, 5, a[3, 7], a[0, :2])

    a = np.ones((4, 8), F32)
    tensors.run(graph, a)
    wanted = np.ones((4, 8), F32)
    wanted[1] *= 2
    wanted[:, 2:4] *= 10
    wanted[3, 7] = 5
    wanted[0, :2] = 5
    np.testing.assert_array_equal(a, wanted)


def test_directions_at_the_call(tensors: Device) -> None:
    flags: list[bool] = []

    @kernel(core="aiv")
    def copy(source, target, extra):
        target[:] = source
        flags.extend(x.flags.writeable for x in (source, target, extra))

    def graph(rt, a, f):
        rt.submit(copy, In(a), OutExisting(f), NoDep(a))

    f = np.zeros(4)
    tensors.run(graph, np.arange(4.0), f)
    assert (f == np.arange(4.0)).all()
    assert flags == [False, True, True]


def test_scalars_keep_their_type(tensors: Device) -> None:
    # The two tasks share no tensor: on two cores either may run first.
    free: list[Any] = []
    typed: list[Any] = []

    @kernel(core="aiv")
    def collect(*args):
        free.extend(args)

    @kernel(core="aiv")
    def declared(a: Scalar(F32), b: Scalar("float64"), c: Scalar("int8"), d: Scalar):
        typed.extend((a, b, c, d))

    def graph(rt):
        rt.submit(collect, 1, -2, 0.25, True, ctypes.c_float(0.1), np.uint64(2**63))
        rt.submit(declared, 0.1, 3, -4, 2.5)

    tensors.run(graph)
    tenth = float(np.float32(0.1))
    assert free == [1, -2, 0.25, True, tenth, 2**63]
    assert [type(value) for value in free[:4]] == [int, int, float, bool]
    assert typed == [tenth, 3.0, -4, 2.5]


def test_cpp_kernels_get_tensor_data(tensors: Device, tmp_path: Path) -> None:
    source = tmp_path / "add.cpp"
    source.write_text(
        "#include <cstdint>\n"
        "struct TensorData {\n"  # the published structure, as far as the test needs it
        "  uint64_t address, bytes, raw_shapes[5], shapes[5], offsets[5], start_offset;\n"
        "};\n"
        'extern "C" void kernel_entry(int64_t* args) {\n'
        "  const auto* a = reinterpret_cast<TensorData*>(args[0]);\n"
        "  const auto* out = reinterpret_cast<TensorData*>(args[1]);\n"
        "  float factor;\n"
        "  __builtin_memcpy(&factor, &args[2], 4);\n"
        "  const float* from = reinterpret_cast<float*>(a->address) + a->start_offset;\n"
        "  float* to = reinterpret_cast<float*>(out->address) + out->start_offset;\n"
        "  for (uint64_t i = 0; i < a->shapes[0]; ++i)\n"
        "    for (uint64_t j = 0; j < a->shapes[1]; ++j)\n"
        "      to[i * out->raw_shapes[1] + j] = factor * from[i * a->raw_shapes[1] + j];\n"
        "}\n"
    )
    scaled = CoreCallable(KernelSource(source), "aiv", ("in", "out", Scalar(F32)))

    def graph(rt, a: In, f: Out):
        rt.submit(scaled, a[1:3, 2:5], f[0:2, 0:3], 0.5)

    a, f = np.arange(32, dtype=F32).reshape(4, 8), np.zeros((3, 4), F32)
    tensors.run(graph, a, f)
    np.testing.assert_array_equal(f[:2, :3], a[1:3, 2:5] / 2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda rt, a, f: rt.submit(), "rt.submit needs a kernel"),
        (lambda rt, a, f: rt.submit(len, a), "is not a kernel"),
        (lambda rt, a, f: rt.submit(untyped, a), "its direction is unknown"),
        (lambda rt, a, f: rt.submit(add, a, f), "has 2 arguments, but its signature accepts 3;"),
        (
            lambda rt, a, f: rt.submit(add, a, f, f, f),
            "4 arguments, but its signature accepts 3;",
        ),
        (lambda rt, a, f: rt.submit(add, a, 3, f), "argument 1 ('b') of a task of kernel 'add'"),
        (lambda rt, a, f: rt.submit(scale, a, f), "its signature declares scalar"),
        (
            lambda rt, a, f: rt.submit(fill, 1.5, f),
            "is 1.5, but its declared type int64 has integers from",
        ),
        (lambda rt, a, f: rt.submit(add, a, None, f), "pass a device array"),
        (lambda rt, a, f: rt.submit(add, a, np.zeros(3), f), "pass a device array"),
        (lambda rt, a, f: rt.submit(add, a, In("float32", 3), f), "pass a device array"),
        (
            lambda rt, a, f: rt.submit(scale, rt.tensor(3, F32), 1.0),
            "no earlier task has written",
        ),
        (lambda rt, a, f: rt.submit(fill, 1, *[rt.tensor(3, F32)] * 2), "shares its new memory"),
        (lambda rt, a, f: rt.submit(fill, 1, f, clusters=3), "has no keyword 'clusters'"),
        (lambda rt, a, f: rt.submit(fill, 1, f, cluster="x"), "cluster is 'x'"),
        (lambda rt, a, f: rt.submit(fill, 1, f, after=3.5), "after is 3.5"),
        (lambda rt, a, f: rt.submit(fill, 1, f, after=["x"]), "a task of after is 'x'"),
        (lambda rt, a, f: rt.submit_block(fill, 1, f), "needs the number of blocks"),
        (lambda rt, a, f: rt.submit_block(fill, 1, f, block_dim=0), "block_dim is 0"),
        (
            lambda rt, a, f: rt.submit_block(fill, 1, f, block_dim=2, clusters=[1]),
            "pass a list of 2 clusters",
        ),
        (lambda rt, a, f: a[::2], "step 2"),
        (lambda rt, a, f: a[::-1], "step -1"),
        (lambda rt, a, f: a[..., 0], "not by Ellipsis; use : for each whole axis"),
        (lambda rt, a, f: a.reshape((-1, 4)), "extents are not inferred"),
        (lambda rt, a, f: a[0, 0, 0], "3 indices for a device array of 2 dimensions"),
        (lambda rt, a, f: a.transpose((0, 0)), "not a permutation"),
        (lambda rt, a, f: a.transpose("ab"), "not a sequence of integers"),
        (lambda rt, a, f: a[:, 1:3].reshape(8), "its memory is not contiguous"),
        (lambda rt, a, f: a.reshape((3, 3)), "same number of elements"),
        (lambda rt, a, f: a[:, 1:3].to_host(), "not contiguous"),
        (lambda rt, a, f: rt.tensor((1,) * 6, F32)[0], "at most 5"),
        (lambda rt, a, f: rt.submit(fill, 1, rt.tensor((1,) * 6, F32)), "at most 5"),
    ],
)
def test_misuse_is_refused_at_the_call(
    tensors: Device, build: Callable[..., Any], message: str
) -> None:
    assert re.search(re.escape(message), refused(tensors, build))


@pytest.mark.parametrize(
    "build",
    [
        lambda rt, a, f: rt.submit(fill, 1, *[f] * 33),
        lambda rt, a, f: rt.submit(untyped, *range(33)),
        lambda rt, a, f: rt.submit(fill, 1, *[f] * 80),
    ],
)
def test_too_many_arguments_are_refused(tensors: Device, build: Callable[..., Any]) -> None:
    assert "accepts at most" in refused(tensors, build, CapacityError)


def test_the_calls_of_build_graph_runtimes_are_refused(tensors: Device) -> None:
    calls: list[Callable[[Graph], Any]] = [
        lambda rt: rt.add_task(untyped, ()),
        lambda rt: rt.add_successor(0, 1),
        lambda rt: rt.publish(0),
    ]
    for call in calls:
        message = refused(tensors, lambda rt, a, f, call=call: call(rt), UnsupportedError)
        assert re.search("runtime '.*' has no rt.", message)


def test_a_read_only_argument_cannot_be_written(tensors: Device) -> None:
    fixed = np.zeros(4, F32)
    fixed.flags.writeable = False
    with pytest.raises(
        UsageError, match=r"argument 0 \('x'\).*is written by the task, but the run"
    ):
        tensors.run(lambda rt, a: rt.submit(scale, a[1:], 2.0), fixed)
    tensors.run(lambda rt, a, f: rt.submit(add, a, a, f), fixed, np.zeros(4, F32))


def test_an_argument_declared_in_cannot_be_written(tensors: Device) -> None:
    def graph(rt, a: In, f: Out):
        rt.submit(add, a, a, f)
        rt.submit(add, a, a, a[:] if writes else f)

    data, out = np.ones(4, F32), np.zeros(4, F32)
    writes = False
    tensors.run(graph, data, out)
    assert (out == 2).all()
    writes = True
    with pytest.raises(UsageError, match=r"argument 2 \('out'\).*declares it In"):
        tensors.run(graph, data, out)


def test_tensors_end_with_their_run(tensors: Device) -> None:
    kept: list[Any] = []

    def graph(rt, a):
        kept.append(rt.tensor(a.shape, a.dtype))
        rt.submit(fill, 3, kept[0])
        kept.append(kept[0][1:])

    tensors.run(graph, np.zeros(4, F32))
    for tensor in kept:
        assert "freed" in repr(tensor)
        with pytest.raises(UsageError, match="after the end of its run"):
            tensors.run(lambda rt, x: None, tensor)
