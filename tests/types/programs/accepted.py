"""A program in which a type checker finds no error. Comments state the types that it reveals."""

import concurrent.futures
import ctypes
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

import pto_core
from pto_core import (
    Graph,
    Hosts,
    In,
    InOut,
    Out,
    Retries,
    Scalar,
    Session,
    Worker,
    attempt,
    f32,
    i64,
    kernel,
    open_device,
    task,
)
from pto_core.chip import CoreCallable, Direction, KernelSource, NoDep, OutExisting
from pto_core.published import (
    CallConfig,
    ChipCallable,
    Orchestrator,
    RemoteCallable,
    RemoteTaskArgs,
    RemoteTensorRef,
    RemoteWorkerSpec,
    TaskArgs,
    TaskArgsView,
    TaskHandle,
    TensorArgType,
)

reveal_type(pto_core.TaskArgs())  # TaskArgs
reveal_type(pto_core.published.CallConfig())  # CallConfig
reveal_type(pto_core.chip.open_device())  # Device


@task
def scale(x: In, factor: Scalar, out: Out) -> None:
    np.multiply(x, factor, out=out)
    out += x.sum() * factor
    reveal_type(x)  # Array


@task(retries=Retries(3, on=(OSError, TimeoutError), backoff_s=0.1))
def fetch(url: str) -> str:
    return url * attempt()


@task(retries=2)
def count(values: InOut, first: int, last: int = 3, *more: int) -> None:
    values[first:last] += len(more)


@task
def typed(
    x: Out, by: Annotated[float, Scalar("float32")], n: Annotated[int, Scalar("int64")]
) -> None:
    x[n] = by
    reveal_type(by)  # float
    reveal_type(n)  # int


@task
def power_of(x: In, exponent: f32, times: i64, out: Out) -> None:
    out[:] = x**exponent * times
    reveal_type(exponent)  # float


@kernel(core="aiv", jit="numba")
def shift(x: In, by: f32, out: Out) -> None:
    out[:] = x + by


@task
def nothing() -> None:
    pass


@task
def length(text: str) -> int:
    return len(text)


@task
def words(text: str, *, least: int = 1) -> dict[str, int]:
    return dict.fromkeys(text.split(), least)


@task
def seven(a: In, b: In, c: In, d: In, e: In, f: OutExisting, g: NoDep) -> None:
    f[:] = a + b + c + d + e


@kernel(core="aiv")
def add(a: In, b: In, out: Out) -> None:
    np.add(a, b, out=out)


@kernel("aic", signature=(Direction.IN("float32", (64,)), Direction.SCALAR(int), "out"))
def power(x: In, exponent: int, out: Out) -> None:
    out[:] = x**exponent


native = CoreCallable(KernelSource("add.cpp"), "aiv", ("in", Direction.OUT, Direction.SCALAR()))

reveal_type(scale)  # Task[[x: Array, factor: float, out: Array], None, Any]
reveal_type(words("a", least=2))  # dict[str, int]
reveal_type(scale.retries)  # int
reveal_type(add)  # CoreCallable[[a: Array, b: Array, out: Array]]
reveal_type(power(np.ones(3), 2, np.ones(3)))  # None


def on_chip(rt: Graph, x: In, y: In, out: Out, times: Scalar) -> None:
    part = rt.tensor(x.shape, x.dtype)
    first = rt.submit(add, x, y[:4], part)
    reveal_type(first)  # int
    rt.submit(power, part, 3, out, after=first)
    rt.submit(shift, part, 0.5, out)
    rt.submit(power, part, ctypes.c_int64(3), out, after=[first])
    rt.submit(native, Direction.IN(part), out, times)
    with rt.scope(), rt.cluster() as cluster:
        rt.submit(add, x, y, out.reshape(-1), cluster=cluster)


def graph(orch: Orchestrator, args: TaskArgsView, config: CallConfig) -> None:
    reveal_type(args.tensor(0))  # Array


def program(s: Session, x: Any, out: Any) -> None:
    s.submit(scale, x, 2.0, out)


def without_a_session(worker: Worker) -> None:
    size = worker.submit(length, "a")
    reveal_type(size)  # TaskHandle[int]
    reveal_type(worker.map(int.bit_length, [size]))  # list[int]
    worker.options(retries=1).submit(words, "a b", least=2)


