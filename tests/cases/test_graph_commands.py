"""``pto graph``, ``pto why`` and ``pto check``: they take a case as ``pto run`` does."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fake_distributions import pto_here

EXAMPLES = Path(__file__).parents[2] / "examples"
VECTOR = EXAMPLES / "01_vector"
PTO2 = ("-r", "tensormap_and_ringbuffer")
# The smallest case of each example with a large default.
SMALL = {
    "03_tiled_gemm": "long_chains_1x2x16",
    "05_paged_attention": "ragged_2",
    "06_batch_paged_attention": "ragged_2",
    "07_decoder_layer": "contexts_1_to_31",
    "08_expert_layer": "experts_16_top_2",
    "09_cube_vector_clusters": "pairs_8x3",
}
MEASURED = [
    *(
        (f"0{number}_{name}", "tensormap_and_ringbuffer")
        for number, name in (
            (1, "vector"),
            (3, "tiled_gemm"),
            (5, "paged_attention"),
            (6, "batch_paged_attention"),
            (7, "decoder_layer"),
            (8, "expert_layer"),
            (9, "cube_vector_clusters"),
        )
    ),
    *(
        (f"0{number}_{name}", "host_build_graph")
        for number, name in ((1, "vector"), (3, "tiled_gemm"), (5, "paged_attention"))
    ),
    ("01_vector", "aicpu_build_graph"),
    ("04_matmul_chain", "host_build_graph"),
    ("02_vector_python", "host_build_graph"),
]
# tests/test_examples.py runs all cases with the check of declared accesses.
CASES = sorted(
    {path.parent.name for path in EXAMPLES.glob("*/golden.py")} - {name for name, _ in MEASURED}
)

RACY = {
    "kernels/kernel_config.py": """
KERNELS = [
    {"func_id": 0, "source": "tasks.py", "function_name": "read", "core_type": "aiv"},
    {"func_id": 1, "source": "tasks.py", "function_name": "write", "core_type": "aiv"},
]
ORCHESTRATION = {"source": "tasks.py", "function_name": "graph"}
RUNTIME_CONFIG = {"runtime": "tensormap_and_ringbuffer"}
""",
    "kernels/tasks.py": """
from pto_core import In, InOut, NoDep, Out

def read(data: NoDep, out: Out):
    out[...] = data.sum()

def write(data: InOut):
    data += 1

def graph(rt, data, out):
    rt.submit(1, InOut(data))
    rt.submit(0, NoDep(data), Out(out))
""",
    "golden.py": """
import numpy as np

def generate_inputs(params):
    return [("data", np.ones(64, np.float32)), ("out", np.zeros(4, np.float32))]

