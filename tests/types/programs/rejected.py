"""A program with an error in each line that ends in ``# refused``, and in no other line."""

from typing import Any

import numpy as np

import pto_core
from pto_core import (
    CallConfig,
    Graph,
    In,
    Orchestrator,
    Out,
    RemoteWorkerSpec,
    Retries,
    Scalar,
    Worker,
    f32,
    kernel,
    task,
)

no_name = pto_core.Wroker  # refused


@task
def scale(x: In, factor: Scalar, out: Out) -> None:
    np.multiply(x, factor, out=out)
    x.no_such_method()  # refused


@task(retries=1)
def step(out: Out, first: int, last: int = 3) -> None:
    out[first:last] += 1


@kernel(core="aiv")
def add(a: In, b: In, out: Out) -> None:
    np.add(a, b, out=out)


def plain(x: In, out: Out) -> None:
    out[:] = x


@task
def words(text: str, *, least: int = 1) -> dict[str, int]:
    return dict.fromkeys(text.split(), least)


@task
def tuned(x: In, factor: f32) -> None:
    factor.upper()  # refused


task(retries="two")  # refused
task(retries=Retries(2, on=3))  # refused
task(retries=Retries(2, delay_s=3))  # refused
kernel(core=3)  # refused


def on_chip(rt: Graph, x: In, out: Out) -> None:
    rt.submit(add, x, out)  # refused
    rt.submit(add, x, out, out, out)  # refused
    rt.submit(add, x, "text", out)  # refused
    rt.submit(add, x, out, out, claster=1)  # refused
    rt.submit(plain, x, out)  # refused


def graph(orch: Orchestrator) -> None:
    pass


def main() -> None:
    with Worker(level=3, num_sub_workers=2) as worker:
        x = worker.shared_array((2, 3))
        worker.run(graph)  # refused
        with worker.session() as s:
            # the first submit, because pyright also refuses good ones after one that it refuses
            handle = s.submit(scale, x, 2.0, x, config=CallConfig())
            s.submit(scale, x, x)  # refused
            s.submit(scale, x, 2.0, x, x)  # refused
            s.submit(scale, x, x, x)  # refused
            s.submit(scale, x, 2.0, "text")  # refused
            s.submit(scale, x, 2.0, x, wrker=1)  # refused
            s.submit(scale, x, 2.0, x, config=3)  # refused
            s.submit(step)  # refused
            s.submit(words, 3)  # refused
            s.submit(words, "a", most=3)  # refused
            worker.map(len, [3])  # refused
            s.submit(step, x)  # refused
            s.submit(step, x, 1, 2, 3)  # refused
            s.submit(plain, x, x)  # refused
            s.submit(add, x, x, x)  # refused
            s.submit(tuned, x, "half")  # refused
            s.options(timeout=3)  # refused
            s.options(timeout_s=3).submit(words, "a", most=2)  # refused
            handle.resutl()  # refused
            handle.result("soon")  # refused
            handle.exception().location  # refused
        worker.submit(words, 3)  # refused
        scale(x, 2.0)  # refused
        add(x)  # refused


def on_other_hosts(pod: Worker, x: Any) -> None:
    RemoteWorkerSpec("tcp://h:1", "a2a3sim")  # refused
    pod.add_remote_worker("tcp://h:1")  # refused
    pod.remote_malloc(8)  # refused
    pod.remote_copy_to(3, x)  # refused
    pod.remote_free(pod.remote_malloc(8, 0).address)  # refused


async def wait() -> None:
    with Worker(level=3) as worker, worker.session() as s:
        await s  # refused
