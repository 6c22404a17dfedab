"""Find the Linux package that contains a compiler or header."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping

# For each code name of a Debian or Ubuntu release: the version of the package `g++`, and of the
# newest g++.
_APT_RELEASES = {
    "bullseye": (10, 10),
    "bookworm": (12, 12),
    "trixie": (14, 14),
    "focal": (9, 10),
    "jammy": (11, 12),
    "noble": (13, 14),
}
_GXX = {
    "debian": "apt-get install g++",
    "fedora": "dnf install gcc-c++",
    "rhel": "dnf install gcc-c++",
    "suse": "zypper install gcc-c++",
    "alpine": "apk add g++",
    "arch": "pacman -S gcc",
}
_PYTHON_HEADERS = {
    "debian": "apt-get install python{version}-dev",
    "fedora": "dnf install python3-devel",
    "rhel": "dnf install python3-devel",
    "suse": "zypper install python3-devel",
    "alpine": "apk add python3-dev",
}


def this_release() -> Mapping[str, str]:
    """Return the fields of ``/etc/os-release``; empty if the file does not exist."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def gxx_advice(least: int, release: Mapping[str, str] | None = None) -> str:
    """Return advice for installing g++ ``least`` or newer; name a package if one is known."""
    release = this_release() if release is None else release
    codenames = (release.get("UBUNTU_CODENAME"), release.get("VERSION_CODENAME"))
    known = next((_APT_RELEASES[name] for name in codenames if name in _APT_RELEASES), None)
    if known is None:
        command = _by_family(_GXX, release)
        hint = f", such as with `{command}` if it is new enough" if command else ""
        return f"install g++ {least} or newer{hint}"
    default, newest = known
    if newest < least:
        name = release.get("PRETTY_NAME", "this release")
        return (
            f"the newest package of {name} is g++-{newest}: use a newer release of the "
            f"distribution, or a container, with g++ {least} or newer"
        )
    package = "g++" if default >= least else f"g++-{newest}"
    return f"install g++ {least} or newer: `apt-get install {package}`"


def python_headers_advice(
    version: str, release: Mapping[str, str] | None = None, prefix: str = sys.base_prefix
) -> str:
    """Return advice for installing the headers of Python ``version`` below ``prefix``."""
    release = this_release() if release is None else release
    command = _by_family(_PYTHON_HEADERS, release) if prefix == "/usr" else None
    if command is None:
        return f"install the development files of the Python below {prefix}"
    return command.format(version=version)


def _by_family(commands: Mapping[str, str], release: Mapping[str, str]) -> str | None:
    families = (release.get("ID", ""), *release.get("ID_LIKE", "").split())
    return next((commands[family] for family in families if family in commands), None)
