"""An artefact is built once, until one of its inputs changes."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pto_core.errors import CompileError
from pto_core.interfaces import BuildRecipe
from pto_core.toolchain import Toolchain
from pto_core.toolchain.builder import read_depfile
from pto_core.toolchain.cache import ArtefactCache, FileLock, read_record, write_record


def call(library: Path) -> int:
    """Return the value that the kernel stores; load a copy, because the loader caches paths."""
    values = (ctypes.c_int64 * 1)()
    copy = library.with_name(f"copy-{os.urandom(4).hex()}.so")
    shutil.copy(library, copy)
    try:
        ctypes.CDLL(str(copy)).kernel_entry(values)
    finally:
        copy.unlink()
    return int(values[0])


def test_second_build_runs_no_compiler(bench, kernel, monkeypatch) -> None:
    source = bench.write("one.cpp", kernel("1"))
    first = bench.build(source)
    assert bench.states == ["started", "built"]
    monkeypatch.setattr("subprocess.Popen", None)  # each start of a process would raise a TypeError
    assert bench.build(source) == first
    assert bench.states == ["cached"]
    assert call(first) == 1


def test_changed_source_is_built_again_and_the_old_one_is_kept(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("1"))
    first = bench.build(source)
    source.write_text(kernel("2"))
    assert call(bench.build(source)) == 2
    source.write_text(kernel("1"))
    assert bench.build(source) == first
    assert bench.states == ["cached"]


def test_changed_header_of_a_header_is_seen(bench, kernel) -> None:
    bench.write("deep/value.h", "#define VALUE 3\n")
    bench.write("deep/with space.h", '#include "value.h"\n')
    source = bench.write("one.cpp", kernel("VALUE", '#include "deep/with space.h"'))
    assert call(bench.build(source)) == 3
    header = bench.write("deep/value.h", "#define VALUE 4\n")
    assert call(bench.build(source)) == 4
    # Size and modification time are equal, so the content decides.
    state = header.stat()
    header.write_text("#define VALUE 5\n")
    os.utime(header, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert call(bench.build(source)) == 5


def test_touched_or_copied_files_are_not_built_again(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("1"))
    first = bench.build(source)
    os.utime(source, ns=(0, 0))
    assert bench.build(source) == first
    assert bench.states == ["cached"]


def test_flags_and_definitions_are_part_of_the_key(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("VALUE"))
    host = bench.build.__defaults__[0]
    values = [
        call(bench.build(source, replace(host, definitions=(f"VALUE={value}",))))
        for value in (7, 8, 7)
    ]
    assert values == [7, 8, 7]
    assert bench.states == ["cached"]


@pytest.mark.parametrize("variable", ["CPATH", "CPLUS_INCLUDE_PATH"])
def test_folders_that_variables_name_are_part_of_the_key(bench, kernel, variable: str) -> None:
    source = bench.write("one.cpp", kernel("VALUE", "#include <value.h>"))
    host = bench.build.__defaults__[0]

    def build(folder: Path) -> int:
        bench.events.clear()
        environment = {**os.environ, variable: str(folder)}
        toolchain = Toolchain(bench.config(), bench.events.append, environment=environment)
        return call(toolchain.build_kernel(source, "aiv", host))

    folders = [bench.write(f"{i}/value.h", f"#define VALUE {i}\n").parent for i in (3, 4)]
    assert [build(folders[i]) for i in (0, 1, 0)] == [3, 4, 3]
    assert bench.states == ["cached"]


def test_truncated_artefact_is_built_again(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("1"))
    artefact = bench.build(source)
    artefact.write_bytes(artefact.read_bytes()[:100])
    assert call(bench.build(source)) == 1


# Invariant: A damaged artefact of the cache is not loaded but built again.
def test_an_artefact_with_a_damaged_block_is_built_again(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("1"))
    artefact = bench.build(source)
    with artefact.open("r+b") as file:
        file.write(bytes(512))
    assert call(bench.build(source)) == 1
    assert bench.states == ["started", "built"]


DAMAGES = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "zeroes": lambda content: bytes(len(content)),
    "a list": lambda content: b"[]",
    "no entries": lambda content: b'{"version": 4}',
    "one bit": lambda content: content.replace(b"c++", b"c+/").replace(b".so", b".sn"),
    "nesting": lambda content: b"[" * 100_000,
    "not text": lambda content: b"\xff\xfe" + content,
}


@pytest.mark.parametrize("folder", ["manifests", "compilers"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_is_written_again(bench, kernel, folder: str, damage: str) -> None:
    source = bench.write("one.cpp", kernel("1"))
    bench.build(source)
    records = list((bench.cache / folder).iterdir())
    assert records
    for record in records:
        intact = record.read_bytes()
        record.write_bytes(DAMAGES[damage](intact))
        assert record.read_bytes() != intact
    assert call(bench.build(source)) == 1
    assert bench.states == (["started", "built"] if folder == "manifests" else ["cached"])
    bench.build(source)
    assert bench.states == ["cached"]
    # Only one of the compilers is needed, and examined again.
    assert any(read_record(record) is not None for record in records)


def test_read_only_cache_still_serves(bench, kernel, monkeypatch) -> None:
    source = bench.write("one.cpp", kernel("1"))
    first = bench.build(source)

    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.mkdir", refuse)
    assert bench.build(source) == first


def test_cache_that_cannot_be_written_is_named(bench, kernel) -> None:
    bench.cache.write_text("a file where the folder should be")
    with pytest.raises(CompileError) as caught:
        bench.build(bench.write("one.cpp", kernel("1")))
    assert str(bench.cache) in caught.value.message
    assert "cache_dir" in caught.value.message


def test_many_are_built_at_once_and_returned_in_order(bench, kernel) -> None:
    sources = [bench.write(f"k{i}.cpp", kernel(str(i))) for i in range(6)]
    toolchain = Toolchain(bench.config(jobs=3), bench.events.append)
    host = bench.build.__defaults__[0]
    built = toolchain.build_many([toolchain.kernel(s, "aiv", host) for s in sources])
    assert [call(path) for path in built] == list(range(6))
    assert bench.events[-1].done == bench.events[-1].total == 6
    assert bench.leftovers() == []


def test_file_that_changes_while_it_is_read_is_not_noted(tmp_path) -> None:
    cache = ArtefactCache(tmp_path / "cache")
    cache.prepare()
    source = tmp_path / "source.cpp"
    source.write_text("x")
    with cache.scratch() as scratch:
        built = scratch / "artefact.so"
        built.write_bytes(b"binary")
        cache.store("key", built, [source], started_ns=source.stat().st_mtime_ns)
    assert cache.lookup("key") is None


def test_file_that_changed_within_one_clock_tick_is_seen(tmp_path) -> None:
    """The file has the times and the size that the manifest states, but other content."""
    cache = ArtefactCache(tmp_path / "cache")
    cache.prepare()
    source = tmp_path / "source.cpp"
    source.write_text("x")
    with cache.scratch() as scratch:
        built = scratch / "artefact.so"
        built.write_bytes(b"binary")
        cache.store("key", built, [source], started_ns=time.time_ns() + 10**9)
    assert cache.lookup("key") is not None
    source.write_text("y")
    state = source.stat()
    (manifest,) = (tmp_path / "cache" / "manifests").iterdir()
    document = read_record(manifest)
    (record,) = document["entries"][0]["files"]
    record[2:5] = [state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
    document["entries"][0]["hashed_ns"] = state.st_ctime_ns + 10**6
    write_record(manifest, document)
    assert cache.lookup("key") is None


def test_lock_is_exclusive_and_leaves_no_file(tmp_path) -> None:
    path = tmp_path / "a.lock"
    with FileLock(path) as first:
        assert first.try_acquire()
        assert not FileLock(path).try_acquire()
    assert not path.exists()
    with FileLock(path) as second:
        assert second.try_acquire()


def test_a_lock_of_a_removed_file_is_not_valid(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.lock"
    first, second = FileLock(path), FileLock(path)
    assert first.try_acquire()
    opened = os.open

    def open_and_release(*arguments: Any) -> int:
        descriptor = opened(*arguments)
        first.release()
        return descriptor

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_and_release)
        assert not second.try_acquire(), "the lock of a file that others cannot find"
    with second:
        assert second.try_acquire()
        assert not FileLock(path).try_acquire()


def test_depfile_with_odd_names(tmp_path) -> None:
    rule = tmp_path / "read.d"
    rule.write_text("artefact: /a/b.cpp \\\n /a/with\\ space.h rel.h \\\n /a/dol$$lar\\#.h\n")
    names = ["/a/b.cpp", "/a/with space.h", str(tmp_path / "rel.h"), "/a/dol$lar#.h"]
    assert [str(path) for path in read_depfile(rule, tmp_path)] == names


def test_new_header_that_would_be_found_first_is_seen(bench, kernel) -> None:
    bench.write("late/value.h", "#define VALUE 3\n")
    source = bench.write("one.cpp", kernel("VALUE", "#include <value.h>"))
    host = bench.build.__defaults__[0]
    folders = (bench.sources / "early", bench.sources / "late")

    def build() -> Path:
        bench.events.clear()
        toolchain = Toolchain(bench.config(), bench.events.append)
        return toolchain.build_kernel(source, "aiv", host, folders)

    assert call(build()) == 3
    bench.write("other.h", "")
    build()
    assert bench.states == ["cached"]
    shadow = bench.write("early/value.h", "#define VALUE 4\n")
    assert call(build()) == 4
    build()
    assert bench.states == ["cached"]
    shadow.unlink()
    assert call(build()) == 3


@pytest.mark.parametrize("name", ["value.h", "sub/value.h", "cstdint"])
def test_new_header_beside_the_source_is_seen(bench, kernel, name: str) -> None:
    bench.write(f"include/{name}", "#define VALUE 3\n#include_next <cstdint>\n")
    source = bench.write("kernels/one.cpp", kernel("VALUE", f'#include "{name}"'))
    host = bench.build.__defaults__[0]

    def build() -> int:
        bench.events.clear()
        toolchain = Toolchain(bench.config(), bench.events.append)
        return call(toolchain.build_kernel(source, "aiv", host, [bench.sources / "include"]))

    assert build() == 3
    bench.write(f"kernels/{name}", "#define VALUE 4\n")
    assert build() == 4
    assert build() == 4
    assert bench.states == ["cached"]


def test_new_header_in_a_folder_of_cxx_is_seen(bench, kernel, tmp_path) -> None:
    bench.write("late/value.h", "#define VALUE 3\n")
    source = bench.write("one.cpp", kernel("VALUE", "#include <value.h>"))
    script = tmp_path / "wrapper"
    script.write_text('#!/bin/sh\nexec g++ -I"$PWD/early" "$@" -I"$PWD/late"\n')
    script.chmod(0o755)
    for cxx in ("g++ -Iearly -Ilate", str(script)):
        assert call(bench.build(source, cxx=cxx)) == 3
        bench.build(source, cxx=cxx)
        assert bench.states == ["cached"]
        shadow = bench.write("early/value.h", "#define VALUE 4\n")
        assert call(bench.build(source, cxx=cxx)) == 4
        shadow.unlink()
        shadow.parent.rmdir()


PROBES = {
    "has_include": '#if __has_include("data")\n#define VALUE 4\n#else\n#define VALUE 3\n#endif',
    "spliced": '#if __has_\\\ninclude("data")\n#define VALUE 4\n#else\n#define VALUE 3\n#endif',
    "computed": '#define NAME "data"\n#if __has_include(NAME)\n#define VALUE 4\n'
    "#else\n#define VALUE 3\n#endif",
}


@pytest.mark.parametrize("probe", PROBES)
def test_header_that_a_source_asks_for_is_seen(bench, kernel, probe: str) -> None:
    bench.write("probe.h", f"{PROBES[probe]}\n")
    source = bench.write("one.cpp", kernel("VALUE", '#include "probe.h"'))
    assert call(bench.build(source)) == 3
    data = bench.write("data", "")
    assert call(bench.build(source)) == 4
    data.unlink()
    assert call(bench.build(source)) == 3


@pytest.mark.parametrize("directive", [".incbin", ".INCBIN", ".include"])
def test_file_that_the_assembler_reads_is_seen(bench, kernel, directive: str) -> None:
    def write(number: int) -> None:
        text = f".byte {number}\n" if "include" in directive else chr(number)
        bench.write("data", text)

    write(3)
    assembly = f'__asm__("the_data:\\n{directive} \\"data\\"\\n");'
    source = bench.write("one.cpp", kernel("the_data", f'extern "C" char the_data;{assembly}'))
    assert call(bench.build(source)) == 3
    write(4)
    assert call(bench.build(source)) == 4


def test_file_that_a_flag_names_is_seen(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("VALUE"))
    for number in (3, 4):
        words = bench.write("words", f"-DVALUE={number}")
        assert call(bench.build(source, cxx=f"g++ @{words}")) == number


def age(cache: Path, hours: float) -> None:
    """Make all artefacts older by some hours, and keep their order."""
    for path in (cache / "artefacts").iterdir():
        state = path.stat()
        os.utime(path, (state.st_atime, state.st_mtime - 3600 * hours))


def test_least_recently_used_artefacts_are_removed(bench, kernel) -> None:
    sources = [bench.write(f"{index}.cpp", kernel(str(index))) for index in range(4)]
    built = []
    for source in sources:
        built.append(bench.build(source))
        age(bench.cache, 1)
    bench.build(sources[0])  # makes the first artefact the one that was used last
    age(bench.cache, 1)
    size_bytes = built[0].stat().st_size
    limit_bytes = 3 * size_bytes + size_bytes // 2
    last = bench.build(bench.write("last.cpp", kernel("9")), cache_limit_bytes=limit_bytes)
    assert [path.exists() for path in built] == [True, False, False, True]
    assert last.exists()
    assert ArtefactCache(bench.cache).size()[0] == 3
    assert len(list((bench.cache / "manifests").iterdir())) == 3
    assert call(bench.build(sources[1])) == 1
    assert bench.states == ["started", "built"]
    assert bench.leftovers() == []


def test_removal_of_an_older_version_keeps_the_newer_one(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("1"))
    older = bench.build(source)
    age(bench.cache, 1)
    source.write_text(kernel("2"))
    newer = bench.build(source)
    age(bench.cache, 1)
    ArtefactCache(bench.cache).trim(newer.stat().st_size)
    assert (older.exists(), newer.exists()) == (False, True)
    assert bench.build(source) == newer
    assert bench.states == ["cached"]


def test_artefacts_in_recent_use_stay_whatever_the_limit(bench, kernel) -> None:
    first = bench.build(bench.write("one.cpp", kernel("1")), cache_limit_bytes=1)
    second = bench.build(bench.write("two.cpp", kernel("2")), cache_limit_bytes=1)
    assert first.exists()
    assert second.exists()


def test_no_limit_keeps_everything(bench, kernel) -> None:
    first = bench.build(bench.write("one.cpp", kernel("1")))
    age(bench.cache, 10_000)
    bench.build(bench.write("two.cpp", kernel("2")), cache_limit_bytes=0)
    assert first.exists()


def test_many_processes_trim_and_use_the_cache_at_once(bench, kernel) -> None:
    """No build fails, and each returned artefact can be loaded."""
    sources = [bench.write(f"{index}.cpp", kernel(str(index))) for index in range(3)]
    script = textwrap.dedent("""
        import os, sys, pathlib
        from pto_core.config import load_core
        from pto_core.interfaces import BuildRecipe
        from pto_core.toolchain import Toolchain
        config = load_core({"cache_dir": sys.argv[1], "cache_limit_bytes": 1}, environ={})
        for turn in range(6):
            for path in pathlib.Path(sys.argv[1], "artefacts").glob("*"):
                try:
                    if turn % 2: os.utime(path, (0, 0))
                except OSError:
                    pass
            toolchain = Toolchain(config)
            for source in sys.argv[2:]:
                built = toolchain.build_kernel(pathlib.Path(source), "aiv", BuildRecipe())
                print(built.suffix)
    """)
    command = [sys.executable, "-c", script, str(bench.cache), *map(str, sources)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for one in running:
        output, errors = one.communicate()
        assert (one.returncode, errors) == (0, "")
        assert output.split() == [".so"] * 18
    assert bench.leftovers() == []


def test_the_files_of_a_build_are_listed_without_those_of_the_system(bench, kernel):
    bench.write("parts/b.h", "#define B 2\n")
    bench.write("parts/a.h", '#include "b.h"\n#include <vector>\n')
    source = bench.write("k.cpp", '#include "parts/a.h"\n' + kernel("B"))
    toolchain = Toolchain(bench.config())
    request = toolchain.kernel(source, "aiv", BuildRecipe())
    listed = {path.relative_to(bench.sources).as_posix() for path in toolchain.files_read(request)}
    assert listed == {"k.cpp", "parts/a.h", "parts/b.h"}
    bench.write("parts/b.h", '#include "gone.h"\n')
    with pytest.raises(CompileError, match=r"gone\.h"):
        toolchain.files_read(request)
    assert bench.leftovers() == []
