"""Chip callables arrive on another host by content; their files stay in one folder."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from pto_core import ChipCallable, CoreCallable, KernelSource, kernel, open_device
from pto_core.config import load_with_plugins
from pto_core.errors import CompileError, ProtocolError, RightsError, UsageError
from pto_core.kernels import CoreType, Direction, In, OrchestrationSource, Out, Scalar
from pto_core.toolchain.source_folders import SourceFolders
from pto_core.worker.chip_delivery import ChipParts, chip_to_bytes
from pto_core.worker.handles import Delivery, by_code
from pto_transport_zmq.remote.callables import (
    CHIP_BYTES_MAX,
    FILES_MAX,
    BinaryPart,
    ChipSender,
    ImportedFunction,
    KernelRecord,
    PortableChip,
    SerialisedFunction,
    SourcePart,
    to_local,
)
from pto_transport_zmq.remote.requests import Deliver, decode_request, to_request
from pto_transport_zmq.remote.values import encoded

DIGEST = bytes(32)
KERNEL = """
#include <cstdint>
#include "../shared/scale.h"
#include "offset.h"
extern "C" void kernel_entry(int64_t* args) {
  const float* a = reinterpret_cast<const float*>(args[0]);
  float* out = reinterpret_cast<float*>(args[1]);
  for (int64_t i = 0; i < args[2]; ++i) out[i] = a[i] * SCALE * FACTOR + OFFSET;
}
"""
GRAPH = """
#include "runtime.h"
#include "parts/function.h"
FUNCTION(Runtime* runtime, uint64_t* args, int arg_count) {
  if (arg_count != 3) return 3;
  const uint64_t n = args[2];
  uint64_t dev[2];
  for (auto& one : dev) one = (uint64_t)runtime->host_api.device_malloc(n * 4);
  runtime->host_api.copy_to_device((void*)dev[0], (void*)args[0], n * 4);
  runtime->record_tensor_pair((void*)args[1], (void*)dev[1], n * 4);
  uint64_t task[] = {dev[0], dev[1], n};
  runtime->add_task(task, 3, 0, CoreType::AIV);
  return 0;
}
"""
FILES = {
    "kernels/scale.cpp": KERNEL,
    "shared/scale.h": '#pragma once\n#include "number.h"\n',
    "shared/number.h": "#define SCALE 2\n",
    "library/include/offset.h": "#define OFFSET 1\n",
    "graphs/graph.cpp": GRAPH,
    "graphs/parts/function.h": '#define FUNCTION extern "C" int NAME\n',
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def chip_of(project: Path) -> ChipCallable:
    options = ["-DFACTOR=5", "-I../library/include", "-I/no/such/folder"]
    source = KernelSource(project / "kernels" / "scale.cpp", options)
    graph = OrchestrationSource(project / "graphs" / "graph.cpp", "build", ["-DNAME=build"])
    return ChipCallable(graph, {0: CoreCallable(source, "aiv")}, ("in", "out", "scalar"), "scaled")


@pytest.fixture
def sender(tmp_path: Path) -> ChipSender:
    return ChipSender(load_with_plugins({"cache_dir": tmp_path / "sender"}))


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[SourceFolders]:
    with SourceFolders(tmp_path / "receiver") as made:
        yield made


def sent(chip: ChipCallable, sender: ChipSender) -> bytes:
    return encoded(to_request("callable", (DIGEST, [by_code(chip)]), sender))


def received(content: bytes, folders: SourceFolders) -> Delivery:
    _, (delivery,) = decode_request(content).arguments(folders)
    assert isinstance(delivery, Delivery)
    return delivery


def parts_of(delivery: Delivery) -> ChipParts:
    assert isinstance(delivery.content, bytes)
    return ChipParts.unpack(delivery.content)


RECEIVER = """
import ctypes, sys
from pathlib import Path
import numpy as np
from pto_core import open_device
from pto_transport_zmq.remote.requests import decode_request
from pto_core.toolchain.source_folders import SourceFolders

