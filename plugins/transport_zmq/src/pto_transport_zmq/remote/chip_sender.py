"""Chip callables by content: read the files that their sources include, for another host.

Headers in folders of the system are not sent, nor are those of the installed backend, runtime and
tile library: the receiver has its own. Flags in the setting ``cxx`` are not sent; the options of a
source and the folders of ``CPATH`` are sent. Files keep their places relative to each other, below
a folder that contains them all. The receiver needs no symbolic links: there, ``a/../b.h`` is
``b.h``.

C++ kernels that a Python orchestration uses without listing them in ``children`` are not sent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pto_core import plugins
from pto_core.config import Config
from pto_core.device.programs import SourceRequests
from pto_core.errors import UsageError
from pto_core.hierarchy.chip_delivery import ChipParts, Part
from pto_core.kernels import CoreCallable, CoreType, KernelSource, OrchestrationSource
from pto_core.toolchain import BuildRequest, Toolchain
from pto_transport_zmq.remote.callables import (
    CHIP_BYTES_MAX,
    WRITTEN_BYTES_MAX,
    AnyPart,
    BinaryPart,
    ImportedFunction,
    KernelRecord,
    PortableChip,
    SerialisedFunction,
    SourcePart,
    include_option,
    signature_records,
)


class ChipSender:
    """Reads the files of chip callables for a backend and a runtime.

    ``config`` names both, with the compiler that lists the files and the cache that it uses.
    """

    def __init__(self, config: Config) -> None:
        self._toolchain = Toolchain(config)
        self._requests = SourceRequests(
            self._toolchain,
            plugins.load_backend(config["backend"]),
            plugins.load_runtime(config["runtime"]),
        )
        root = config["pto_isa_root"]
        folders = {*self._requests.installed_folders(), *([root / "include"] if root else [])}
        self._installed = tuple(os.path.normpath(folder) for folder in folders)

    def to_portable(self, content: bytes) -> PortableChip:
        """Return a packed :class:`ChipParts` in the form for another host.

        Raises UsageError for a file that cannot be read, and for more bytes than the limit, and
        CompileError if a source includes a file that does not exist.
        """
        parts = ChipParts.unpack(content)
        contents = _Contents(parts.name)
        kernels = [
            KernelRecord(
                func_id,
                self._part(one.part, contents, one.core_type),
                one.core_type,
                one.name,
                signature_records(one.signature),
            )
            for func_id, one in sorted(parts.kernels.items())
        ]
        names = parts.argument_names
        made = PortableChip(
            orchestration=self._part(parts.orchestration, contents, None),
            contents=list(contents.numbers),
            kernels=kernels,
            name=parts.name,
            signature=signature_records(parts.signature),
            argument_names=None if names is None else list(names),
        )
        if made.written_bytes() > WRITTEN_BYTES_MAX:
            raise contents.too_large(made.written_bytes(), WRITTEN_BYTES_MAX)
        return made

    def _part(self, part: Part, contents: _Contents, core: CoreType | None) -> AnyPart:
        way, content = part
        if way == "import":
            return ImportedFunction(*content)
        if way == "serialised":
            return SerialisedFunction(content)
        if way == "binary":
            return BinaryPart(contents.add(Path(content)))
        if core is not None:
            kernel = KernelSource(*content)
            request = self._requests.kernel(CoreCallable(kernel, core))
            return self._source(request, kernel.options, None, contents)
        source = OrchestrationSource(*content)
        request = self._requests.orchestration(source)
        return self._source(request, source.options, source.function_name, contents)

    def _source(
        self,
        request: BuildRequest,
        options: Iterable[str],
        function_name: str | None,
        contents: _Contents,
    ) -> SourcePart:
        folder = request.source.parent
        files = {os.path.normpath(request.source): request.source}
        for path in self._toolchain.files_read(request):
            if not _is_below(os.path.normpath(path), self._installed):
                files.setdefault(os.path.normpath(path), path)
        given = [one[2:] for one in options if one.startswith("-I")]
        given += filter(None, dict(request.environment).get("CPATH", "").split(":"))
        searched = [os.path.normpath(folder / one) for one in given]
        used = [one for one in searched if any(_is_below(file, (one,)) for file in files)]
        base = os.path.commonpath([*map(os.path.dirname, files), *used])
        crossed = {one for path in files.values() for one in _crossed(path)}
        return SourcePart(
            source=_name(str(request.source), base),
            files={_name(name, base): contents.add(path) for name, path in sorted(files.items())},
            folders=sorted(_name(one, base) for one in crossed if _is_below(one, (base,))),
            options=[
                *(one for one in options if not one.startswith("-I")),
                *(include_option(Path(one), folder) for one in used),
            ],
            function_name=function_name,
        )


@dataclass
class _Contents:
    """The contents of the files of one chip callable, each with a number."""

    chip: str
    numbers: dict[bytes, int] = field(default_factory=dict)
    size: int = 0

    def add(self, path: Path) -> int:
        """Return the number of the content of a file."""
        try:
            self._check_size(path.stat().st_size)
            content = path.read_bytes()
        except OSError as error:
            raise UsageError(
                f"the file {path} of the chip callable {self.chip!r} cannot be read: "
                f"{error.strerror}",
                name="target",
                value=str(path),
            ) from None
        if content not in self.numbers:
            self._check_size(len(content))
            self.size += len(content)
            self.numbers[content] = len(self.numbers)
        return self.numbers[content]

    def _check_size(self, more: int) -> None:
        if self.size + more > CHIP_BYTES_MAX:
            raise self.too_large(self.size + more, CHIP_BYTES_MAX)

    def too_large(self, size: int, limit: int) -> UsageError:
        """Return the error for too many bytes."""
        return UsageError(
            f"the chip callable {self.chip!r} has at least {size} bytes of sources and libraries; "
            f"at most {limit} can be sent to another host",
            name="target",
            value=size,
            expected=f"at most {limit}",
        )


def _is_below(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path without ``..`` is below one of the folders."""
    return any(path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _crossed(path: Path) -> Iterable[str]:
    """Return the folder before each ``..`` of a path: it must exist where the path is used."""
    parts = path.parts
    return (
        os.path.normpath(os.path.join(*parts[:i])) for i, one in enumerate(parts) if one == ".."
    )


def _name(path: str, base: str) -> str:
    name = os.path.relpath(path, base)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"the name of {path!r} is not UTF-8, so the file cannot be sent to another host; "
            "rename it",
            name="target",
            value=path,
        ) from None
    return name