def main() -> None:
    with open_device("a2a3sim") as device:
        reveal_type(device.run(on_chip, np.ones(3), np.ones(3), np.ones(3), 2).tasks)  # int
    chip = ChipCallable(on_chip, {0: add, 1: native})
    with Worker(level=3, num_sub_workers=2) as worker:
        worker.run(graph, TaskArgs(), CallConfig())
        handle = worker.register(chip)
        x = worker.shared_array((2, 3))
        reveal_type(x)  # Array
        args = TaskArgs()
        args.add_tensor(x, TensorArgType.INOUT)
        worker.run(lambda s: s.submit(nothing), hazards="full")
        worker.check(program, (x, x), hazards="raw").raise_for_races()
        worker.replay(worker.capture(program, (x, x)), [x, x])
        with worker.session() as s:
            reveal_type(s)  # Session
            first = s.submit(scale, x, 2.0, x, worker=1, hint=True, timeout_s=3)
            reveal_type(first)  # TaskHandle[Any]
            part = s.empty((2, 3))
            s.submit(scale, part, 2, part, after=[first], retries=1)
            s.submit(count, x, 1)
            s.submit(count, x, 1, 2)
            s.submit(count, x, 1, 2, 3, 4)
            s.submit(nothing)
            s.submit(words, "a b")
            s.submit(words, "a b", least=2)
            slow = s.options(timeout_s=3, worker=0)
            reveal_type(slow.submit(words, "a b", least=2))  # TaskHandle[dict[str, int]]
            s.submit(power_of, x, 0.5, 2, x, timeout_s=3)
            s.submit(length, s.submit(length, "a", retries=2), worker=1)
            s.submit(fetch, "a", retries=Retries(1, on=OSError))
            reveal_type(worker.map(len, ["a"], chunksize=3))  # list[int]
            s.submit(seven, x, x, x, x, x, x, x)
            s.submit(chip, x, part, x, 3, config=CallConfig(), worker=0)
            s.submit(handle, x, part, x, 3)
            group = s.submit_group(scale, [(x, 1.0, x), (x, 2.0, part)], workers=[0, 1])
            reveal_type(group)  # TaskHandle[Any]
            reveal_type(first.exception())  # PtoError | None
            reveal_type(first.result(timeout=3))  # Any
            size = s.submit(length, "a", worker=0)
            reveal_type(size)  # TaskHandle[int]
            reveal_type(size.result())  # int
            handles: list[TaskHandle] = [first, size]
            reveal_type([one.done() or one.cancel(force=True) for one in handles])  # list[bool]
            size.add_done_callback(lambda one: print(one.result()))
            reveal_type(list(worker.as_completed([size])))  # list[TaskHandle[int]]
            for one in concurrent.futures.as_completed([size]):
                reveal_type(one)  # Future[int]
            reveal_type(concurrent.futures.wait([size]).done)  # set[Future[int]]
            scale(x, 3, x)
            scale(x, factor=3.0, out=x)
            total: NDArray[Any] = first.result()
            total.sum()
        with worker.executor() as executor:
            reveal_type(executor.submit(pow, 2, exp=3).done())  # bool
            call = executor.submit(len, "ab")
            reveal_type(call)  # TaskHandle[int]
            reveal_type(list(concurrent.futures.as_completed([call])))  # list[Future[int]]
            reveal_type(list(worker.as_completed([call])))  # list[TaskHandle[int]]
            reveal_type(list(executor.map(len, ["ab"], chunksize=2)))  # list[int]


def on_other_hosts(orch: Orchestrator, x: NDArray[Any]) -> None:
    with Worker(level=4) as pod:
        there = pod.add_remote_worker(RemoteWorkerSpec("tcp://h:1", num_sub_workers=2, keys="k"))
        reveal_type(Hosts.on("local", num=2, resources={"CPU": 1}))  # Hosts
        pod.add_worker(Worker(level=3, hosts=Hosts.on()))
        far = pod.register(RemoteCallable("company.steps:run"), workers=[there])
        buffer = pod.remote_malloc(1 << 20, there)
        reveal_type(buffer)  # RemoteBuffer
        pod.remote_copy_to(buffer, x, offset=8)
        args = RemoteTaskArgs()
        args.add_tensor(RemoteTensorRef(buffer, (2, 3), "float32", 8), TensorArgType.INOUT)
        args.add_scalar(3)
        orch.submit_next_level(far, args, worker=there)
        pod.remote_copy_from(x, buffer)
        pod.remote_free(buffer)


async def wait() -> None:
    with Worker(level=3, num_sub_workers=2) as worker:
        async with worker.session() as s:
            first = s.submit(nothing)
            reveal_type(await first)  # Any