cache = Path(sys.argv[1])
with SourceFolders(cache) as folders:
    digest, (delivery,) = decode_request(sys.stdin.buffer.read()).arguments(folders)
    with open_device("a2a3sim", settings={"cache_dir": cache}) as device:
        a, out = np.arange(6, dtype="float32"), np.zeros(6, "float32")
        device.run(delivery.materialise(), a, out, ctypes.c_int64(6))
print(out.tolist())
"""


def run_there(content: bytes, cache: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", RECEIVER, str(cache)],
        input=content,
        capture_output=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def test_a_chip_compiles_and_runs_in_a_process_that_has_only_the_bytes(
    project: Path, sender: ChipSender, tmp_path: Path
) -> None:
    content = sent(chip_of(project), sender)
    shutil.rmtree(project)
    shutil.rmtree(tmp_path / "sender")
    cache = tmp_path / "receiver"
    assert run_there(content, cache) == "[1.0, 11.0, 21.0, 31.0, 41.0, 51.0]"
    built = {path: path.stat().st_mtime_ns for path in (cache / "artefacts").iterdir()}
    assert len(built) == 2
    assert run_there(content, cache) == "[1.0, 11.0, 21.0, 31.0, 41.0, 51.0]"
    assert {path: path.stat().st_mtime_ns for path in (cache / "artefacts").iterdir()} == built


def test_only_the_files_of_the_program_are_sent(project: Path, sender: ChipSender) -> None:
    request = decode_request(sent(chip_of(project), sender))
    assert isinstance(request, Deliver)
    (chip,) = request.deliveries
    assert isinstance(chip, PortableChip)
    assert isinstance(chip.orchestration, SourcePart)
    assert sorted(chip.orchestration.files) == ["graph.cpp", "parts/function.h"]
    part = chip.kernels[0].part
    assert isinstance(part, SourcePart)
    assert sorted(part.files) == [
        *("kernels/scale.cpp", "library/include/offset.h", "shared/number.h", "shared/scale.h")
    ]
    assert part.options == ["-DFACTOR=5", "-I./../library/include"]
    assert len(chip.contents) == len(FILES)
    assert str(project).encode() not in encoded(request)


def test_equal_content_is_written_once_and_a_changed_header_elsewhere(
    project: Path, sender: ChipSender, folders: SourceFolders
) -> None:
    def folder_of(part: Any) -> Path:
        way, (path, *_) = part
        assert way in ("kernel", "orchestration")
        return Path(path).parent.parent

    first = parts_of(received(sent(chip_of(project), sender), folders))
    kernels = folder_of(first.kernels[0].part)
    header = kernels / "shared" / "number.h"
    written = (header.stat().st_mtime_ns, header.stat().st_ino)
    copy = project.with_name("copy")
    shutil.copytree(project, copy)
    again = parts_of(received(sent(chip_of(copy), sender), folders))
    assert again.kernels[0].part == first.kernels[0].part
    assert again.orchestration == first.orchestration
    assert (header.stat().st_mtime_ns, header.stat().st_ino) == written
    (copy / "shared" / "number.h").write_text("#define SCALE 3\n")
    changed = parts_of(received(sent(chip_of(copy), sender), folders))
    assert changed.orchestration == first.orchestration
    assert folder_of(changed.kernels[0].part) != kernels
    assert header.read_text() == "#define SCALE 2\n"


def test_includes_through_links_and_folders_without_files_work_at_the_receiver(
    project: Path, sender: ChipSender, tmp_path: Path
) -> None:
    """``kernels`` is a symbolic link, so ``kernels/../shared`` is next to the link's target."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (project / "kernels").rename(elsewhere / "kernels")
    (project / "shared").rename(elsewhere / "shared")
    (project / "kernels").symlink_to(elsewhere / "kernels")
    (project / "library" / "empty").mkdir()
    text = KERNEL.replace('"offset.h"', '"../library/empty/../include/offset.h"')
    (project / "kernels" / "scale.cpp").write_text(text)
    (elsewhere / "library").symlink_to(project / "library")
    content = sent(chip_of(project), sender)
    shutil.rmtree(project)
    shutil.rmtree(elsewhere)
    assert run_there(content, tmp_path / "receiver") == "[1.0, 11.0, 21.0, 31.0, 41.0, 51.0]"


