"""Cache folders that contain source files from other hosts.

The name of a folder is the hash of its files. A folder is always complete, because it is written in
``scratch``, synced, then renamed. A process that uses a folder holds a shared ``flock`` on it. A
folder may be removed only under an exclusive ``flock``. The modification time of a folder is the
time of its last use.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from pto_core.kernels.callables import digest_of
from pto_core.toolchain.cache import ArtefactCache, sync

_HASH_BYTES = 20


class SourceFolders:
    """The folders that this process uses. They stay until :meth:`close` or the process's exit.

    Methods may raise OSError if the cache cannot be used. ``limit_bytes``: the limit for the total
    size of all folders (0 means no limit); locked folders are not removed. Only one thread uses the
    object.
    """

    def __init__(self, cache_dir: Path, limit_bytes: int = 0) -> None:
        self._cache = ArtefactCache(cache_dir)
        self._root = cache_dir / "sources"
        self._limit_bytes = limit_bytes
        self._held: dict[Path, int] = {}  # values: descriptors that hold the locks

    def folder(self, files: Mapping[str, bytes], folders: Collection[str] = ()) -> Path:
        """Return the folder that contains exactly these files; write it if it does not exist.

        Names are relative and use ``/``. The caller has checked that they stay inside the folder.
        ``folders``: folders to create in addition to those of the files.
        """
        parts = (part for name in sorted(files) for part in (name, files[name]))
        path = self._root / digest_of(*parts, "folders", *sorted(folders))[:_HASH_BYTES].hex()
        if path not in self._held:
            self._cache.prepare()
            while (descriptor := _hold(path)) is None or not _is_intact(path, files):
                if descriptor is not None:
                    self._set_aside(path, descriptor)
                self._write(path, files, folders)
            self._held[path] = descriptor
            self._trim()
        return path

    def close(self) -> None:
        """Release all folders, so that other processes may remove them."""
        while self._held:
            os.close(self._held.popitem()[1])

    def __enter__(self) -> SourceFolders:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _write(self, path: Path, files: Mapping[str, bytes], folders: Collection[str]) -> None:
        self._root.mkdir(exist_ok=True)
        with self._cache.scratch() as scratch:
            made = scratch / "files"
            made.mkdir()
            for name in folders:
                (made / name).mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                file = made / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                sync(file)
            try:
                made.rename(path)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise  # otherwise another process has written the folder

    def _set_aside(self, path: Path, descriptor: int) -> None:
        """Remove and close a damaged folder, unless another process has replaced it."""
        try:
            with (
                contextlib.suppress(FileNotFoundError),
                self._cache.building(path.name, time.sleep),
                self._cache.scratch() as scratch,
            ):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    path.rename(scratch / "damaged")
        finally:
            os.close(descriptor)

    def _trim(self) -> None:
        """Remove the least recently used unlocked folders until the total size is small enough."""
        if not self._limit_bytes:
            return
        known = sorted(self._known())
        excess = sum(size for _, size, _ in known) - self._limit_bytes
        for _, size, path in known:
            if excess <= 0:
                break
            if path not in self._held and self._remove(path):
                excess -= size

    def _known(self) -> Iterator[tuple[int, int, Path]]:
        """Return the time of the last use, the size and the path of each folder."""
        for path in self._root.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                yield path.stat().st_mtime_ns, _size(path), path

    def _remove(self, path: Path) -> bool:
        """Remove a folder; return False if a process holds its lock."""
        with contextlib.suppress(OSError):
            descriptor = _opened(path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with self._cache.scratch() as scratch:
                    path.rename(scratch / "removed")
            finally:
                os.close(descriptor)
            return True
        return False


def _is_intact(path: Path, files: Mapping[str, bytes]) -> bool:
    try:
        return all((path / name).read_bytes() == content for name, content in files.items())
    except OSError:
        return False


def _hold(path: Path) -> int | None:
    """Open a folder and take a shared lock; return the descriptor, or None if it does not exist."""
    try:
        descriptor = _opened(path)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            os.utime(descriptor)
            return descriptor
    except FileNotFoundError:
        pass  # another process removed it before the lock was taken
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _size(path: Path) -> int:
    found = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(os.lstat(file).st_size for file in found)