__outputs__ = ["data", "out"]
""",
}


@pytest.fixture
def vector(compiled_folder: Path) -> Path:
    """Return a copy of the vector example; only the sources that a test changes are compiled."""
    shutil.rmtree(compiled_folder, ignore_errors=True)
    shutil.copytree(VECTOR, compiled_folder)
    return compiled_folder


@pytest.fixture
def racy(tmp_path: Path) -> Path:
    for name, text in RACY.items():
        path = tmp_path / "racy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "racy"


def test_graph_writes_svg_dot_and_json(tmp_path: Path) -> None:
    shown = pto_here("graph", VECTOR, *PTO2)
    assert shown.returncode == 0, shown.stderr
    assert ElementTree.fromstring(shown.stdout).tag.endswith("svg")
    for ending in ("dot", "json"):
        written = pto_here("graph", VECTOR, *PTO2, "--out", tmp_path / f"vector.{ending}")
        assert written.returncode == 0, written.stderr
        assert written.stdout == ""
    document = json.loads((tmp_path / "vector.json").read_text())
    edges = [(edge["first"], edge["second"]) for edge in document["edges"]]
    assert edges == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert document["tasks"][0]["file"].endswith(".cpp")


@pytest.mark.parametrize("runtime", ["host_build_graph", "aicpu_build_graph"])
def test_a_graph_with_stated_edges_has_the_source_lines(runtime: str) -> None:
    shown = pto_here("graph", VECTOR, "-r", runtime, "--format", "json")
    assert shown.returncode == 0, shown.stderr
    tasks = json.loads(shown.stdout)["tasks"]
    source = VECTOR / "kernels" / "orchestration" / f"{runtime}.cpp"
    assert {Path(task["file"]).name for task in tasks} == {source.name}
    lines = source.read_text().splitlines()
    assert all("add_task" in lines[task["line"] - 1] for task in tasks)


def test_run_writes_the_graph_of_each_case(tmp_path: Path) -> None:
    ran = pto_here("run", VECTOR, "--all", *PTO2, "--graph", "--out", tmp_path / "out")
    assert ran.returncode == 0, ran.stderr
    names = sorted(path.name for path in (tmp_path / "out" / "1").iterdir())
    graphs = ["constant.json", "constant.svg", "random.json", "random.svg"]
    assert names == sorted([*graphs, "log.txt", "run.json"])


def test_graph_refuses_wrong_names_and_endings(tmp_path: Path) -> None:
    wrong = pto_here("graph", VECTOR, *PTO2, "--case", "constand")
    assert wrong.returncode == 2
    assert "did you mean 'constant'" in wrong.stderr
    missing = pto_here("graph", tmp_path / "no_case", "--out", tmp_path / "graph.png")
    assert missing.returncode == 2
    assert "the file name must end in" in missing.stderr


def test_why_prints_the_chain_or_that_nothing_orders_the_tasks() -> None:
    chain = pto_here("why", VECTOR, *PTO2, 3, 0)
    assert chain.returncode == 0, chain.stderr
    assert "waits for" in chain.stdout
    assert "reads" in chain.stdout
    unordered = pto_here("why", VECTOR, *PTO2, 2, 1)
    assert unordered.returncode == 1
    assert "nothing orders" in unordered.stdout
    wrong = pto_here("why", VECTOR, *PTO2, 9, 1)
    assert wrong.returncode == 2
    missing = pto_here("why", VECTOR, *PTO2, 9)
    assert missing.returncode == 2
    assert "a case and two tasks are needed" in missing.stderr
    assert "there is no task 9" in wrong.stderr


def small_case(name: str) -> tuple[str, ...]:
    return ("--case", SMALL[name]) if name in SMALL else ()


@pytest.mark.parametrize("name", CASES)
def test_check_is_silent_on_an_example(name: str) -> None:
    found = pto_here("check", EXAMPLES / name, *PTO2, *small_case(name))
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout == "no races\n"


@pytest.mark.parametrize(("name", "runtime"), MEASURED)
def test_check_of_measured_accesses_is_silent_on_every_example(name: str, runtime: str) -> None:
    found = pto_here("check", EXAMPLES / name, "-r", runtime, "--measure", *small_case(name))
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.startswith("no races\n")
    assert ("not measured" in found.stdout) == (name == "02_vector_python")


def test_check_of_measured_accesses_finds_a_missing_edge(vector: Path) -> None:
    """The orchestration of host_build_graph passes raw pointers, so only a measurement finds it."""
    source = vector / "kernels" / "orchestration" / "host_build_graph.cpp"
    text = source.read_text()
    edge = re.findall(r".*add_successor\(.*\);\n", text)[-1]
    source.write_text(text.replace(edge, ""))
    refused = pto_here("check", vector, "-r", "host_build_graph")
    assert refused.returncode == 2
    assert "pto check --measure" in refused.stderr
    found = pto_here("check", vector, "-r", "host_build_graph", "--measure")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "fix: add an edge from add_scalar#2 to multiply#3" in found.stdout
    line = 1 + text[: text.index("const int task_two")].count("\n")
    assert f"orchestration/host_build_graph.cpp:{line}" in found.stdout


@pytest.mark.parametrize(
    ("runtime", "kernel", "change", "found"),
    [
        (
            "host_build_graph",
            "aiv/multiply.cpp",
            "out[i] = x[i] * y[i + 1]",
            "multiply#3 reads 4 bytes of memory 2 (bytes 65536:65540): memory 2 has 65536 bytes",
        ),
        (
            "tensormap_and_ringbuffer",
            "aiv_tensors/multiply.cpp",
            "out[i] = const_cast<float*>(x)[i] = x[i] * y[i]",
            "multiply#3 writes 65536 bytes of add_scalar#1.2 (bytes 0:65536): declared as input",
        ),
        (
            "tensormap_and_ringbuffer",
            "aiv_tensors/multiply.cpp",
            "if (i + 1 < count) out[i] = x[i] * y[i]",
            "multiply#3 does not write 4 bytes of f (bytes 65532:65536): declared OUTPUT",
        ),
    ],
)
def test_check_of_measured_accesses_finds_a_wrong_kernel(
    vector: Path, runtime: str, kernel: str, change: str, found: str
) -> None:
    source = vector / "kernels" / kernel
    text = source.read_text()
    assert "out[i] = x[i] * y[i]" in text
    source.write_text(text.replace("out[i] = x[i] * y[i]", change))
    checked = pto_here("check", vector, "-r", runtime, "--measure")
    assert checked.returncode == 1, checked.stderr
    assert found in checked.stdout


def test_the_memory_of_a_build_graph_has_the_names_of_the_arguments(vector: Path) -> None:
    """The C++ orchestration copies its arguments itself."""
    for name, old, new in (
        ("aiv/add.cpp", "out[i] = ", "const_cast<float*>(x)[i] = out[i] = "),
        ("aiv/multiply.cpp", "i < count; ++i) out[i]", "i < count - 1; ++i) out[i]"),
        ("orchestration/host_build_graph.cpp", "bits(2.0f), e", "bits(2.0f), c"),
    ):
        source = vector / "kernels" / name
        text = source.read_text()
        assert old in text
        source.write_text(text.replace(old, new))
    checked = pto_here("check", vector, "-r", "host_build_graph", "--measure")
    assert checked.returncode == 1, checked.stderr
    for found in (
        "add#0 writes 65536 bytes of a (bytes 0:65536): an input of the run",
        "no task writes 4 bytes of f (bytes 65532:65536): an output of the run",
        "multiply#3 reads 65532 bytes of memory 2 (bytes 0:65532): no earlier task wrote them",
    ):
        assert found in checked.stdout
    ran = pto_here("run", vector, "-r", "host_build_graph")
    assert "f[0, 0] was last written by\n  multiply#3: f [writes]  " in ran.stderr


def test_check_reports_what_the_program_excepts(racy: Path) -> None:
    found = pto_here("check", racy)
    assert found.returncode == 0, found.stderr
    assert "your declaration" in found.stdout
    assert "write#0 and read#1 share 256 bytes of data" in found.stdout
    assert "tasks.py:11" in found.stdout
    assert "tasks.py:12" in found.stdout
    assert "fix: declare data of read#1 as INPUT" in found.stdout


def test_the_seed_of_a_command_selects_the_order_of_its_tasks(racy: Path) -> None:
    tasks = racy / "kernels" / "tasks.py"
    source = tasks.read_text()
    source = source.replace("    data += 1", ORDERED) + ORDERED_SUBMITS
    tasks.write_text(source.replace("    rt.submit(1, InOut(data))\n", ""))
    golden = racy / "golden.py"
    golden.write_text(golden.read_text().replace("np.ones(64, ", "np.arange(64, dtype="))

    def order(command: str, seed: int) -> str:
        ends = ("1", "0") if command == "why" else ()
        failed = pto_here(command, racy, *ends, "--seed", seed)
        assert failed.returncode == 4, failed.stderr
        (found,) = set(re.findall(r"order=(\[.*?\])", failed.stderr))
        return found

    first = order("check", 0)
    assert sorted(json.loads(first)) == list(range(0, 64, 8))
    assert order("check", 0) == first
    orders = ((seed, order("check", seed)) for seed in (1, 2, 3))
    seed, other = next(found for found in orders if found[1] != first)
    assert order("graph", seed) == order("why", seed) == other


ORDERED = """
    order.append(int(data[0]))
    if len(order) == 8:
        raise ValueError(f"order={order}")