def test_headers_that_the_environment_names_are_found_at_the_receiver(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPATH", str(project / "library" / "include"))
    sender = ChipSender(load_with_plugins({"cache_dir": tmp_path / "sender"}))
    graph = chip_of(project)
    source = KernelSource(project / "kernels" / "scale.cpp", ["-DFACTOR=5"])
    chip = ChipCallable(
        graph.orchestration, {0: CoreCallable(source, "aiv")}, ("in", "out", "scalar")
    )
    content = sent(chip, sender)
    monkeypatch.delenv("CPATH")
    assert run_there(content, tmp_path / "receiver") == "[1.0, 11.0, 21.0, 31.0, 41.0, 51.0]"


def test_a_missing_header_is_an_error_of_the_sender(project: Path, sender: ChipSender) -> None:
    (project / "shared" / "number.h").unlink()
    with pytest.raises(CompileError, match=r"number\.h"):
        sent(chip_of(project), sender)


def test_a_missing_source_is_named(project: Path, sender: ChipSender) -> None:
    chip = chip_of(project)
    (project / "kernels" / "scale.cpp").unlink()
    with pytest.raises(UsageError, match=r"scale\.cpp does not exist"):
        sent(chip, sender)


def test_libraries_arrive_as_bytes(
    tmp_path: Path, sender: ChipSender, folders: SourceFolders
) -> None:
    for name in ("kernel.so", "graph.so"):
        (tmp_path / name).write_bytes(name.encode() * 100)
    kernel_of = CoreCallable(tmp_path / "kernel.so", "aic", (In("float32", (4, 4)), Scalar(int)))
    chip = ChipCallable(
        tmp_path / "graph.so", {3: kernel_of}, ("in", Out("bfloat16", 8)), "both", ("a", "b")
    )
    content = sent(chip, sender)
    for name in ("kernel.so", "graph.so"):
        (tmp_path / name).unlink()
    again = received(content, folders).materialise()
    assert Path(again.orchestration).read_bytes() == b"graph.so" * 100
    assert Path(again.children[3].binary).read_bytes() == b"kernel.so" * 100
    assert repr(again.signature) == repr(chip.signature)
    assert repr(again.children[3].signature) == repr(kernel_of.signature)
    assert (again.name, again.argument_names) == ("both", ("a", "b"))
    assert (again.children[3].core_type, again.children[3].name) == (CoreType.AIC, "kernel")


@pytest.mark.parametrize("binary", ["big.so", "big.cpp"])
def test_too_large_content_is_refused_with_the_limit(
    tmp_path: Path, sender: ChipSender, binary: str
) -> None:
    with (tmp_path / binary).open("wb") as file:
        file.write(b"//")
        file.truncate(CHIP_BYTES_MAX + 1)
    is_source = binary.endswith(".cpp")
    part = KernelSource(tmp_path / binary) if is_source else tmp_path / binary
    chip = ChipCallable(lambda rt: None, {0: CoreCallable(part, "aiv")}, name="huge")
    with pytest.raises(
        UsageError,
        match=f"'huge' has at least {CHIP_BYTES_MAX + 1} bytes .*; at most {CHIP_BYTES_MAX} can",
    ):
        sent(chip, sender)


@kernel(core="aiv")
def double(a: In, out: Out) -> None:
    out[:] = 2 * a


def graph(rt: Any, a: In, out: Out) -> None:
    rt.publish(rt.add_task(double, (a, out)))


def test_functions_arrive_by_import_path_or_by_code(
    sender: ChipSender, folders: SourceFolders, tmp_path: Path
) -> None:
    chip = ChipCallable(graph, {0: double})
    deliveries = [
        Delivery("chip", chip_to_bytes(chip, serialise=serialise)) for serialise in (False, True)
    ]
    content = encoded(to_request("callable", (DIGEST, deliveries), sender))
    _, (first, second) = decode_request(content).arguments(folders)
    assert parts_of(first).orchestration[0] == "import"
    assert parts_of(second).orchestration[0] == "serialised"
    assert first.materialise().function is graph
    with open_device("a2a3sim", settings={"cache_dir": tmp_path}) as device:
        a, out = np.ones(4), np.zeros(4)
        device.run(second.materialise(), a, out)
    assert (out == 2).all()


def test_functions_of_a_chip_callable_come_from_permitted_modules_only(
    sender: ChipSender, folders: SourceFolders
) -> None:
    chip = ChipCallable(graph, {0: double})
    sent = Delivery("chip", chip_to_bytes(chip, serialise=False))
    request = decode_request(encoded(to_request("callable", (DIGEST, [sent]), sender)))
    _, (own,) = request.arguments(folders, (__name__,))
    assert own.materialise().function is graph
    _, (other,) = request.arguments(folders, ("json",))
    with pytest.raises(RightsError, match="does not permit to its client"):
        other.materialise()


class Bomb:
    def __reduce__(self) -> Any:
        return sys.exit, ("the bomb went off",)


def test_code_is_not_read_before_the_callable_is_made(folders: SourceFolders) -> None:
    code = pickle.dumps(Bomb())
    chip = PortableChip([], SerialisedFunction(code), [], "x")
    assert parts_of(to_local(chip, folders)).orchestration == ("serialised", code)
    assert to_local(SerialisedFunction(code), folders) == Delivery("serialised", code)
    imported = ImportedFunction("no.such:module", DIGEST)
    assert to_local(imported, folders) == Delivery("import", "no.such:module", DIGEST)


# ---- hostile content ----


def chip_with(source: SourcePart, contents: list[bytes] | None = None) -> PortableChip:
    record = KernelRecord(0, source, CoreType.AIV, "x")
    return PortableChip(contents or [b"x"], BinaryPart(0), [record], "x")


def tree_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "name",
    [
        *("../../etc/passwd", "/etc/passwd", "a/../../b", "a/..", "..", ".", "./a", "a//b", "a/"),
        *("a\0b", "x" * 256, "\N{BUG}" * 64, "/".join("a" * 65)),
    ],
)
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "cache").mkdir()
    with SourceFolders(tmp_path / "cache") as folders:
        for part in (
            SourcePart(name, {name: 0}),
            SourcePart("k.cpp", {"k.cpp": 0, name: 0}),
            SourcePart("k.cpp", {"k.cpp": 0}, [name]),
        ):
            with pytest.raises(ProtocolError, match="is not a relative path below a folder"):
                to_local(chip_with(part), folders)
    assert tree_of(tmp_path) == {"cache"}


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (SourcePart("k.cpp", {"k.h": 0}), "'k.cpp' from another host has no content"),
        (SourcePart("k.cpp", {"k.cpp": 1}), "has 1 files, but names file 1"),
        (SourcePart("a", {"a": 0, "a/b": 0}), "'a' is both a file and a folder"),
        (SourcePart("a", {"a": 0}, ["a"]), "'a' is both a file and a folder"),
        (SourcePart("a", {"a": 0}, ["a/b"]), "'a' is both a file and a folder"),
        (SourcePart("a", {"a": 0}, [], ["-I/etc"]), "outside"),
        (SourcePart("a", {"a": 0}, [], ["-I.//etc"]), "outside"),
        (SourcePart("a", {"a": 0}, [], ["-I./.."]), "outside"),
        (SourcePart("b/a", {"b/a": 0}, [], ["-I./../.."]), "outside"),
        (SourcePart("a", {"a": 0}, [], ["-I-"]), "outside"),
        (SourcePart("a", {"a": 0}, [], ["-I"]), "outside"),
        (SourcePart("a", {"a": 0}, [], ["-fplugin=./a.so"]), "invalid option"),
        (SourcePart("a", {"a": 0}, [], ["@a"]), "invalid option"),
        (SourcePart("a", {"a": 0}, [], ["-DX\0"]), "zero byte"),
        (BinaryPart(7), "has 1 files, but names file 7"),
    ],
)
def test_an_invalid_part_is_refused(folders: SourceFolders, part: Any, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        to_local(chip_with(part), folders)


def test_many_folders_and_many_copies_are_refused(folders: SourceFolders) -> None:
    deep = ["/".join([str(number), *"a" * 63]) for number in range(100)]
    with pytest.raises(ProtocolError, match=f"the limit is {FILES_MAX}"):
        to_local(chip_with(SourcePart("k", {"k": 0}, deep)), folders)
    copies = SourcePart("0", {str(number): 0 for number in range(FILES_MAX)})
    with pytest.raises(ProtocolError, match="the limit is 268435456"):
        to_local(chip_with(copies, [bytes(2**17)]), folders)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"contents": ["text"]}, r"contents\[0\]"),
        ({"orchestration": {"type": "eval"}}, r"orchestration.type"),
        ({"kernels": [{"func_id": -1}]}, r"kernels\[0\].func_id"),
        ({"signature": [{"direction": 9}]}, r"signature\[0\].direction"),
        ({"signature": [{"direction": 1, "dtype": 99}]}, r"signature\[0\].dtype"),
        ({"path": "/etc"}, "`path`"),
    ],
)
def test_an_invalid_chip_is_refused_by_its_field(changes: dict[str, Any], field: str) -> None:
    whole = msgspec.msgpack.decode(encoded(chip_with(SourcePart("k", {"k": 0}))))
    message = {"operation": "callable", "digest": DIGEST, "deliveries": [{**whole, **changes}]}
    with pytest.raises(ProtocolError, match=field):
        decode_request(msgspec.msgpack.encode(message))


