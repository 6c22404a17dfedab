"""Fake distributions: folders that look installed, with plugins that a test writes."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import textwrap
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pto_core.cli.main import main

# The source of a complete backend; tests replace parts of it to break it.
BACKEND = """
    from pathlib import Path
    from pto_core.interfaces import API_VERSION, Health, BuildRecipe, Option, parse

    class Fake:
        name = "{name}"
        api_version = API_VERSION
        capabilities = frozenset({{"threads"}})

        def health(self):
            return Health(ok=True)

        def library(self):
            return Path({library!r})

        def build_recipe(self, kind):
            return BuildRecipe()

        def options(self):
            return (Option("{name}.level", 3, parse.integer(0, 9), "a level", native="level"),)

    plugin = Fake()
"""
RUNTIME = BACKEND.replace("BuildRecipe", "OrchestrationBuild, ProgramInterface").replace(
    "def build_recipe(self, kind):\n            return OrchestrationBuild, ProgramInterface()",
    "def device_build(self):\n            return None\n\n"
    "        def program_interfaces(self):\n"
    "            return (ProgramInterface('fake', OrchestrationBuild((), Path()), ()),)",
)
TRANSPORT = """
    from pathlib import Path
    from pto_core.interfaces import API_VERSION, Health

    class Fake:
        name = "{name}"
        api_version = API_VERSION
        capabilities = frozenset({{"in_order", "same_addresses"}})
        frame_limit = 65536

        def health(self):
            return Health(ok=True)

        def library(self):
            return Path({library!r})

    plugin = Fake()
"""

SCHEDULER = """
    from pto_core.interfaces import API_VERSION, Health

    class Fake:
        name = "{name}"
        api_version = API_VERSION
        capabilities = frozenset()

        def health(self):
            return Health(ok=True)

        def policy(self):
            return lambda candidates, preferred: candidates[-1][0]

    plugin = Fake()
"""

LAUNCHER = """
    from pto_core.interfaces import API_VERSION, Health

    class Fake:
        name = "{name}"
        api_version = API_VERSION
        capabilities = frozenset()

        def health(self):
            return Health(ok=True)

        def open(self, agent, config): ...

    plugin = Fake()
"""

REMOTE_TRANSPORT = """
    from pto_core.interfaces import API_VERSION, Health

    class Fake:
        name = "{name}"
        api_version = API_VERSION
        capabilities = frozenset({{"encrypted", "peer_keys"}})

        def health(self):
            return Health(ok=True)

        reason_bytes = digest_bytes = 4096

        def child(self, worker, path, sibling=None): ...

        def buffers(self): ...

    plugin = Fake()
"""


@dataclass
class Site:
    """A folder of distributions, at the front of ``sys.path``."""

    folder: Path
    modules: list[str] = field(default_factory=list)

    def module(self, name: str, source: str) -> None:
        (self.folder / f"{name}.py").write_text(textwrap.dedent(source))
        self.modules.append(name)
        importlib.invalidate_caches()

    def install(
        self, distribution: str, entry_points: dict[str, str], version: str = "1.0"
    ) -> None:
        """Write the metadata; ``entry_points`` maps a group to its lines."""
        folder = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        )
        text = "".join(f"[{group}]\n{lines}\n\n" for group, lines in entry_points.items())
        (folder / "entry_points.txt").write_text(text)
        importlib.invalidate_caches()

    def backend(self, name: str, *changes: tuple[str, str], library: Path | None = None) -> None:
        """Install the distribution ``fake-NAME`` with one backend; ``changes`` edit its source."""
        self._install_plugin("backend", BACKEND, name, changes, library)

    def runtime(self, name: str, *changes: tuple[str, str], library: Path | None = None) -> None:
        """Install the distribution ``fake-NAME`` with one runtime; ``changes`` edit its source."""
        self._install_plugin("runtime", RUNTIME, name, changes, library)

    def transport(self, name: str, *changes: tuple[str, str], library: Path | None = None) -> None:
        """Install ``fake-NAME`` with one native transport; ``changes`` edit its source."""
        self._install_plugin("transport", TRANSPORT, name, changes, library)

    def scheduler(self, name: str, *changes: tuple[str, str]) -> None:
        """Install ``fake-NAME`` with one placement policy; ``changes`` edit its source."""
        self._install_plugin("scheduler", SCHEDULER, name, changes, None)

    def launcher(self, name: str, *changes: tuple[str, str]) -> None:
        """Install ``fake-NAME`` with one launcher; ``changes`` edit its source."""
        self._install_plugin("launcher", LAUNCHER, name, changes, None)

    def remote_transport(self, name: str, *changes: tuple[str, str]) -> None:
        """Install ``fake-NAME`` with one transport to other hosts; ``changes`` edit its source."""
        self._install_plugin("transport", REMOTE_TRANSPORT, name, changes, None)

    def observer(self, name: str, source: str) -> None:
        """Install the distribution ``fake-NAME`` with one observer, a module."""
        self.module(f"fake_{name}", source)
        self.install(f"fake-{name}", {"pto.observers": f"{name} = fake_{name}"})

    def _install_plugin(
        self,
        family: str,
        source: str,
        name: str,
        changes: tuple[tuple[str, str], ...],
        library: Path | None,
    ) -> None:
        source = textwrap.dedent(source).format(name=name, library=str(library or "missing.so"))
        for old, new in changes:
            assert old in source, f"the fake plugin has no {old!r} to change"
            source = source.replace(old, new)
        self.module(f"fake_{name}", source)
        self.install(f"fake-{name}", {f"pto.{family}s": f"{name} = fake_{name}:plugin"})

    def run(self, *command: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Run Python in a new process that finds the plugins of this site."""
        start = f"import sys; sys.path.insert(0, {str(self.folder)!r}); "
        return subprocess.run(
            [sys.executable, "-c", start + command[0], *command[1:]],
            capture_output=True,
            text=True,
            check=False,
            **options,  # type: ignore[call-overload]
        )

    def pto(self, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Run the ``pto`` command in a new process that finds the plugins of this site."""
        program = "from pto_core.cli.main import main; sys.exit(main(sys.argv[1:]))"
        return self.run(program, *arguments, **options)


def pto_here(*arguments: object, cwd: Path = Path()) -> subprocess.CompletedProcess[str]:
    """Run the ``pto`` command in this process, which saves the start and the imports of another.

    A case runs in a process of its own, as always.
    """
    words, output, errors = [str(word) for word in arguments], io.StringIO(), io.StringIO()
    with chdir(cwd), redirect_stdout(output), redirect_stderr(errors):
        code = main(words)
    return subprocess.CompletedProcess(words, code, output.getvalue(), errors.getvalue())


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return an empty site; modules that are imported from it are removed after the test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    site = Site(folder)
    yield site
    for name in site.modules:
        sys.modules.pop(name, None)


@pytest.fixture(scope="session")
def native_library(tmp_path_factory):
    """Return a function that builds a plugin's native library with a given ABI version."""

    def build(family: str, abi_version: int) -> Path:
        folder = tmp_path_factory.mktemp("native")
        source = folder / "plugin.c"
        source.write_text(
            f"static unsigned table[64] = {{{abi_version}u, 256u}};\n"
            f"const void* pto_{family}_entry(const char* variant) {{\n"
            "  (void)variant;\n  return table;\n}\n"
        )
        library = folder / "libplugin.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        return library

    return build
