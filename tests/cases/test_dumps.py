"""``pto run --dump``, ``pto dump`` and ``pto replay`` with a compiled kernel."""

from __future__ import annotations

from pathlib import Path

from pto_insight.dumps import TaskDump

DUMP = "1/first.device0.run1"


def test_a_case_is_dumped_shown_compared_and_replayed(case, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (report,) = case.json("--dump", "--repeat", "2", "--out", str(out))["cases"]
    assert report["files"] == [str(out / DUMP), str(out / "1/first.device0.run2")]
    file = out / DUMP / "twice#0.npz"
    dump = TaskDump.read(file)
    assert (dump.library[-3:], dump.request.source.name) == (".so", "twice.cpp")
    assert dump.where.endswith("host.cpp:" + str(dump.line))
    shown = case.command("dump", "show", str(file), "--dtype", "float32").stdout
    assert "twice#0  " in shown
    assert "after   min 4  max 4  mean 4" in shown
    assert "float32 64" in shown
    assert "2: scalar 64" in shown
    assert "twice#0  returned  " in case.command("dump", "show", str(out / DUMP)).stdout
    assert case.command("dump", "diff", *(str(out / DUMP),) * 2).stdout == "0 of 1 tasks differ\n"
    same = case.command("replay", str(file), "--times", "20")
    assert (same.returncode, "20 calls: min " in same.stdout) == (0, True)
    assert same.stdout.endswith("twice#0: as in the run\n")

    source = dump.request.source
    mode = source.stat().st_mode
    source.chmod(0o666)
    refused = case.command("replay", str(file))
    assert (refused.returncode, f"{source} is not used" in refused.stderr) == (2, True)
    source.chmod(mode)

    case.kernel("f[7] = 1; a[7] = 4;")  # the right result is 4, and this kernel writes 8
    assert case.command("replay", str(file)).returncode == 0, "the library of the run is used"
    changed = case.command("replay", str(file), "--rebuild", "--debugger", "env SEEN=1")
    assert (changed.returncode, changed.stdout.count("twice#0: ")) == (1, 2), changed.stderr
    assert "1: memory: 2 of 256 elements; first at [30]: 128 -> 0" in changed.stdout

    missing = case.command("replay", str(file), "--debugger", "no-such-debugger")
    assert (missing.returncode, missing.stderr.count("'no-such-debugger' was not found")) == (2, 1)
    again = tmp_path / "again"
    assert case.run("--dump", "--skip-golden", "--out", str(again)).returncode == 0
    other = case.command("dump", "diff", str(out / DUMP), str(again / DUMP), "--dtype", "float32")
    assert (other.returncode, "first at [7]: 4.0 -> 8.0" in other.stdout) == (1, True)
    assert other.stdout.endswith("1 of 1 tasks differ\n")
    empty = case.command("dump", "show", str(out))
    assert (empty.returncode, f"it has the runs {DUMP}" in empty.stderr) == (2, True)


def test_a_dump_with_counters_writes_the_listed_files_only(case, tmp_path: Path) -> None:
    options = ("--pmu", "--dump", "--set", "log_level=error")
    out = tmp_path / "out"
    (report,) = case.json(*options, "--out", str(out))["cases"]
    assert sorted(report["files"]) == sorted(map(str, (out / "1").glob("first.*")))


def test_a_replay_names_the_lines_of_wrong_accesses_and_assertions(case, tmp_path: Path) -> None:
    case.kernel("f[args[2]] = 1;")
    done = case.run("--dump", "twice", "--out", str(tmp_path))
    assert done.returncode == 0, "the write hits memory that no other task uses"
    file = tmp_path / DUMP / "twice#0.npz"
    found = case.command("replay", str(file), "--sanitize", "address,undefined")
    assert found.returncode == 4
    assert "AddressSanitizer: use-after-poison" in found.stderr
    assert "twice.cpp:10" in found.stderr
    refused = case.command("replay", str(file), "--sanitize", "adress")
    assert (refused.returncode, "use address, undefined" in refused.stderr) == (2, True)
    case.kernel('pto_printf("a %g", a[0]); PTO_ASSERT(a[0] < 1, "planted");')
    source = case.folder / "kernels/twice.cpp"
    source.write_text('#include "pto/kernel/print.hpp"\n' + source.read_text())
    failed = case.command("replay", str(file), "--rebuild")
    assert (failed.returncode, "--sanitize" in failed.stderr) == (4, False)
    assert f"{source}:11: a 2\n" in failed.stderr
    assertion = f"{source}:11: a[0] < 1 (2 < 1): planted"
    assert f"an assertion of twice#0 failed: {assertion}; --gdb" in failed.stderr


def test_a_crash_leaves_the_arguments_of_its_kernel(case, tmp_path: Path) -> None:
    case.kernel("__builtin_trap();")
    options = ("--dump", "twice#3:f", "--dump-level", "failed", "--out", str(tmp_path))
    (report,) = case.json(*options)["cases"]
    assert report["files"] == [str(tmp_path / DUMP)]
    (file,) = (tmp_path / DUMP).iterdir()
    dump = TaskDump.read(file)
    assert (dump.kernel, dump.task, dump.state) == ("twice", None, "did not return")
    assert (dump.before[0].view("f4") == 2).all()
    again = case.command("replay", str(file))
    assert again.returncode == 4
    assert "the call of twice.0 ended with SIG" in again.stderr


def test_the_arguments_of_a_failed_assertion_are_kept(case, tmp_path: Path) -> None:
    source = case.kernel("f[0] = 3; PTO_ASSERT(a[0] != 2);").folder / "kernels" / "twice.cpp"
    source.write_text('#include "pto/kernel/print.hpp"\n' + source.read_text())
    (report,) = case.json("--dump-level", "failed", "--out", str(tmp_path))["cases"]
    assert "a[0] != 2" in report["errors"][0]["message"]
    (file,) = (tmp_path / DUMP).iterdir()
    dump = TaskDump.read(file)
    assert (file.name, dump.state) == ("twice#0.npz", "failed")
    assert (dump.before[1].view("f4")[0], dump.after[1].view("f4")[0]) == (0, 3)