@pytest.mark.parametrize(
    "signature",
    [
        [{"direction": int(Direction.UNSPECIFIED)}],
        [{"direction": int(Direction.IN), "shape": [3]}],
        [{"direction": int(Direction.IN), "dtype": 0}],
    ],
)
def test_an_invalid_signature_is_refused(folders: SourceFolders, signature: Any) -> None:
    whole = msgspec.msgpack.decode(encoded(chip_with(SourcePart("k", {"k": 0}))))
    whole["signature"] = signature
    chip = msgspec.msgpack.decode(msgspec.msgpack.encode(whole), type=PortableChip)
    with pytest.raises(ProtocolError, match="a signature from another host is invalid"):
        to_local(chip, folders)


WHOLE = encoded(Deliver(DIGEST, [chip_with(SourcePart("b/k", {"b/k": 0, "h": 0}, ["c"]))]))


@given(
    st.tuples(st.integers(0, len(WHOLE) - 1), st.binary(max_size=3), st.integers(0, 3)).map(
        lambda change: WHOLE[: change[0]] + change[1] + WHOLE[change[0] + change[2] :]
    )
)
def test_changed_bytes_write_nothing_outside_the_cache(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    root = tmp_path_factory.mktemp("root")
    with SourceFolders(root / "deep" / "cache") as folders, contextlib.suppress(ProtocolError):
        decode_request(content).arguments(folders)
    assert set(os.listdir(root)) <= {"deep"}
    sources = root / "deep" / "cache" / "sources"
    assert all(len(name) == 40 for name in (os.listdir(sources) if sources.exists() else ()))
