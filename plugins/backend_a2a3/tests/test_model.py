"""Plant faults in the templates of native/core; the model of the memory must catch each one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from native_builds import tool

PACKAGE = Path(__file__).parents[1]
NATIVE = PACKAGE / "native"
ROOT = PACKAGE.parents[1]

LINK, EXECUTOR = "core_link.hpp", "executor.hpp"
TASKS, FAULT = "two tasks on a core", "a fault and a task"
CLOSED = "a closed launch"
CHAIN = "a task after a task of another core"
DOORBELL = "    Access::store_register(page_ + PTO_A2A3_DATA_MAIN_BASE, sequence_);\n"
FINISHED = "    Access::store_cond(doorbell | PTO_COND_FINISHED);\n  }"
CLEAN_REPORT = "    Access::clean(report_, sizeof *report_);\n"
DROP_REPORT = "    Access::invalidate(report_, sizeof *report_);\n"
ORDER_STORES = "    Access::order_stores();\n"
ORDER_LOADS = "    Access::order_loads();\n"
FAULTED = "    Access::store_cond(PTO_A2A3_COND_FAULT);\n"

# Each mutant of the templates in native/core: scenario that catches it, file, text, replacement.
MUTANTS = {
    "no clean of the payload": (
        TASKS,
        LINK,
        "    Access::clean(slot_, offsetof(pto_a2a3_slot, payload) + length);\n",
        "",
    ),
    "clean of the first line of the payload only": (
        TASKS,
        LINK,
        "Access::clean(slot_, offsetof(pto_a2a3_slot, payload) + length)",
        "Access::clean(slot_, PTO_A2A3_LINE)",
    ),
    "no barrier before the doorbell": (TASKS, LINK, ORDER_STORES + DOORBELL, DOORBELL),
    "offsets stay offsets": (TASKS, LINK, "    place_arguments(payload);\n", ""),
    "the sequence number in the slot is off by one": (
        TASKS,
        LINK,
        "Access::store(&slot_->sequence, sequence_);",
        "Access::store(&slot_->sequence, sequence_ - 1);",
    ),
    "sequence numbers do not change": (
        TASKS,
        LINK,
        "sequence_ == PTO_SEQUENCE_MAX ? 1 : sequence_ + 1",
        "1",
    ),
    "sequence numbers do not wrap": (
        TASKS,
        LINK,
        "sequence_ == PTO_SEQUENCE_MAX ? 1 : sequence_ + 1",
        "sequence_ + 1",
    ),
    "COND of an earlier task is taken": (
        TASKS,
        LINK,
        "if (value == (sequence_ | PTO_COND_FINISHED)) {",
        "if ((value & PTO_COND_FINISHED) != 0 && value != PTO_A2A3_COND_FAULT) {",
    ),
    "COND of an earlier launch is taken": (
        TASKS,
        LINK,
        "idle_ = pto_a2a3_idle(launch)",
        "idle_ = pto_a2a3_idle(0)",
    ),
    "a fault of an earlier task is taken": (
        FAULT,
        LINK,
        "return Access::load(&report_->expected) == sequence_;",
        "return true;",
    ),
    "no barrier after COND": (
        TASKS,
        LINK,
        "      Access::order_loads();\n      return CoreTaskState::finished;",
        "      return CoreTaskState::finished;",
    ),
    "no invalidation of the handshake line": (
        TASKS,
        LINK,
        DROP_REPORT + "    if (Access::load_flag",
        "    if (Access::load_flag",
    ),
    "no barrier after the launch number": (
        TASKS,
        LINK,
        ORDER_LOADS + "    return true;",
        "    return true;",
    ),
    "no invalidation of a fault": (FAULT, LINK, ORDER_LOADS + DROP_REPORT, ORDER_LOADS),
    "no barrier before a fault is read": (FAULT, LINK, ORDER_LOADS + DROP_REPORT, DROP_REPORT),
    "no invalidation before a task is read": (
        TASKS,
        EXECUTOR,
        "    Access::invalidate_all();\n",
        "",
    ),
    "no invalidation of the output of another core": (
        CHAIN,
        EXECUTOR,
        "    Access::invalidate_all();\n",
        "    Access::invalidate(slot_, 2 * PTO_A2A3_LINE);\n",
    ),
    "no barrier after the doorbell": (
        TASKS,
        EXECUTOR,
        ORDER_LOADS + "    Access::invalidate_all();\n",
        "    Access::invalidate_all();\n",
    ),
    "no clean of the outputs": (TASKS, EXECUTOR, "    Access::clean_all();\n", ""),
    "no barrier before the end of a task": (
        TASKS,
        EXECUTOR,
        ORDER_STORES + FINISHED,
        FINISHED,
    ),
    "no clean of the report": (
        TASKS,
        EXECUTOR,
        CLEAN_REPORT + ORDER_STORES + "  }",
        ORDER_STORES + "  }",
    ),
    "no barrier before the launch number": (
        TASKS,
        EXECUTOR,
        ORDER_STORES + "    Access::store_flag",
        "    Access::store_flag",
    ),
    "no clean of a fault": (
        FAULT,
        EXECUTOR,
        CLEAN_REPORT + ORDER_STORES + FAULTED,
        ORDER_STORES + FAULTED,
    ),
    "no barrier before a fault is announced": (
        FAULT,
        EXECUTOR,
        ORDER_STORES + FAULTED,
        FAULTED,
    ),
    "no invalidation before the end of a launch is read": (
        CLOSED,
        EXECUTOR,
        "      Access::invalidate(&cores_->closed, sizeof cores_->closed);\n",
        "",
    ),
    "a closed launch is not noticed": (
        CLOSED,
        EXECUTOR,
        "if (Access::load_flag(&cores_->closed) >= launch_) return 0;",
        "",
    ),
}


def write_mutant(folder: Path, name: str, mutant: str) -> None:
    """Write the templates with one fault into ``folder``, in the namespace pto::``name``."""
    _, file, text, replacement = MUTANTS[mutant]
    folder.mkdir()
    for source in (NATIVE / "core").iterdir():
        code = source.read_text()
        if source.name == file:
            assert code.count(text) == 1, mutant
            code = code.replace(text, replacement)
        (folder / source.name).write_text(code.replace("pto::a2a3", f"pto::{name}"))


@pytest.fixture(scope="module")
def mutants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build one program with all mutants, because a program for each one takes minutes."""
    folder = tmp_path_factory.mktemp("mutants")
    lines = []
    for number, mutant in enumerate(MUTANTS):
        name = f"mutant_{number}"
        write_mutant(folder / name, name, mutant)
        lines += [f'#include "{name}/{file}"\n' for file in (LINK, EXECUTOR)]
    applied = " ".join(f"apply(mutant_{number})" for number in range(len(MUTANTS)))
    (folder / "mutants.hpp").write_text("".join(lines) + f"#define MUTANTS(apply) {applied}\n")
    tests = NATIVE / "tests"
    includes = (folder, tests / "model", NATIVE, ROOT / "tests/native", ROOT / "pto_core/include")
    subprocess.run(
        [
            *(tool("g++"), "-std=c++20", "-O1", '-DMODEL_MUTANTS="mutants.hpp"'),
            *(f"-I{path}" for path in includes),
            *(tests / "model" / "model_test.cpp", "-o", folder / "model_mutants"),
        ],
        check=True,
    )
    return folder / "model_mutants"


@pytest.mark.toolchain
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_scenario_catches_a_mutant(mutants: Path, mutant: str) -> None:
    name = f"mutant_{list(MUTANTS).index(mutant)}"
    subprocess.run([mutants, name, MUTANTS[mutant][0]], check=True, timeout=120)
