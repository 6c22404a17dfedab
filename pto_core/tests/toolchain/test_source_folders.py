"""Folders of sources from other hosts are complete, written once, and removed only when unused."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from pto_core.toolchain.source_folders import SourceFolders

FILES = {"k.cpp": b"one", "include/a.h": b"two"}


def content_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def age(path: Path, seconds: int) -> None:
    state = path.stat()
    os.utime(path, (state.st_atime - seconds, state.st_mtime - seconds))


def test_a_folder_has_exactly_its_files_and_folders(tmp_path: Path) -> None:
    with SourceFolders(tmp_path) as folders:
        made = folders.folder(FILES, ["empty/inner", "include"])
        assert content_of(made) == FILES
        assert (made / "empty" / "inner").is_dir()
        assert list((tmp_path / "scratch").iterdir()) == []


def test_every_part_of_the_content_makes_the_name(tmp_path: Path) -> None:
    with SourceFolders(tmp_path) as folders:
        made = [
            folders.folder(FILES),
            folders.folder({**FILES, "k.cpp": b"three"}),
            folders.folder({"l.cpp": b"one", "include/a.h": b"two"}),
            folders.folder(FILES, ["empty"]),
            folders.folder({"k.cpp": b"one", "include/a.htwo": b""}),
        ]
        assert len(set(made)) == len(made)
        assert folders.folder(dict(reversed(FILES.items()))) == made[0]


def test_an_existing_folder_is_not_written_again(tmp_path: Path) -> None:
    with SourceFolders(tmp_path) as folders:
        made = folders.folder(FILES)
    states = {path: path.stat() for path in made.rglob("*") if path.is_file()}
    with SourceFolders(tmp_path) as folders:
        assert folders.folder(FILES) == made
    assert all(path.stat().st_ino == state.st_ino for path, state in states.items())


def test_a_damaged_folder_is_written_again(tmp_path: Path) -> None:
    for damage in (lambda file: file.write_bytes(b"onE"), Path.unlink):
        with SourceFolders(tmp_path) as folders:
            made = folders.folder(FILES)
        damage(made / "k.cpp")
        with SourceFolders(tmp_path) as folders:
            assert content_of(folders.folder(FILES)) == FILES
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_least_recently_used_folders_are_removed(tmp_path: Path) -> None:
    with SourceFolders(tmp_path) as folders:
        old, used = folders.folder({"k": bytes(600)}), folders.folder({"k": bytes(601)})
    age(old, 50)
    age(used, 100)
    with SourceFolders(tmp_path) as folders:
        assert folders.folder({"k": bytes(601)}) == used
    with SourceFolders(tmp_path, limit_bytes=1500) as folders:
        new = folders.folder({"k": bytes(602)})
        assert not old.exists()
        assert used.exists()
        assert new.exists()
        assert list((tmp_path / "scratch").iterdir()) == []


def test_folders_that_any_process_uses_stay(tmp_path: Path) -> None:
    with SourceFolders(tmp_path) as other, SourceFolders(tmp_path, limit_bytes=1) as folders:
        used = other.folder({"k": bytes(600)})
        age(used, 1000)
        own = folders.folder({"k": bytes(601)})
        assert used.exists()
        assert own.exists()
        other.close()
        folders.folder({"k": bytes(602)})
        assert not used.exists()
        assert own.exists()


def test_a_removed_folder_is_written_again(tmp_path: Path) -> None:
    with SourceFolders(tmp_path) as folders:
        first = folders.folder(FILES)
    with SourceFolders(tmp_path, limit_bytes=1) as folders:
        folders.folder({"k": b"x"})
        assert not first.exists()
        assert content_of(folders.folder(FILES)) == FILES


def write_often(root: Path, seed: int) -> None:
    for turn in range(60):
        with SourceFolders(root, limit_bytes=1) as folders:
            for number in range(3):
                content = {"k": bytes(100 + number), "h/h": b"x"}
                made = folders.folder(content)
                assert content_of(made) == content, (seed, turn)


@pytest.mark.parametrize("count", [4])
def test_processes_that_write_and_remove_the_same_folders_see_whole_ones(
    tmp_path: Path, count: int
) -> None:
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=write_often, args=(tmp_path, seed)) for seed in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * count
    assert list((tmp_path / "scratch").iterdir()) == []
