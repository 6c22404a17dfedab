"""What is built once stays built, until something that went into it changes."""

from __future__ import annotations

import ctypes
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pto_core.errors import CompileError
from pto_core.toolchain import Toolchain
from pto_core.toolchain.cache import ArtefactCache
from pto_core.toolchain.depfile import read_depfile
from pto_core.toolchain.locks import FileLock


def call(library: Path) -> int:
    """Give what the kernel stores; loads a copy, since the loader keeps a path it has seen."""
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
    monkeypatch.setattr("subprocess.Popen", None)  # any child would be a TypeError
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
    # Same size and same modification time: the content decides.
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


def test_truncated_artefact_is_built_again(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("1"))
    artefact = bench.build(source)
    artefact.write_bytes(artefact.read_bytes()[:100])
    assert call(bench.build(source)) == 1


def test_damaged_manifest_is_built_again(bench, kernel) -> None:
    source = bench.write("one.cpp", kernel("1"))
    bench.build(source)
    for manifest in (bench.cache / "manifests").iterdir():
        manifest.write_bytes(b'{"version": 1, "entr')
    assert call(bench.build(source)) == 1
    assert bench.states == ["started", "built"]


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


def test_many_are_built_at_once_in_the_order_asked(bench, kernel) -> None:
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


def test_lock_is_exclusive_and_leaves_no_file(tmp_path) -> None:
    path = tmp_path / "a.lock"
    with FileLock(path) as first:
        assert first.try_acquire()
        assert not FileLock(path).try_acquire()
    assert not path.exists()
    with FileLock(path) as second:
        assert second.try_acquire()


def test_depfile_with_odd_names(tmp_path) -> None:
    rule = tmp_path / "read.d"
    rule.write_text("artefact: /a/b.cpp \\\n /a/with\\ space.h rel.h \\\n /a/dol$$lar\\#.h\n")
    names = ["/a/b.cpp", "/a/with space.h", str(tmp_path / "rel.h"), "/a/dol$lar#.h"]
    assert [str(path) for path in read_depfile(rule, tmp_path)] == names
