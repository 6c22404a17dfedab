"""`pto run`: its output in every form, and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fake_distributions import pto_here

import pto_core
from pto_core.errors import CompileError, TaskFailedError, UsageError, WrongResultError

WRONG = "tensors['f'][:] = tensors['a'] * 2\n    tensors['f'][[7, 9]] += 1"


def test_plain_output(case) -> None:
    before = sorted(Path(case.folder).rglob("*"))
    done = case.run()
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert head == "first: passed (a2a3sim, host_build_graph, device 0)"
    labels = [line.split("  ")[1] for line in lines]
    assert labels == ["tasks", "wall", "cores", "largest error"]
    for part in ("compile", "build", "run", "copy"):
        assert re.search(rf"{part} [\d.]+ (us|ms|s)", lines[1]), lines[1]
    assert "AIC 0 of 24 used; AIV 1 of 48 used" in lines[2]
    assert "\x1b" not in done.stdout + done.stderr
    assert case.leftovers() == []
    assert sorted(Path(case.folder).rglob("*")) == before


def test_quiet_silent_and_verbose(case) -> None:
    assert case.run("-q").stdout.splitlines() == [
        "first: passed (a2a3sim, host_build_graph, device 0)"
    ]
    silent = case.run("--silent")
    assert (silent.returncode, silent.stdout, silent.stderr) == (0, "", "")
    verbose = case.run("-v").stdout
    for label in (
        "copied in",
        "copied out",
        "device memory",
        "output f",
        "AIV tasks",
        "tasks taken",
    ):
        assert label in verbose
    assert re.search(r"interface +2026-03\n", verbose)
    assert re.search(r"AIV tasks +1: (0 )*1\n", verbose), "the core that got the task is not shown"
    labels = [re.split(r"\s{2,}", line.strip())[0] for line in verbose.splitlines()[1:]]
    assert len(labels) == len(set(labels)), "a label is shown twice"
    starts = {re.match(r"  \S+(?: \S+)*\s{2,}", line).end() for line in verbose.splitlines()[1:]}
    assert len(starts) == 1, "the columns are not aligned"


def test_outputs_that_no_name_states_are_compared(case) -> None:
    text = (case.folder / "golden.py").read_text().replace('__outputs__ = ["f"]\n', "")
    case.write("golden.py", text)
    assert case.run().returncode == 0
    assert case.run("--skip-golden").returncode == 0
    case.write("golden.py", text.replace('tensors["a"] * 2', 'tensors["a"] * 3'))
    done = case.run()
    assert done.returncode == WrongResultError.exit_code
    assert "output 'f' is wrong in" in done.stderr


def test_json(case) -> None:
    document = case.json()
    assert document["version"] == 1
    assert document["error"] is None
    (report,) = document["cases"]
    assert report["passed"] is True
    assert report["tasks"] == 1
    assert report["outputs"][0]["name"] == "f"
    assert report["copies"]["bytes_out"] == 256
    assert report["wall"] >= report["compile"] + report["run"]
    assert [share["core_type"] for share in report["cores"]] == ["aic", "aiv"]
    for share in report["cores"]:
        assert len(share["dispatches"]) == share["total"]
        assert sum(share["dispatches"]) == share["tasks"]


def test_output_of_kernels_stays_out_of_the_json(case) -> None:
    case.kernel('__builtin_printf("hello from a kernel\\n");')
    done = case.run("--json")
    assert json.loads(done.stdout)["exit_code"] == 0
    assert "hello from a kernel" in done.stderr


def test_terminal(case) -> None:
    parent, child = pty.openpty()
    run = case.start(stdout=child, stderr=child, stdin=child)
    os.close(child)
    text = b""
    while True:
        try:
            chunk = os.read(parent, 1 << 16)
        except OSError:  # the error with which a terminal reports that its other side has closed
            break
        if not chunk:
            break
        text += chunk
    os.close(parent)
    assert run.wait() == 0
    shown = text.decode()
    assert "compiling" in shown, "no progress was shown"
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h"), "the cursor is still hidden"
    table = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert "first: passed" in table
    assert "largest error" in table


def test_wrong_result(case) -> None:
    golden = (case.folder / "golden.py").read_text()
    case.write("golden.py", golden.replace('tensors["f"][:] = tensors["a"] * 2', WRONG))
    done = case.run()
    assert done.returncode == 1
    for part in ("'f'", "2 of 64", "[7]", "got 4.0", "expected 5.0", "rtol 1e-05, atol 1e-05"):
        assert part in done.stderr
    skipped = case.run("--skip-golden")
    assert skipped.returncode == 0
    assert "ran (not compared)" in skipped.stdout


def test_stated_tolerance_counts_for_integers(case) -> None:
    golden = (case.folder / "golden.py").read_text()
    golden = golden.replace("np.zeros(64, np.float32)", "np.zeros(64, np.int32)")
    integers = golden.replace('tensors["a"] * 2', "1")
    kernel = (case.folder / "kernels/twice.cpp").read_text().replace("f[i] = a[i] * 2", "f[i] = 0")
    case.write("golden.py", integers).write("kernels/twice.cpp", kernel)
    assert case.run().returncode == 1
    case.write("golden.py", integers + "ATOL = 1\n")
    assert case.run().returncode == 0


def test_complex_outputs(case) -> None:
    golden = (case.folder / "golden.py").read_text()
    golden = golden.replace("np.zeros(64, np.float32)", "np.zeros(32, np.complex64)")
    golden = golden.replace('tensors["a"] * 2', "4 + 4j")
    assert case.write("golden.py", golden).run().returncode == 0
    wrong = case.write("golden.py", golden.replace("4 + 4j", "4 + 5j")).json()
    assert wrong["cases"][0]["outputs"][0]["first_expected"] == "(4+5j)"


def test_all_runs_every_case_and_exits_with_the_worst_code(case) -> None:
    golden = (case.folder / "golden.py").read_text()
    three = golden.replace("ALL_CASES = {", 'ALL_CASES = {"zero": {"a": 0.0}, ')
    wrong = three + "    if params['name'] == 'second': tensors['f'][0] = 1\n"
    case.write("golden.py", wrong)
    case.kernel("if (a[0] == 2.0f) *reinterpret_cast<volatile int*>(16) = 1;")
    document = case.json("--all")
    outcome = {report["case"]: report["exit_code"] for report in document["cases"]}
    assert outcome == {"zero": 0, "first": 4, "second": 1}, "a crash changed another case"
    assert document["exit_code"] == 4
    assert case.leftovers() == []


def test_list(case) -> None:
    assert case.run("--list").stdout.splitlines() == ["first (default)", "second"]
    assert json.loads(case.run("--list", "--json").stdout) == {
        "cases": ["first", "second"],
        "default": "first",
    }
    assert pto_core.list_cases(case.folder) == ["first", "second"]


def test_kernels_and_golden_in_separate_options(case) -> None:
    done = case.command(
        "run", "-k", str(case.folder / "kernels"), "-g", str(case.folder / "golden.py"),
        "-p", "a2a3sim", "-r", "host_build_graph", "-d", "0", "--case", "second",
        "--log-level", "error",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("second: passed")


def test_repeat_starts_from_the_same_inputs(case) -> None:
    golden = (case.folder / "golden.py").read_text()
    case.write("golden.py", golden.replace("np.zeros(64, np.float32)", "np.ones(64, np.float32)"))
    # Without fresh outputs, the second run would find the outputs of the first one.
    case.write(
        "kernels/host.cpp",
        (case.folder / "kernels/host.cpp")
        .read_text()
        .replace(
            "uint64_t task[]",
            "if (*reinterpret_cast<float*>(args[1]) != 1.0f) return 7;\n  uint64_t task[]",
        ),
    )
    document = case.json("--repeat", "3")
    assert document["exit_code"] == 0, document
    assert len(document["cases"][0]["repeats"]) == 3


def test_a_seed_repeats_its_trace(case) -> None:
    traces = [case.json("--seed", seed)["cases"][0]["trace_hash"] for seed in ("7", "7")]
    assert traces[0] is not None
    assert traces[0] == traces[1]


def test_sweep_over_seeds(case) -> None:
    document = case.json("--seeds", "5")
    (report,) = document["cases"]
    assert (report["seeds"], report["failing_seed"]) == (5, None)
    assert 1 <= report["traces"] <= 5
    assert "5 run, " in case.run("--seeds", "5").stdout


def test_a_sweep_that_loses_its_process_counts_the_seed_that_failed(case) -> None:
    case.kernel("*reinterpret_cast<volatile int*>(16) = 1;")
    (report,) = case.json("--seeds", "3")["cases"]
    assert (report["seeds"], report["failing_seed"]) == (1, 0)
    assert any("seed 0 of 3 failed first" in note for note in report["errors"][0]["notes"])


@pytest.mark.parametrize("crashes", [False, True])
def test_a_sweep_stops_at_the_first_failure_and_names_a_command_to_repeat_it(case, crashes) -> None:
    # The fourth call in a process fails; this stands for a failure that depends on the seed.
    golden = (case.folder / "golden.py").read_text()
    fails = "ctypes.string_at(16)" if crashes else "tensors['f'][5] = 0"
    check = f"    global calls; calls += 1\n    if calls == 4: {fails}\n"
    case.write("golden.py", golden + check + "calls = 0\n")
    done = case.run("--seeds", "8")
    assert done.returncode == (4 if crashes else 1), done.stderr
    note = "seed 3 of 8 failed first; reproduce it with: "
    command = next(line for line in done.stderr.splitlines() if note in line).partition(note)[2]
    assert command.endswith("--case first --seed 3")
    words = shlex.split(command)
    assert case.command(*words[1:]).returncode == 0, "the printed command failed"


def test_backend_from_the_environment_and_from_the_case(case, monkeypatch) -> None:
    monkeypatch.setenv("PTO_BACKEND", "nope")
    assert case.run().returncode == 2
    assert case.run("-p", "sim").returncode == 0
    monkeypatch.delenv("PTO_BACKEND")
    config = (case.folder / "kernels/kernel_config.py").read_text()
    case.write("kernels/kernel_config.py", config + 'RUNTIME_CONFIG = {"block_dim": 2}\n')
    assert case.json()["cases"][0]["cores"][0]["total"] == 2
    assert case.json("--set", "block_dim=3")["cases"][0]["cores"][0]["total"] == 3


def test_environment_of_the_case_reaches_the_child_only(case, monkeypatch) -> None:
    monkeypatch.delenv("CASE_WORD", raising=False)
    config = (case.folder / "kernels/kernel_config.py").read_text()
    case.write("kernels/kernel_config.py", config + 'RUNTIME_ENV = {"CASE_WORD": "blue"}\n')
    graph = (case.folder / "kernels/host.cpp").read_text()
    check = "if (std::getenv(\"CASE_WORD\")[0] != 'b') return 9;\n  const size_t bytes"
    case.write(
        "kernels/host.cpp",
        "#include <cstdlib>\n" + graph.replace("const size_t bytes", check),
    )
    assert pto_core.run_case(case.folder, settings={"cache_dir": case.cache}).check().passed
    assert "CASE_WORD" not in os.environ


def test_misspelt_variable_of_the_case_is_warned_about(case) -> None:
    config = (case.folder / "kernels/kernel_config.py").read_text()
    case.write("kernels/kernel_config.py", config + 'RUNTIME_ENV = {"PTO_SIM_SEDE": "1"}\n')
    done = case.run("-q")
    assert done.returncode == 0
    warning = "kernel_config.py RUNTIME_ENV: PTO_SIM_SEDE is set, but no setting reads it"
    assert f"{warning}; did you mean 'PTO_SIM_SEED'?" in done.stderr


def test_older_dict_form(case) -> None:
    case.write(
        "golden.py",
        "import numpy as np\n"
        "TENSOR_ORDER = ['a', 'out_f']\n"
        "def generate_inputs(params):\n"
        "    return {'out_f': np.zeros(64, np.float32), 'a': np.ones(64, np.float32)}\n"
        "def compute_golden(tensors, params):\n"
        "    tensors['out_f'][:] = 2\n",
    )
    graph = (case.folder / "kernels/host.cpp").read_text()
    sizes = "if (arg_count != 5 || args[2] != 256 || args[3] != 256 || args[4] != 64) return 5;\n"
    graph = graph.replace(
        "const size_t bytes = args[2] * sizeof(float);",
        sizes + "const size_t bytes = args[2]; args[2] = args[4];",
    )
    case.write("kernels/host.cpp", graph)
    done = case.run()
    assert done.returncode == 0, done.stderr


def test_tensor_of_size_zero(case) -> None:
    golden = (case.folder / "golden.py").read_text()
    case.write("golden.py", golden.replace("(64", "(0"))
    done = case.run()
    assert done.returncode == 0, done.stderr
    assert case.leftovers() == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--case", "frist"), 2, "did you mean 'first'"),
        (
            ("-p", "a2a3simm"),
            2,
            "no backend called 'a2a3simm' is installed; did you mean 'a2a3sim'",
        ),
        (("-r", "host_build"), 2, "no runtime called 'host_build'"),
        (("-d", "x"), 2, "device = 'x' (argument): expected"),
        (("--set", "sim.sed=1"), 2, "did you mean 'sim.seed'"),
        (("--set", "nonsense"), 2, "expected key=value"),
        (("--set", "enable_dep_gen=1"), 2, "enable_dep_gen=1 needs an output_prefix"),
        (("--out", "here"), 2, "--out here names a folder, but no file is asked for"),
        (("--set", "enable_pmu=yes"), 2, "enable_pmu is 'yes'; expected a number"),
        (("--repeat", "0"), 2, "'0' is not an integer of at least 1"),
        (("--timeout", "-1"), 2, "is not a positive number of seconds"),
        (("--case", "first", "--all"), 2, "not allowed with"),
        (
            ("--block-dim", "3"),
            2,
            "pto: error: unrecognized arguments: --block-dim 3; see `pto run --help`\n",
        ),
    ],
)
def test_usage(case, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = pto_here("run", case.folder, *arguments)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert case.leftovers() == []


def test_usage_error_as_json(case) -> None:
    document = case.json("--case", "frist")
    assert document["exit_code"] == 2
    assert document["error"]["type"] == "UsageError"
    assert document["error"]["fields"]["value"] == "frist"
    assert document["cases"] == []


def test_graph_for_another_runtime(case) -> None:
    config = (case.folder / "kernels/kernel_config.py").read_text()
    case.write("kernels/kernel_config.py", re.sub(r' *"host_build_graph": .*\n', "", config))
    done = case.run()
    assert done.returncode == 2
    assert "runtime 'host_build_graph'; it has entries for aicpu_build_graph" in done.stderr


def test_kernel_that_does_not_compile(case) -> None:
    case.kernel("this is not C++;")
    done = case.run()
    assert done.returncode == 3
    assert f"{case.folder}/kernels/twice.cpp:10: " in done.stderr
    assert done.stdout == ""
    assert case.leftovers() == []
    with pytest.raises(CompileError) as caught:
        pto_core.run_case(case.folder, settings={"cache_dir": case.cache})
    assert caught.value.line == 10


def test_kernel_without_entry(case) -> None:
    case.write("kernels/twice.cpp", "int x;\n")
    done = case.run()
    assert done.returncode == 3
    assert "kernel twice.cpp exports no kernel_entry: it exports x; " in done.stderr
    assert str(case.folder / "kernels/twice.cpp") in done.stderr


def test_kernel_id_that_is_not_registered(case) -> None:
    graph = (case.folder / "kernels/host.cpp").read_text()
    case.write("kernels/host.cpp", graph.replace("add_task(task, 3, 3", "add_task(task, 3, 5"))
    done = case.run()
    assert done.returncode == 2, done.stderr
    expected = (
        "no kernel is registered under function id 5 (requested by task 0); "
        "registered function ids: 3;"
    )
    assert f"first: {expected}" in done.stderr


def test_orchestration_that_fails(case) -> None:
    case.write("kernels/host.cpp", GRAPH_FAILS)
    done = case.run()
    assert done.returncode == 4
    expected = "first: the orchestration returned 17, not 0; the graph had 0 tasks by then\n"
    assert expected in done.stderr


GRAPH_FAILS = (
    '#include "runtime.h"\nextern "C" int graph(Runtime*, uint64_t*, int) { return 17; }\n'
)


def test_backend_that_is_not_available(case, tmp_path, monkeypatch) -> None:
    metadata = tmp_path / "site" / "lame-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lame\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pto.backends]\nlame = lame:plugin\n")
    (tmp_path / "site" / "lame.py").write_text(
        "from pto_core.interfaces import API_VERSION, Health, BuildRecipe\n"
        "class Lame:\n"
        "    name = 'lame'\n    api_version = API_VERSION\n    capabilities = frozenset()\n"
        "    def health(self): return Health(False, 'no card is in it', 'buy one')\n"
        "    def library(self): return None\n"
        "    def build_recipe(self, kind): return BuildRecipe()\n"
        "    def options(self): return ()\n"
        "plugin = Lame()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    done = case.run("-p", "lame")
    assert done.returncode == 5, done.stderr
    assert "no card is in it" in done.stderr
    assert "buy one" in done.stderr


PYTHON_CONFIG = """
KERNELS = [{"func_id": 0, "source": "python.py", "function_name": "twice", "core_type": "aiv"}]
ORCHESTRATION = {"source": "python.py", "function_name": "graph"}
"""
PYTHON = """
def twice(a, f):
    %s
    f[:] = a * 2


