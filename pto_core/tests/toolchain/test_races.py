"""Many processes at once, killed builders, and full disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BUILD = """
    import sys
    from pathlib import Path
    from pto_core.config import load_core
    from pto_core.interfaces import BuildRecipe
    from pto_core.toolchain import Toolchain

    config = load_core({"cache_dir": sys.argv[1], "jobs": 2}, environ={})
    toolchain = Toolchain(config, lambda event: print(event.state, flush=True))
    sources = [Path(name) for name in sys.argv[2:]]
    requests = [toolchain.kernel(source, "aiv", BuildRecipe()) for source in sources]
    print("begin", flush=True)
    for path in toolchain.build_many(requests):
        print(path)
"""


def start(bench, *sources: Path, script: str = BUILD) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), str(bench.cache), *map(str, sources)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.fixture
def held(bench, kernel) -> Path:
    """Return a source that a compiler cannot read to its end: it includes a pipe."""
    os.mkfifo(bench.sources / "pipe.h")
    return bench.write("held.cpp", kernel("1", '#include "pipe.h"'))


@contextmanager
def compiling(bench, held: Path) -> Iterator[subprocess.Popen[str]]:
    """Return a builder of ``held`` whose compiler has started and is blocked."""
    builder = start(bench, held)
    # blocks until the compiler opens the pipe
    held_by = os.open(held.with_name("pipe.h"), os.O_WRONLY)
    try:
        yield builder
    finally:
        os.close(held_by)


def living_children(marker: str) -> list[str]:
    """List the processes whose command line contains ``marker``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marker in line and state != "Z":
                found.append(line)
    return found


def wait_until_gone(marker: str, patience_s: float = 60) -> list[str]:
    deadline = time.monotonic() + patience_s
    while (left := living_children(marker)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def test_eight_processes_build_the_same_kernels(bench, kernel) -> None:
    sources = [bench.write(f"k{i}.cpp", kernel(str(i))) for i in range(4)]
    builders = [start(bench, *sources) for _ in range(8)]
    results = [builder.communicate() for builder in builders]
    assert [builder.returncode for builder in builders] == [0] * 8, results
    paths = {tuple(output.splitlines()[-4:]) for output, _ in results}
    assert len(paths) == 1, "the builders returned different artefacts"
    assert len(list((bench.cache / "artefacts").iterdir())) == 4, "an artefact was built twice"
    assert bench.leftovers() == []


# Invariant: A cached artefact is complete or absent, even if its builder was killed. The next build
# removes the files of dead builders.
def test_a_killed_builder_leaves_no_harmful_files(bench, kernel, held) -> None:
    with compiling(bench, held) as builder:
        builder.kill()
        builder.communicate()
        assert wait_until_gone(str(held)) == [], "compilers of the killed builder still run"
    assert not list((bench.cache / "artefacts").glob("*"))
    bench.build(bench.write("other.cpp", kernel("1")))
    assert bench.leftovers() == [], "the next build did not remove all files of the killed builder"
    held.with_name("pipe.h").unlink()
    bench.write("pipe.h", "")
    assert bench.build(held).is_file()


# A program that owns a scratch folder, and kills itself when its standard input ends.
OWNER = """
    import os, signal, sys
    from pathlib import Path
    from pto_core.toolchain.cache import ArtefactCache

    cache = ArtefactCache(Path(sys.argv[1]))
    with cache.scratch() as scratch, cache.building("key", lambda seconds: None):
        (scratch / "part").write_text("half of it")
        print("here", flush=True)
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_warm_build_removes_only_files_of_dead_builders(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("1"))
    bench.build(source)
    command = [sys.executable, "-c", textwrap.dedent(OWNER), str(bench.cache)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"here\n"
        of_the_living = bench.leftovers()
        assert len(of_the_living) == 3, "the owner does not have a folder and two locks"
        bench.build(source)
        assert bench.leftovers() == of_the_living
        owner.communicate()
    assert owner.returncode == -signal.SIGKILL
    assert bench.leftovers() == of_the_living
    bench.build(source)
    assert bench.states == ["cached"]
    assert bench.leftovers() == []


def test_a_folder_that_lost_its_lock_is_swept(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("1"))
    bench.build(source)
    (bench.cache / "scratch" / "1-late" / "folder").mkdir(parents=True)
    bench.build(source)
    assert bench.leftovers() == []


def test_interrupted_builder_cleans_up_at_once(bench, held) -> None:
    with compiling(bench, held) as builder:
        builder.send_signal(signal.SIGINT)
        builder.communicate()
        assert living_children(str(held)) == []
    assert bench.leftovers() == []


def test_full_disk_is_named(bench, kernel) -> None:
    limited = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    """
    caught = """
        from pto_core.errors import CompileError
        try:
            toolchain.build_many(requests)
        except CompileError as error:
            print("refused:", error)
    """
    body = textwrap.dedent(BUILD).rpartition("for path in")[0]
    script = textwrap.dedent(limited) + body + textwrap.dedent(caught)
    source = bench.write("one.cpp", kernel("1"))
    output, errors = start(bench, source, script=script).communicate()
    assert "refused:" in output, output + errors
    assert str(bench.cache) in output
    assert "cache_dir" in output
    assert bench.leftovers() == []
    assert bench.build(source).is_file(), "the build fails although there is free space again"
