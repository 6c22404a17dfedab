"""The parts of the kit: the checker of graphs, the selection of tests, the seed in a failure."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pto_devkit import ContractError, expect, graphs
from pto_devkit.checks import contract_test, random_numbers, withdraw_unclaimed
from pto_devkit.contracts import BackendContract, RuntimeContract
from pto_devkit.device_code import check_device_rules, check_device_sources
from pto_devkit.native import RECORD


def sequential_records(graph: graphs.Graph) -> np.ndarray:
    records = np.zeros(graph.tasks, dtype=RECORD)
    records["runs"] = 1
    records["start"] = 2 * np.arange(graph.tasks) + 1
    records["end"] = records["start"] + 1
    return records


@pytest.mark.parametrize(
    "graph",
    [
        graphs.diamond(),
        graphs.chain(50),
        graphs.hourglass(20),
        graphs.independent(9),
        graphs.random_graph(random.Random(1), 100),
    ],
    ids=lambda graph: graph.name,
)
def test_oracle_accepts_only_orders_that_respect_the_edges(graph) -> None:
    graph.verify(sequential_records(graph))
    for producer, consumer in graph.edges:
        records = sequential_records(graph)
        records["start"][consumer] = records["end"][producer] - 1
        with pytest.raises(ContractError, match="violated"):
            graph.verify(records)


@pytest.mark.parametrize("runs", [0, 2])
def test_oracle_counts_runs(runs) -> None:
    records = sequential_records(graphs.diamond())
    records["runs"][2] = runs
    with pytest.raises(ContractError, match=f"task 2 ran {runs} times"):
        graphs.diamond().verify(records)


def test_random_graphs_point_forward() -> None:
    seed = random.randrange(2**32)
    graph = graphs.random_graph(random.Random(seed), 500)
    assert all(0 <= producer < consumer < 500 for producer, consumer in graph.edges), seed
    assert len(set(graph.edges)) == len(graph.edges), seed


def test_only_claimed_capabilities_are_collected() -> None:
    class Contract:
        test_always = contract_test(lambda subject: None)
        test_flying = contract_test(lambda subject: None, "flies")
        test_walking = contract_test(lambda subject: None, "!flies")

    withdraw_unclaimed(Contract, frozenset({"swims"}))
    assert (callable(Contract.test_always), callable(Contract.test_walking)) == (True, True)
    assert Contract.test_flying is None


@pytest.mark.parametrize("contract", [BackendContract, RuntimeContract])
def test_every_contract_test_states_its_contract(contract) -> None:
    tests = [name for name in dir(contract) if name.startswith("test_")]
    assert tests
    assert all(getattr(contract, name).__doc__.startswith("Require") for name in tests)


def test_a_random_failure_names_its_seed() -> None:
    with pytest.raises(ContractError, match=r"wrong.*seed=17"), random_numbers(17):
        expect(False, "wrong")


ENTRY = 'extern "C" void pto_runtime_entry(const char* to, char* from) { %s }\n'


def runtime_of(library: Path | None = None, **build: object) -> SimpleNamespace:
    """Return the parts of a runtime's subject that the checks of device code use."""
    plugin = SimpleNamespace(library=lambda: library, device_build=lambda: SimpleNamespace(**build))
    return SimpleNamespace(plugin=plugin)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("#include <cstring>\n" + ENTRY % "std::strcpy(from, to + std::strlen(from));", "strcpy"),
        ("#include <cstdlib>\n" + ENTRY % "*from = *std::getenv(to);", "getenv"),
        (
            'static __thread int runs __attribute__((tls_model("initial-exec")));\n'
            + ENTRY % "*from = char(++runs);",
            "thread-local storage",
        ),
        (ENTRY % "*from = *to;" + 'extern "C" int other() { return 1; }\n', "exports other"),
    ],
)
def test_broken_device_code_is_found(tmp_path, compiler, source, problem) -> None:
    unit, library = tmp_path / "unit.cpp", tmp_path / "library.so"
    unit.write_text(source)
    flags = ("-O1", "-shared", "-fPIC", "-nostdlib", "-lc")
    subprocess.run([*compiler, *flags, str(unit), "-o", str(library)], check=True)
    with pytest.raises(ContractError, match=problem):
        check_device_rules(runtime_of(library))


def test_missing_device_sources_are_found(tmp_path) -> None:
    source = tmp_path / "source.cpp"
    source.touch()
    check_device_sources(runtime_of(sources=(source,), include_dirs=(tmp_path,)))
    for build in (
        {"sources": (), "include_dirs": ()},
        {"sources": (tmp_path / "gone.cpp",), "include_dirs": ()},
        {"sources": (source,), "include_dirs": (tmp_path / "gone",)},
    ):
        with pytest.raises(ContractError):
            check_device_sources(runtime_of(**build))