order = []
"""
ORDERED_SUBMITS = """
    for row in range(0, 64, 8):
        rt.submit(1, InOut(data[row : row + 8]))
"""


def test_check_reports_races(racy: Path) -> None:
    tasks = racy / "kernels" / "tasks.py"
    source = tasks.read_text().replace("NoDep", "In")
    source = (
        source.replace("    rt.submit(1, InOut(data))\n", "") + "    rt.submit(1, InOut(data))\n"
    )
    tasks.write_text(source)
    assert pto_here("check", racy).returncode == 0
    found = pto_here("check", racy, "--hazards", "raw")
    assert found.returncode == 1, found.stderr
    assert 'fix: run with hazards="full", or submit write#1 with after=read#0' in found.stdout


def test_commands_refuse_a_runtime_that_knows_no_accesses() -> None:
    found = pto_here("check", VECTOR, "-r", "host_build_graph")
    assert found.returncode == 2
    assert "does not know what its tasks read and write" in found.stderr
    assert pto_here("graph", VECTOR, "-r", "host_build_graph").returncode == 0


WRONG = {
    **RACY,
    "kernels/tasks.py": """
from pto_core import In, InOut, NoDep, Out

def read(data: In, out: Out):
    out[...] = data.sum()

def write(data: InOut):
    data += 1