def graph(rt, a, f, n):
    %s
    rt.add_task(0, (a, f))
"""


@pytest.fixture
def python_case(case):
    case.write("kernels/kernel_config.py", PYTHON_CONFIG)
    return case.write("kernels/python.py", PYTHON % ("pass", "pass"))


def test_python_kernel_and_orchestration(python_case) -> None:
    done = python_case.run()
    assert done.returncode == 0, done.stderr
    assert python_case.leftovers() == []


def test_python_kernel_that_raises_brings_its_traceback(python_case) -> None:
    python_case.write("kernels/python.py", PYTHON % ("raise KeyError('mine')", "pass"))
    report = pto_core.run_case(python_case.folder)
    assert (report.passed, report.exit_code) == (False, 4)
    (error,) = report.errors
    assert isinstance(error, TaskFailedError)
    text = "\n".join([error.message, *error.__notes__])
    assert "KeyError" in text
    assert "python.py" in text
    assert "line 3, in twice" in text
    assert "func_id 0" in text
    assert re.search(r"on AIV \d", text), text


@pytest.mark.parametrize("place", ["kernel", "orchestration"])
def test_python_that_exits_is_a_failure(python_case, place: str) -> None:
    leave = "import sys; sys.exit(0)"
    statements = (leave, "pass") if place == "kernel" else ("pass", leave)
    python_case.write("kernels/python.py", PYTHON % statements)
    report = pto_core.run_case(python_case.folder)
    assert (report.passed, report.exit_code) == (False, 4)
    (error,) = report.errors
    text = "\n".join([error.message, *error.__notes__])
    assert "SystemExit" in text
    assert place in error.message
    assert ("task 0" in text) == (place == "kernel")
    assert "sys.exit(0)" in text, "the traceback is missing"


def test_python_orchestration_that_raises_brings_its_traceback(python_case) -> None:
    python_case.write("kernels/python.py", PYTHON % ("pass", "[][1]"))
    (error,) = pto_core.run_case(python_case.folder).errors
    text = "\n".join([error.message, *error.__notes__])
    assert "IndexError" in text
    assert "in graph" in text


def test_python_function_that_does_not_exist(python_case) -> None:
    config = (python_case.folder / "kernels/kernel_config.py").read_text()
    python_case.write("kernels/kernel_config.py", config.replace('"twice"', '"twic"'))
    done = python_case.run()
    assert done.returncode == 2
    assert "has no twic; did you mean 'twice'" in done.stderr


def test_api(case) -> None:
    settings = {"cache_dir": case.cache}
    report = pto_core.run_case(case.folder, "second", settings=settings, repeat=2)
    assert report.check() is report
    assert (report.passed, report.case, report.tasks, report.max_error) == (True, "second", 1, 0.0)
    reports = pto_core.run_all_cases(case.folder, settings=settings)
    assert [one.case for one in reports] == ["first", "second"]
    golden = (case.folder / "golden.py").read_text()
    case.write("golden.py", golden + "    tensors['f'][3] = 0\n")
    with pytest.raises(WrongResultError) as caught:
        pto_core.run_case(case.folder, settings=settings).check()
    assert (caught.value.tensor, caught.value.index, caught.value.expected) == ("f", [3], 0.0)
    with pytest.raises(UsageError, match="did you mean 'first'"):
        pto_core.run_case(case.folder, "frst", settings=settings)
    with pytest.raises(UsageError, match="repeat is 0"):
        pto_core.run_case(case.folder, repeat=0)


def test_api_leaves_no_descriptor_open(case) -> None:
    settings = {"cache_dir": case.cache}
    pto_core.run_case(case.folder, settings=settings)
    before = sorted(os.listdir("/proc/self/fd"))
    pto_core.run_case(case.folder, settings=settings)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_parent_imports_no_array_library(case) -> None:
    script = (
        "import sys; from pto_core.cli.main import main; "
        f"code = main(['run', '-q', {str(case.folder)!r}]); "
        "print(sorted({name.partition('.')[0] for name in sys.modules} "
        "& {'numpy', 'ml_dtypes', 'rich', 'pluggy', 'structlog', 'torch'}), code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=False, env=case.environment,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[] 0", done.stdout + done.stderr
