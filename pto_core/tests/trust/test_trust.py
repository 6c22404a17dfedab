"""A file that another user could have written is found, with its owner, mode and a remedy."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pto_core.trust import make_folder, reason_for_distrust


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a" / "b" / "file"
    path.parent.mkdir(parents=True)
    path.write_text("x")
    return path


def test_own_files_and_files_that_do_not_exist_are_trusted(file: Path) -> None:
    assert reason_for_distrust(file) is None
    assert reason_for_distrust(file.with_name("missing") / "below") is None
    assert reason_for_distrust(Path("/etc/passwd")) is None


# Invariant: Settings, keys, lists of clients and caches that another user could have written are
# not used.
def test_a_file_of_another_user(file: Path, give_away: Callable[[Path], int]) -> None:
    owner = give_away(file)
    reason = reason_for_distrust(file)
    assert reason is not None
    assert f"uid {owner}" in reason
    assert "mode 0644" in reason
    assert "chown" in reason


@pytest.mark.parametrize("step", ["file", "folder", "folder above"])
def test_what_every_user_can_write(file: Path, step: str) -> None:
    path = {"file": file, "folder": file.parent, "folder above": file.parent.parent}[step]
    path.chmod(path.stat().st_mode | 0o002)
    reason = reason_for_distrust(file)
    assert reason is not None
    assert reason.startswith(f"{path} ")
    assert f"{stat.S_IMODE(path.stat().st_mode):04o}, so every user can change it" in reason
    assert reason.endswith(f"`chmod o-w {path}`")
    path.chmod(path.stat().st_mode & ~0o002)
    assert reason_for_distrust(file) is None


def test_a_sticky_folder_protects_the_files_of_their_owner_only(
    file: Path, give_away: Callable[[Path], int]
) -> None:
    file.parent.chmod(0o1777)
    assert reason_for_distrust(file) is None
    assert reason_for_distrust(file.parent / "missing") is None
    assert reason_for_distrust(file.parent) is not None  # others can add files to it
    link = file.with_name("link")
    link.symlink_to(file)
    assert reason_for_distrust(link) is None
    give_away(link)
    assert "link belongs to" in str(reason_for_distrust(link))


def test_every_link_and_its_target_count(file: Path, tmp_path: Path) -> None:
    middle = tmp_path / "open" / "middle"
    middle.parent.mkdir()
    middle.symlink_to(Path("..") / "a" / "b")
    link = tmp_path / "link"
    link.symlink_to(middle)
    assert reason_for_distrust(link / "file") is None
    middle.parent.chmod(0o777)
    assert f"{middle.parent} " in str(reason_for_distrust(link / "file"))
    middle.parent.chmod(0o755)
    file.parent.chmod(0o1777)  # at the end of the link, it is not a folder above a file
    assert reason_for_distrust(link) is not None
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(OSError, match="symbolic links"):
        reason_for_distrust(link)


def test_only_a_private_group_may_write(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.chmod(0o664)
    owner = pwd.getpwuid(os.geteuid())

    def group(name: str, members: list[str]) -> Callable[[int], grp.struct_group]:
        return lambda gid: grp.struct_group((name, "x", gid, members))

    monkeypatch.setattr(pwd, "getpwuid", lambda _: owner)
    monkeypatch.setattr(os, "listxattr", lambda _: [])
    for name, members in ((owner.pw_name, []), (owner.pw_name, [owner.pw_name])):
        monkeypatch.setattr(grp, "getgrgid", group(name, members))
        assert reason_for_distrust(file) is None
    for name, members in (("users", []), (owner.pw_name, [owner.pw_name, "eve"])):
        monkeypatch.setattr(grp, "getgrgid", group(name, members))
        assert f"group {name} can change it" in str(reason_for_distrust(file))
    monkeypatch.setattr(grp, "getgrgid", group(owner.pw_name, []))
    other = pwd.struct_passwd((*owner[:3], owner.pw_gid + 1, *owner[4:]))
    with monkeypatch.context() as patch:  # the primary group of the owner is another one
        patch.setattr(pwd, "getpwuid", lambda _: other)
        assert reason_for_distrust(file) is not None
    monkeypatch.setattr(os, "listxattr", lambda _: ["system.posix_acl_access"])
    assert reason_for_distrust(file) is not None


def test_a_path_has_as_many_links_as_the_system_follows(file: Path) -> None:
    link = file
    for number in range(40):
        following = file.with_name(f"link{number}")
        following.symlink_to(link.name)
        link = following
    assert reason_for_distrust(link) is None
    (file.parent / "one-more").symlink_to(link.name)
    with pytest.raises(OSError, match="one-more"):
        reason_for_distrust(file.parent / "one-more")


def test_made_folders_are_private_whatever_the_umask(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        make_folder(tmp_path / "a" / "b")
        make_folder(tmp_path / "a" / "b")
    finally:
        os.umask(umask)
    assert reason_for_distrust(tmp_path / "a" / "b") is None