def graph(rt, data, out):
    rt.submit(1, InOut(data[:32]))
    rt.submit(1, InOut(data[32:]))
    rt.submit(0, In(data), Out(out[:2]))
""",
    "golden.py": RACY["golden.py"]
    + """
def compute_golden(tensors, params):
    tensors["data"][:] = 2
    tensors["out"][:] = 128
    tensors["data"][40] = params.get("wanted", 2)

ALL_CASES = {"unwritten": {}, "wrong": {"wanted": 3}}
""",
}


def test_a_wrong_element_names_its_last_writer(tmp_path: Path) -> None:
    for name, text in WRONG.items():
        path = tmp_path / "wrong" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ran = pto_here("run", tmp_path / "wrong", "--case", "wrong")
    assert ran.returncode == 1
    shown = ran.stdout + ran.stderr
    assert "data[40] was last written by" in shown
    assert "write#1: data[32:64] [INOUT]" in shown
    assert "tasks.py:12" in shown
    ran = pto_here("run", tmp_path / "wrong", "--case", "unwritten")
    assert "no task declares that it writes out[2]" in ran.stdout + ran.stderr
    ran = pto_here("run", tmp_path / "wrong", "--case", "unwritten", "--no-explain")
    assert ran.returncode == 1
    assert "no task declares" not in ran.stdout + ran.stderr


INTERMEDIATES = """

def compute_intermediates(tensors, params):
    a, b = tensors["a"], tensors["b"]
    c = a + b
    d, e = c + np.float32(1), c + np.float32(2)
    return {"add": [c], "add_scalar": [d, e], "multiply": [None]}
"""


TILES = {
    "kernels/kernel_config.py": """
KERNELS = [{"func_id": 0, "source": "tasks.py", "function_name": "both", "core_type": "aiv"}]
ORCHESTRATION = {"source": "tasks.py", "function_name": "graph"}
RUNTIME_CONFIG = {"runtime": "tensormap_and_ringbuffer"}
""",
    "kernels/tasks.py": """
from pto_core import In, InOut, Out

def both(x: In, total: InOut, tile: Out):
    total += x.sum()
    tile[...] = 2
    if total[0] > 4:
        tile[1, 2] = 9

def graph(rt, x, total, out):
    rt.submit(0, In(x), InOut(total), Out(out[:, :4]))
    rt.submit(0, In(x), InOut(total), Out(out[:, 4:]))
""",
    "golden.py": """
import numpy as np

__outputs__ = ["total", "out"]

def generate_inputs(params):
    out = np.zeros((2, 8), np.float32)
    return [("x", np.ones(4, np.float32)), ("total", np.zeros(4)), ("out", out)]

def compute_golden(tensors, params):
    tensors["total"][:] = 8
    tensors["out"][:] = 2

def compute_intermediates(tensors, params):
    tile = np.full((2, 4), 2, np.float32)
