"""The content-addressed cache of compiled artefacts.

Layout, below the cache folder::

    manifests/<key>.json    the files that were read to build <key>, and the resulting artefact
    artefacts/<hash>.so     an artefact; its name is the hash of all its inputs
    sources/<hash>/         the files of a source from another host (SourceFolders)
    compilers/<key>.json    the capabilities of a compiler (compilers.py)
    scratch/<name>/         a build in progress; its builder has locked <name>.lock beside it
    locks/<key>.lock        held by the process that builds <key>

A key is the hash of the command, the compiler's identity and the path of the source. A manifest
lists every file that the compiler read, with its content hash, so that a changed header is detected
without running the compiler. It also lists the names under which a new header could replace one of
these files; if a source probes or embeds files, no list is complete, and no lookup finds the
artefact. The modification time of an artefact is the time of its last use. Invariants:
a file below ``manifests``, ``artefacts`` or ``sources`` is complete (written in ``scratch``,
synced, then renamed); a scratch folder whose lock is free has no owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pto_core.errors import ConfigError
from pto_core.kernels.callables import file_digest
from pto_core.trust import make_folder, reason_for_distrust

POLL_S = 0.02


class FileLock:
    """An exclusive lock of a file between processes, an ``flock``; one instance for each thread.

    The file exists only while a process holds the lock or waits for it, so no unused files remain.
    A holder that is killed loses the lock with its process, and the next holder removes the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def try_acquire(self) -> bool:
        """Take the lock if it is free; raises OSError if the folder cannot be written."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        if not self._is_current(descriptor):
            os.close(descriptor)  # the holder removed the file between open and flock
            return False
        self._descriptor = descriptor
        return True

    def acquire(self, pause: Callable[[float], None]) -> None:
        """Take the lock; between attempts call ``pause(seconds)``, which may raise to give up."""
        while not self.try_acquire():
            pause(POLL_S)

    def release(self) -> None:
        """Remove the file and release the lock; a second call has no effect."""
        if self._descriptor < 0:
            return
        # Remove the file before the lock is released. A process that has opened the removed file
        # gets its lock, detects that the file was removed, and tries again.
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = -1

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()


# Record why a later build could differ although no file that the compiler read has changed.
#
# The compiler takes a header from the first searched folder that has it, so a new file in an
# earlier folder would replace it. The record lists these names. For `/lib/pto/a.h`, found in
# `/lib`, they are `pto/a.h` in each folder that is searched before `/lib`, and in the folders of
# the files that may include it, which are searched first.
#
# A source can also ask whether a file exists (`__has_include`), or take bytes of a file that the
# compiler does not report (`.incbin`). The names of such files can be computed by macros and by the
# assembler, so nothing is recorded: the artefact is built again at each use.
FreeNames = dict[str, list[str]]
"""Keys: existing folders. Values: names that do not exist in the folder."""

_PROBE = re.compile(
    rb"__has_include|__has_embed|^[ \t]*(?:#|%:|\?\?=).*\bembed\b|incbin|\.include\b",
    re.MULTILINE | re.IGNORECASE,
)
_SPLICE = re.compile(rb"\\[ \t]*\r?\n")
_LIST = re.compile(
    r'^#include "\.\.\." search starts here:\n(.*?)^#include <\.\.\.> search starts here:\n(.*?)'
    r"^End of search list\.",
    re.MULTILINE | re.DOTALL,
)
_MISSING = re.compile(r'^ignoring nonexistent directory "(.*)"$', re.MULTILINE)
# A folder of the search list that has one of these headers belongs to the compiler.
_COMPILER_HEADERS = ("cstddef", "stddef.h", "stdlib.h")


def searched_folders(output: str, folder: Path) -> list[Path] | None:
    """Return the folders of ``-v`` in the order of the search; None if the output has no list.

    A folder that does not exist is first, because the output does not say its place. Relative paths
    are resolved at ``folder``.
    """
    found = _LIST.search(output)
    if found is None:
        return None
    lines = [*_MISSING.findall(output), *found[1].splitlines(), *found[2].splitlines()]
    return [folder / line.strip(" ") for line in lines]


def free_names(read: Iterable[Path], searched: Sequence[Path]) -> FreeNames | None:
    """Return the missing names that, if created, would hide a file in ``read``.

    Return None if a file in ``read`` that is not of the compiler probes or embeds files.
    """
    files = list(read)
    own = [one for one in searched if any((one / name).is_file() for name in _COMPILER_HEADERS)]
    written = [path for path in files if not any(one in path.parents for one in own)]
    if any(_PROBE.search(_SPLICE.sub(b"", path.read_bytes())) for path in written):
        return None
    wanted = set(_hiding(files, searched, {path.parent for path in written}))
    content: dict[str, frozenset[str]] = {}
    found: dict[str, set[str]] = {}
    for folder, end in wanted:
        place = _first_free(folder, end, content)
        if place is not None:
            found.setdefault(place[0], set()).add(place[1])
    return {folder: sorted(names) for folder, names in sorted(found.items())}


def _hiding(
    files: Iterable[Path], searched: Sequence[Path], beside: set[Path]
) -> Iterable[tuple[Path, tuple[str, ...]]]:
    """Return the paths, as folder and rest, that are searched before a file that was read."""
    for path in files:
        for index, found_in in enumerate(searched):
            if found_in in path.parents:
                end = path.relative_to(found_in).parts
                yield from ((earlier, end) for earlier in (*searched[:index], *beside))


def are_free(names: FreeNames | None) -> bool:
    """Return whether the build can be trusted, and none of the names exists."""
    return names is not None and all(
        _names_in(folder).isdisjoint(absent) for folder, absent in names.items()
    )


def _first_free(
    folder: Path, end: tuple[str, ...], content: dict[str, frozenset[str]]
) -> tuple[str, str] | None:
    """Return the first missing part of ``folder/end`` and its parent; None if all parts exist."""
    place = "/" if not folder.is_dir() else str(folder)
    for part in (*folder.parts[1:], *end) if place == "/" else end:
        if place not in content:
            content[place] = _names_in(place)
        if part not in content[place] and part != "..":
            return place, part
        place = os.path.join(place, part)
    return None


def _names_in(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


_MANIFEST_VERSION = 4
_ENTRIES_PER_KEY = 8
# File times have a limited resolution. If a file changed within this time before it was hashed, it
# may have changed again without a new modification time.
_SETTLED_NS = 1_000_000_000
# A process that found an artefact within this time may be about to load it, so the artefact is not
# removed.
_IN_USE_S = 600.0
# A use is recorded only if the last record is older than this, so that a build without changes
# writes no file.
_NOTE_USE_S = 60.0


class ArtefactCache:
    """The artefacts below ``root``. Every method may raise OSError if the folder cannot be used."""

    def __init__(self, root: Path) -> None:
        self._manifests = root / "manifests"
        self._artefacts = root / "artefacts"
        self._scratch = root / "scratch"
        self._locks = root / "locks"

    def lookup(self, key: str) -> Path | None:
        """Return the artefact of ``key`` if its input files have not changed, otherwise None."""
        for entry in self._entries(key):
            unchanged = all(_is_unchanged(record, entry["hashed_ns"]) for record in entry["files"])
            if unchanged and are_free(entry["free"]):
                artefact: Path = self._artefacts / entry["artefact"]
                with contextlib.suppress(OSError):
                    trusted = reason_for_distrust(artefact) is None
                    if trusted and file_digest(artefact).hex() == entry["content"]:
                        _note_use(artefact, artefact.stat().st_mtime)
                        return artefact
        return None

    def produced(self, key: str, artefact: Path) -> bool:
        """Return whether a build of ``key`` has stored ``artefact``."""
        return any(entry["artefact"] == artefact.name for entry in self._entries(key))

    def files(self, key: str) -> list[Path]:
        """Return the files that the compiler read for the newest artefact of ``key``."""
        return [Path(record[0]) for entry in self._entries(key)[:1] for record in entry["files"]]

    def prepare(self) -> None:
        """Create the folders of the cache. Raises ConfigError if other users can write them."""
        for folder in (self._manifests, self._artefacts, self._scratch, self._locks):
            make_folder(folder)
            reason = reason_for_distrust(folder)
            if reason is not None:
                root = folder.parent
                raise ConfigError(
                    f"the cache folder {root} is not used: {reason}, or choose another folder with "
                    "--set cache_dir=FOLDER or PTO_CACHE_DIR",
                    name="cache_dir",
                    value=str(root),
                )

    def sweep(self) -> None:
        """Remove scratch folders and lock files of processes that have ended.

        A scratch folder may have no lock file, if a compiler ran longer than its killed builder and
        wrote a file while another sweep removed the folder.
        """
        with contextlib.suppress(OSError):
            for folder in (self._scratch, self._locks):
                for path in {entry.with_suffix(".lock") for entry in folder.iterdir()}:
                    with FileLock(path) as lock:
                        if lock.try_acquire():
                            shutil.rmtree(path.with_suffix(""), ignore_errors=True)

    def size(self) -> tuple[int, int]:
        """Return the number of artefacts and their total size in bytes."""
        sizes = [state.st_size for _, state in self._stated()]
        return len(sizes), sum(sizes)

    def trim(self, limit_bytes: int) -> None:
        """Remove the least recently used artefacts until the total size is within the limit.

        Artefacts that were used in the last ten minutes are never removed. If another process is
        removing artefacts, this call does nothing.
        """
        with FileLock(self._locks / "trim.lock") as lock:
            if not lock.try_acquire():
                return
            artefacts = sorted(self._stated(), key=lambda found: found[1].st_mtime)
            excess = sum(state.st_size for _, state in artefacts) - limit_bytes
            newest = time.time() - _IN_USE_S
            removed = False
            for path, state in artefacts:
                if excess <= 0 or state.st_mtime > newest:
                    break
                path.unlink(missing_ok=True)
                excess -= state.st_size
                removed = True
            if removed:
                self._remove_useless_manifests()

    def _stated(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self._artefacts.glob("*"):
            with contextlib.suppress(OSError):  # another process has removed it
                yield path, path.stat()

    def _remove_useless_manifests(self) -> None:
        for path in self._manifests.glob("*.json"):
            if any(
                (self._artefacts / one["artefact"]).exists() for one in self._entries(path.stem)
            ):
                continue
            with FileLock(self._locks / f"{path.stem}.lock") as lock:
                if lock.try_acquire():  # otherwise another process is building it
                    path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def building(self, key: str, pause: Callable[[float], None]) -> Iterator[None]:
        """Hold the lock for building ``key``; call ``pause`` while another process holds it."""
        with FileLock(self._locks / f"{key}.lock") as lock:
            lock.acquire(pause)
            yield

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Create a private folder in the cache; remove it at the end of the ``with`` block."""
        folder = self._scratch / f"{os.getpid()}-{os.urandom(6).hex()}"
        with FileLock(Path(f"{folder}.lock")) as lock:
            while not lock.try_acquire():
                pass  # a sweep removed the file before it was locked
            try:
                folder.mkdir()
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def store(
        self,
        key: str,
        built: Path,
        read: Iterable[Path],
        started_ns: int,
        searched: Sequence[Path] | None = (),
    ) -> Path:
        """Move ``built``, a file in a scratch folder, into the cache and record the input files.

        ``searched``: the folders in which the compiler searched headers, in their order; None if
        they are not known, so that the next lookup builds again. If a file in ``read`` changed
        after ``started_ns``, no manifest is written. Returns the artefact's path in the cache.
        """
        hashed_ns = time.time_ns()
        files = sorted(set(read))
        records = [_record(path) for path in files]
        settled = all(max(record[2], record[3]) < started_ns for record in records)
        digest = hashlib.sha256(key.encode())
        for record in records:
            digest.update(f"\0{record[0]}\0{record[5]}".encode(errors="surrogateescape"))
        free = None if searched is None else free_names(files, searched)
        if not settled or free is None:
            digest.update(built.read_bytes())
        artefact = self._artefacts / f"{digest.hexdigest()[:40]}{built.suffix}"
        built.chmod(0o755)
        sync(built)
        content = file_digest(built).hex()
        built.replace(artefact)
        if settled:
            entry = {
                "artefact": artefact.name,
                "content": content,
                "hashed_ns": hashed_ns,
                "files": records,
                "free": free,
            }
            others = [old for old in self._entries(key) if old["artefact"] != artefact.name]
            self._write_manifest(key, [entry, *others[: _ENTRIES_PER_KEY - 1]], built.parent)
        return artefact

    def _entries(self, key: str) -> list[dict[str, Any]]:
        manifest = read_record(self._manifests / f"{key}.json") or {}
        is_current = manifest.get("version") == _MANIFEST_VERSION
        entries: list[dict[str, Any]] = manifest["entries"] if is_current else []
        return entries

    def _write_manifest(self, key: str, entries: list[dict[str, Any]], scratch: Path) -> None:
        partial = scratch / "manifest.json"
        write_record(partial, {"version": _MANIFEST_VERSION, "entries": entries})
        sync(partial)
        partial.replace(self._manifests / f"{key}.json")


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, and a hash of it in the line before, with which :func:`read_record` checks it."""
    text = json.dumps(content)
    path.write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}", encoding="ascii")
    path.chmod(0o644)


def read_record(path: Path) -> dict[str, Any] | None:
    """Read a file of :func:`write_record`; return None if it is missing, damaged or not trusted."""
    try:
        if reason_for_distrust(path) is not None:
            return None
        seal, _, text = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    is_intact = seal == hashlib.sha256(text).hexdigest().encode()
    content: dict[str, Any] | None = json.loads(text) if is_intact else None
    return content


def _record(path: Path) -> list[Any]:
    """Return the path, size, mtime, ctime, inode and content hash of a file."""
    state = path.stat()
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    return [str(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, content]


def _note_use(artefact: Path, noted_s: float) -> None:
    """Record a use of the artefact now; do nothing if the cache cannot be written."""
    if time.time() - noted_s > _NOTE_USE_S:
        with contextlib.suppress(OSError):
            os.utime(artefact)


def _is_unchanged(record: list[Any], hashed_ns: int) -> bool:
    path, size, mtime_ns, ctime_ns, inode, content = record
    try:
        state = os.stat(path)
        if state.st_size != size:
            return False
        same = (state.st_mtime_ns, state.st_ctime_ns, state.st_ino) == (mtime_ns, ctime_ns, inode)
        if same and ctime_ns + _SETTLED_NS < hashed_ns:
            return True
        return bool(hashlib.sha256(Path(path).read_bytes()).hexdigest() == content)
    except OSError:
        return False


def sync(path: Path) -> None:
    """Write the content of a file to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
