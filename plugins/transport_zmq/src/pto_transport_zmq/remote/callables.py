"""Callables between hosts: functions by import path or code, and chip callables by content.

The receiver of a chip callable does not use paths of the sender. A C++ source comes with the files
that it includes, in their places relative to each other, and with its options; a library comes as
bytes. The receiver writes them to its cache and compiles them there. Reading a message imports and
runs nothing; functions by code stay bytes.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec

from pto_core import plugins
from pto_core.config import Config
from pto_core.device.programs import SourceRequests
from pto_core.errors import ProtocolError, UsageError
from pto_core.kernels import (
    CoreCallable,
    CoreType,
    DataType,
    Direction,
    KernelSource,
    OrchestrationSource,
    Parameter,
)
from pto_core.kernels.callables import compiler_options
from pto_core.kernels.direction import In, InOut, NoDep, Out, OutExisting, Scalar
from pto_core.toolchain import BuildRequest, Toolchain
from pto_core.toolchain.source_folders import SourceFolders
from pto_core.worker.chip_delivery import ChipParts, KernelParts, Part
from pto_core.worker.handles import Delivery
from pto_transport_zmq.remote.values import Name, Natural, Record, Text

CODE_BYTES_MAX = 2**25
CHIP_BYTES_MAX = 2**25
WRITTEN_BYTES_MAX = 2**28
FILES_MAX = 2**12
PATH_MAX = 2**10
OPTIONS_MAX = 2**8
_PARTS_MAX = 64  # the maximum number of components of a name: folders and the file
_PART_MAX = 255  # the largest size of a file name in bytes, as in common file systems
_BINARY = "binary.so"
_INCLUDE = "-I./"

Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Code = Annotated[bytes, msgspec.Meta(max_length=CODE_BYTES_MAX)]
FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=PATH_MAX)]


class ImportedFunction(Record, frozen=True, tag="import"):
    """A function by ``module:qualname``; ``fingerprint``: of its code on the parent's host.

    No fingerprint: the parent's host does not have the function, so the other host uses its own
    code without a comparison.
    """

    path: Text
    fingerprint: Digest | None


class SerialisedFunction(Record, frozen=True, tag="serialised"):
    """A function by its code, as a pickle. Unpickling it runs code."""

    code: Code


class SourcePart(Record, frozen=True, tag="source"):
    """A C++ source with the files that it includes.

    ``files``: for each file name, the number of its content; ``source`` is one of the names.
    ``folders``: further folders that the build needs, besides the folders of the files. A folder in
    ``options`` is ``./`` and a path relative to the folder of the source. ``function_name`` and
    ``api`` are those of an :class:`~pto_core.kernels.OrchestrationSource`.
    """

    source: FileName
    files: Annotated[dict[FileName, Natural], msgspec.Meta(min_length=1, max_length=FILES_MAX)]
    folders: Annotated[list[FileName], msgspec.Meta(max_length=FILES_MAX)] = []  # noqa: RUF012
    options: Annotated[list[Text], msgspec.Meta(max_length=OPTIONS_MAX)] = []  # noqa: RUF012
    function_name: Name | None = None
    api: Name | None = None


class BinaryPart(Record, frozen=True, tag="binary"):
    """A library; ``file`` is the number of its content."""

    file: Natural


AnyPart = SourcePart | BinaryPart | ImportedFunction | SerialisedFunction


class ParameterRecord(Record, frozen=True):
    """A :class:`pto_core.kernels.Parameter`."""

    direction: Direction
    dtype: DataType | None = None
    shape: Annotated[list[Natural], msgspec.Meta(max_length=64)] | None = None


Signature = Annotated[list[ParameterRecord], msgspec.Meta(max_length=FILES_MAX)]


class KernelRecord(Record, frozen=True):
    """A kernel of a chip callable."""

    func_id: Natural
    part: AnyPart
    core_type: CoreType
    name: Text
    signature: Signature | None = None


class PortableChip(Record, frozen=True, tag="chip"):
    """A chip callable by content. ``contents``: the files of all parts, each content once."""

    contents: Annotated[list[Code], msgspec.Meta(max_length=FILES_MAX)]
    orchestration: AnyPart
    kernels: Annotated[list[KernelRecord], msgspec.Meta(max_length=FILES_MAX)]
    name: Text
    signature: Signature | None = None
    argument_names: Annotated[list[Text], msgspec.Meta(max_length=FILES_MAX)] | None = None

    @property
    def parts(self) -> list[AnyPart]:
        """The orchestration and all kernels."""
        return [self.orchestration, *(kernel.part for kernel in self.kernels)]

    def written_bytes(self) -> int:
        """Return the number of bytes that the receiver writes.

        Raises ProtocolError if a part refers to a content that does not exist.
        """
        numbers = (number for part in self.parts for number in _numbers(part))
        return sum(len(_content(self, number)) for number in numbers)


AnyDelivery = ImportedFunction | SerialisedFunction | PortableChip


# ---- at the receiver ----


def to_local(
    delivery: AnyDelivery, folders: SourceFolders, imports: tuple[str, ...] | None = None
) -> Delivery:
    """Return the delivery for a child on this host; write files of a chip callable to ``folders``.

    ``imports``: the modules that may define imported functions; None means every module. The files
    stay until ``folders`` is closed. Raises ProtocolError for invalid content, and OSError if the
    cache cannot be used.
    """
    if isinstance(delivery, ImportedFunction):
        return Delivery("import", delivery.path, delivery.fingerprint, imports)
    if isinstance(delivery, SerialisedFunction):
        return Delivery("serialised", delivery.code)
    if delivery.written_bytes() > WRITTEN_BYTES_MAX:
        raise ProtocolError(
            f"the files of a chip callable have {delivery.written_bytes()} bytes; the limit is "
            f"{WRITTEN_BYTES_MAX}"
        )
    kernels = {
        one.func_id: KernelParts(
            _local_part(delivery, one.part, folders, imports, is_kernel=True),
            one.core_type,
            _local_signature(one.signature),
            one.name,
        )
        for one in delivery.kernels
    }
    names = None if delivery.argument_names is None else tuple(delivery.argument_names)
    orchestration = _local_part(delivery, delivery.orchestration, folders, imports, is_kernel=False)
    signature = _local_signature(delivery.signature)
    return Delivery(
        "chip", ChipParts(orchestration, kernels, signature, delivery.name, names).pack()
    )


def _local_part(
    chip: PortableChip,
    part: AnyPart,
    folders: SourceFolders,
    imports: tuple[str, ...] | None,
    *,
    is_kernel: bool,
) -> Part:
    if isinstance(part, ImportedFunction):
        return "import", (part.path, part.fingerprint, imports)
    if isinstance(part, SerialisedFunction):
        return "serialised", part.code
    if isinstance(part, BinaryPart):
        folder = folders.folder({_BINARY: _content(chip, part.file)})
        return "binary", str(folder / _BINARY)
    _check_names(part)
    options = _checked_options(part)
    files = {name: _content(chip, number) for name, number in part.files.items()}
    path = str(folders.folder(files, part.folders) / part.source)
    if is_kernel:
        return "kernel", (path, options)
    return "orchestration", (path, part.function_name, options, part.api)


def _numbers(part: AnyPart) -> Iterable[int]:
    if isinstance(part, SourcePart):
        return part.files.values()
    return (part.file,) if isinstance(part, BinaryPart) else ()


def _content(chip: PortableChip, number: int) -> bytes:
    if number >= len(chip.contents):
        raise ProtocolError(
            f"a chip callable from another host has {len(chip.contents)} files, but names file "
            f"{number}"
        )
    return chip.contents[number]


def _check_names(part: SourcePart) -> None:
    """Refuse names that cannot be written, and a source without content."""
    check_names(part.files, part.folders)
    if part.source not in part.files:
        raise ProtocolError(f"the source {part.source!r} from another host has no content")


def check_names(files: Collection[str], folders: Collection[str] = ()) -> None:
    """Raise ProtocolError for names of files and folders that cannot be written below a folder."""
    for name in (*files, *folders):
        _check_name(name)
    inner = {str(folder) for name in (*files, *folders) for folder in _above(name)}
    if len(inner) > FILES_MAX:
        raise ProtocolError(
            f"a source from another host has {len(inner)} folders; the limit is {FILES_MAX}"
        )
    clashing = (inner | set(folders)) & set(files)
    if clashing:
        raise ProtocolError(
            f"{min(clashing)!r} is both a file and a folder in source code from another host"
        )


def _check_name(name: str) -> None:
    """Raise ProtocolError if the name of a file is not a relative path below a folder."""
    is_relative = name == str(PurePosixPath(name)) and not name.startswith("/")
    parts = name.split("/")
    is_short = len(parts) <= _PARTS_MAX and all(len(one.encode()) <= _PART_MAX for one in parts)
    if not is_relative or not is_short or "\0" in name or {"..", "."} & set(parts):
        raise ProtocolError(
            f"the file name {name!r} from another host is not a relative path below a folder"
        )


def _above(name: str) -> Iterator[PurePosixPath]:
    return (folder for folder in PurePosixPath(name).parents if folder.parts)


def _checked_options(part: SourcePart) -> tuple[str, ...]:
    """Return the options; refuse a folder outside the folder of the part."""
    for option in part.options:
        if "\0" in option:
            raise ProtocolError("an option of a source from another host has a zero byte")
        if option.startswith("-I"):
            folder = option.removeprefix(_INCLUDE)
            inside = os.path.normpath(os.path.join(os.path.dirname(part.source), folder))
            if folder == option or folder.startswith("/") or inside.split("/")[0] == "..":
                raise ProtocolError(
                    f"the option {option!r} of a source from another host names a folder outside "
                    "the folder of the source"
                )
    try:
        return compiler_options(part.options)
    except UsageError as error:
        raise ProtocolError(f"a source from another host has an invalid option: {error}") from None


_KINDS = {kind.direction: kind for kind in (In, Out, InOut, OutExisting, NoDep, Scalar)}


def _local_signature(records: list[ParameterRecord] | None) -> tuple[Parameter, ...] | None:
    return None if records is None else tuple(_parameter(record) for record in records)


def _parameter(record: ParameterRecord) -> Parameter:
    kind = _KINDS.get(record.direction)
    try:
        if kind is None:
            raise UsageError(f"{record.direction.name} is not the direction of an argument")
        details: tuple[Any, ...] = () if kind is Scalar else (record.shape,)
        return kind(record.dtype, *details)
    except UsageError as error:
        raise ProtocolError(f"a signature from another host is invalid: {error}") from None


# ---- at the sender ----


def signature_records(signature: Iterable[Parameter] | None) -> list[ParameterRecord] | None:
    """Return the record of each parameter of a signature, as it is sent."""
    if signature is None:
        return None
    return [
        ParameterRecord(
            one.direction,
            one.dtype,
            None if one.shape is None or isinstance(one, Scalar) else list(one.shape),
        )
        for one in signature
    ]


def include_option(folder: Path, of: Path) -> str:
    """Return the option for a folder of headers, relative to the folder ``of``."""
    return _INCLUDE + os.path.relpath(folder, of)


# Chip callables travel by content: the files that their sources include are read here.
#
# Headers in folders of the system are not sent, nor are those of the installed backend, runtime and
# tile library: the receiver has its own. Flags in the setting ``cxx`` are not sent; the options of
# a source and the folders of ``CPATH`` are sent. Files keep their places relative to each other,
# below a folder that contains them all. The receiver needs no symbolic links: there, ``a/../b.h``
# is ``b.h``.
#
# C++ kernels that a Python orchestration uses without listing them in ``children`` are not sent.


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
            return self._source(request, kernel, contents)
        source = OrchestrationSource(*content)
        request = self._requests.orchestration(source)
        return self._source(request, source, contents)

    def _source(
        self,
        request: BuildRequest,
        source: KernelSource | OrchestrationSource,
        contents: _Contents,
    ) -> SourcePart:
        options = source.options
        orchestration = source if isinstance(source, OrchestrationSource) else None
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
            function_name=None if orchestration is None else orchestration.function_name,
            api=None if orchestration is None else orchestration.api,
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