""",
}


@pytest.mark.parametrize("runtime", ["tensormap_and_ringbuffer", "host_build_graph"])
def test_the_first_wrong_intermediate_is_named(vector: Path, runtime: str) -> None:
    golden = vector / "golden.py"
    golden.write_text(golden.read_text() + INTERMEDIATES)
    source = vector / "kernels" / "orchestration" / f"{runtime}.cpp"
    text = source.read_text()
    assert "2.0f" in text
    source.write_text(text.replace("2.0f", "2.5f"))
    ran = pto_here("run", vector, "-r", runtime)
    assert ran.returncode == 1
    assert (
        "the first wrong intermediate is output 0 of add_scalar#2: wrong in 16384 of 16384 "
        "elements; first at [0, 0]: got 7.5, expected 7.0  "
    ) in ran.stderr
    assert "before it, 2 references agreed" in ran.stderr
    assert "multiply#3: f [" in ran.stderr


def test_intermediates_of_python_kernels_and_tiles(tmp_path: Path) -> None:
    case = tmp_path / "tiles"
    for name, text in TILES.items():
        path = case / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    right = '{"both": [(np.full(4, 4.0), tile), (np.full(4, 8.0), tile)]}'
    (case / "golden.py").write_text(TILES["golden.py"] + f"    return {right}\n")
    ran = pto_here("run", case)
    assert "first wrong intermediate is output 1 of both#1: wrong in 1 of 8 elements" in ran.stderr
    assert "first at [1, 2]: got 9.0, expected 2.0" in ran.stderr
    assert "before it, 3 references agreed" in ran.stderr
    for wrong, message in (
        ('{"both": 3}', "compute_intermediates returns int; expected a dict from the names of"),
        ('{"bth": [None]}', "has references for 1 tasks of 'bth', which runs 0; kernels: both (2"),
        ('{"both": [(None,) * 3]}', "both#0: the task has 2 outputs, not 3"),
        ('{"both": [np.zeros(3)]}', "both#0: it has 32 bytes, its reference 24 (float64 (3,))"),
        ('{"both": [None]}', "no intermediate was compared"),
    ):
        (case / "golden.py").write_text(TILES["golden.py"] + f"    return {wrong}\n")
        assert message in pto_here("run", case).stderr


def test_a_result_that_differs_from_run_to_run_is_not_deterministic(racy: Path) -> None:
    """The kernel is wrong in its first run only, as if another task had raced with it."""
    tasks = racy / "kernels" / "tasks.py"
    tasks.write_text(
        tasks.read_text()
        .replace("    data += 1", "    data += 1 + (len(RUNS) == 0)\n    RUNS.append(0)")
        .replace("data.sum()", "128")
        + "\nRUNS = []\n"
    )
    golden = racy / "golden.py"
    golden.write_text(
        golden.read_text()
        + 'def compute_golden(t, params):\n    t["data"][:] = 2\n    t["out"][:] = 128\n'
    )
    ran = pto_here("run", racy)
    assert ran.returncode == 1
    shown = ran.stdout + ran.stderr
    assert "not deterministic: a second run on the same inputs is right" in shown
    assert "write#0 and read#1 share 256 bytes of data" in shown
    ran = pto_here("run", racy, "--seed", 0)
    assert ran.returncode == 1
    shown = ran.stdout + ran.stderr
    assert "a second run on the same inputs, with the same order of tasks, is right" in shown
    assert "not deterministic" not in shown


def test_the_published_setting_of_a_case_writes_its_graph(racy: Path, tmp_path: Path) -> None:
    config = racy / "kernels" / "kernel_config.py"
    config.write_text(
        config.read_text()
        + 'RUNTIME_CONFIG |= {"enable_dep_gen": 1, '
        + f'"output_prefix": {str(tmp_path / "it")!r}}}\n'
    )
    ran = pto_here("run", racy, "--skip-golden")
    assert ran.returncode == 0, ran.stderr
    written = sorted(path.name for path in tmp_path.glob("it.*"))
    assert written == ["it.device0.run1.json", "it.device0.run1.svg"]
