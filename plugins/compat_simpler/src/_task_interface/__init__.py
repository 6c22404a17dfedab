"""The build of this distribution, with which pypto marks its cached binaries."""

from importlib.metadata import version

__build_commit__ = f"ptorun-compat-simpler-{version('ptorun-compat-simpler')}"
