"""Decide whether another user could have written a file that determines what is executed.

Settings, key files, lists of clients and the cache of artefacts are trusted if every step of the
path passes these checks. A step is the file, each folder above it, and each symbolic link on the
way with the folders above its target.

- Its owner is root or the user of this process. Other owners can change it.
- No other user can write it. A folder above the file may have the sticky bit, as ``/tmp`` has: then
  other users can add files to it, but cannot replace those of its owner.
- Its group may write it only if the group is the owner's private group: the group has the name of
  the owner, is the owner's primary group, and lists no other member. Systems with such groups use
  umask 002. A file with an access control list has no private group.

Nothing can be replaced between the check and the use, because the steps belong to trusted users.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

_LINKS_MAX = 40
"""The limit of the kernel for symbolic links in one path."""


def reason_for_distrust(path: Path) -> str | None:
    """Name the step that another user can change, with owner, mode and remedy, or None.

    Steps that do not exist are ignored. Raises OSError, for example for a cycle of links.
    """
    for step, state, is_above in _steps(os.path.abspath(path)):
        reason = _reason(step, state, is_above=is_above)
        if reason is not None:
            return f"{step} {reason}"
    return None


def make_folder(path: Path) -> None:
    """Create a folder and missing folders above it, which only this user can write."""
    for folder in (*reversed(path.parents), path):
        if not folder.is_dir():
            folder.mkdir(0o700, exist_ok=True)


def _steps(path: str) -> Iterator[tuple[str, os.stat_result, bool]]:
    """Return each file, folder and link through which the path leads, from the root on.

    The last value of a step states whether it is above the end of the path.
    """
    place, left, links = "", path.split("/"), 0
    left.reverse()
    while left:
        part = left.pop()
        if part == "..":
            place = os.path.dirname(place)
        elif part not in ("", "."):
            place = f"{place}/{part}"
        elif place and left:
            continue
        try:
            state = os.lstat(place or "/")
        except FileNotFoundError:
            return
        yield place or "/", state, bool(left) or stat.S_ISLNK(state.st_mode)
        if stat.S_ISLNK(state.st_mode):
            links += 1
            if links > _LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(place)
            place = "" if target.startswith("/") else os.path.dirname(place)
            left += reversed(target.split("/"))


def _reason(step: str, state: os.stat_result, *, is_above: bool) -> str | None:
    mode = stat.S_IMODE(state.st_mode)
    owner = _name_of(state.st_uid)
    shown = f"belongs to {owner} and has mode {mode:04o}"
    if state.st_uid not in (0, os.geteuid()) and not (is_above and _is_unmapped(state.st_uid)):
        return (
            f"{shown}; pto trusts only files of root and of {_name_of(os.geteuid())}, who runs it: "
            "change the owner with `chown`, or use a file in a folder of your own"
        )
    is_sticky = is_above and mode & stat.S_ISVTX
    if stat.S_ISLNK(state.st_mode) or is_sticky:
        return None
    others = mode & stat.S_IWOTH
    if others or (mode & stat.S_IWGRP and not _is_private_group(step, state)):
        who, right = ("every user", "o-w") if others else (f"group {_group(state.st_gid)}", "g-w")
        return f"{shown}, so {who} can change it; remove this right with `chmod {right} {step}`"
    return None


def _is_private_group(step: str, state: os.stat_result) -> bool:
    try:
        owner, group = pwd.getpwuid(state.st_uid), grp.getgrgid(state.st_gid)
    except KeyError:
        return False
    if owner.pw_gid != state.st_gid or group.gr_name != owner.pw_name:
        return False
    try:
        has_list = "system.posix_acl_access" in os.listxattr(step)
    except OSError:  # the file system has no access control lists
        has_list = False
    return not has_list and set(group.gr_mem) <= {owner.pw_name}


def _is_unmapped(uid: int) -> bool:
    """Return whether ``uid`` stands for all users outside of this user namespace.

    A sandbox shows folders of the real root as folders of this user.
    """
    everyone = Path("/proc/self/uid_map").read_text().split()[-1] == str(2**32 - 1)
    return not everyone and str(uid) == Path("/proc/sys/kernel/overflowuid").read_text().strip()


def _name_of(uid: int) -> str:
    with contextlib.suppress(KeyError):
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    return f"uid {uid}"


def _group(gid: int) -> str:
    with contextlib.suppress(KeyError):
        return grp.getgrgid(gid).gr_name
    return str(gid)
