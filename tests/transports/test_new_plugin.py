"""A transport that `pto new plugin` writes keeps its contract as it is."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path


def install(project: Path, site: Path) -> None:
    """Write the metadata that an installer would make of the project's pyproject.toml."""
    stated = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    metadata = site / f"{stated['name'].replace('-', '_')}-{stated['version']}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {stated['name']}\nVersion: {stated['version']}\n"
    )
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items())
        for group, names in stated["entry-points"].items()
    )
    (metadata / "entry_points.txt").write_text(points)


def test_a_new_transport_keeps_its_contract_untouched(tmp_path: Path) -> None:
    pto = Path(sys.executable).with_name("pto")
    command = [pto, "new", "plugin", "transport", "pigeon"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    project = tmp_path / "pto-transport-pigeon"
    install(project, tmp_path / "site")
    paths = (tmp_path / "site", project / "src", os.environ.get("PYTHONPATH", ""))
    options = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(project))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(project / "tests")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, filter(None, paths)))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert " passed" in done.stdout
