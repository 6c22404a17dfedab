"""Values of tasks: objects that tasks receive and return, pickled in shared memory.

One mapping has a part for the parent and a part for each SUB child::

    | parent: arguments, slots | child 0: large results | child 1: large results | ...

The parent pickles the objects of a submit into a block of its part, and the block is an input
tensor of the task. A task that returns an object has a slot: a block of the parent's part that is
an output tensor of the task. A task that receives its handle has the slot as an input tensor, so
the engine orders, repeats and poisons both tasks like tasks that share an array. A result that is
larger than the slot lies in a block of the child's part, and the slot contains its address.

Buffers inside an object, such as the memory of a NumPy array, follow the pickle in the same block
(pickle protocol 5), and the receiver has read-only views of them. Arrays of the Worker are not
copied: they are input tensors of the task.

A block of the parent is free when no view of it exists, and a slot when its :class:`Returned` does
not exist. Both are kept by :meth:`ValueMemory.keep` until the task has ended. The handle, and the
arrays in a result that the program has read, also keep the Returned. The header of a child's block
says whether it is free. The parent changes the header when the slot is free. The driver calls
:meth:`ValueMemory.settle` every 50 ms, so memory becomes free also while the program waits.
"""

from __future__ import annotations

import functools
import gc
import inspect
import io
import mmap
import pickle
import struct
import sys
import threading
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

import numpy as np
import numpy.typing as npt

from pto_core._worker import ContinuousTensor, SharedMapping
from pto_core.errors import CapacityError, UsageError
from pto_core.kernels.data_type import DataType
from pto_core.worker.memory.arena import FreeList, reserved
from pto_core.worker.processes.parking import parent_only_mapping
from pto_core.worker.serialisation import References, pickler_by_code
from pto_core.worker.unpicklable import Parts, unpicklable

if TYPE_CHECKING:
    from pto_core._worker import TaskHandle

_Bytes = npt.NDArray[np.uint8]
PlainPickle: TypeAlias = tuple[bytes, list[pickle.PickleBuffer]]

SLOT_BYTES = 256
_HEADER_BYTES = 64
"""The size of the header of a slot, and of a block in the part of a child."""
_ALIGNMENT = 64
_LEAST_CAPACITY = 1 << 21
_PAGE = mmap.PAGESIZE
_LEAST_BYTES = 256
"""The minimum size of a block of the parent."""
_SMALL_BYTES = 1 << 16
"""The maximum size of a block of the parent that is kept for a block of the same size."""
SMALL_PICKLE_BYTES = 256
"""The maximum size of a pickle that is sent with the task, without a block."""
_PUNCHED_BYTES = 1 << 20
"""The minimum size of a free block of values whose pages are returned to the system."""
_KEPT_BYTES = 1 << 27
"""The maximum size of a free block of a child whose pages are kept."""

# The words of a slot. The content follows the header, or lies in a block of a child. The first two
# words of a content inside the slot are those of its head. The state is written after the address,
# because the next attempt of a task whose child has died reads both.
_ADDRESS, _STATE = 1, 2  # the word before is the size of the content
_PICKLED, _BUFFERS = 8, 9
_EMPTY, _INSIDE, _IN_BLOCK = range(3)
# The words of the header of a block, and the states of a block.
_SIZE, _USE = range(2)
_FREE, _USED, _KEPT = range(3)
_WORD = 8

# Bytes of the pickle, number of buffers; then size and address of each buffer. The address is 0 for
# a buffer that follows the pickle.
_HEAD = struct.Struct("<qq")
_SLOT = struct.Struct("<3q")
_SMALL = struct.Struct("<q8xq40x2q")
"""Size and state of a slot, and the head of its content, which has no buffers."""
_SMALL_BEGIN = _SMALL.size
CHECKED = 256
"""How many tasks the driver checks for their end every 50 ms."""
_WAIT_S = 3.0
"""How long a child waits for memory; a multiple of the interval in which the parent frees it."""
_PAUSE_S = 0.01


class Content:
    """A pickled object and its buffers. Raises UsageError, which names what cannot be pickled.

    ``parts``: names and parts of the object, for messages. ``memory``: the memory of the Worker to
    which the object is submitted; None for a result. ``plain``: the :func:`plain_pickle` of the
    object, if it is known. ``inputs``: the tensors that the receiver needs: those of handles, and
    arrays of the Worker. ``results``: what the handles refer to. ``producers``: the handles in the
    object whose tasks have no result.
    """

    def __init__(
        self,
        value: object,
        parts: Callable[[], Parts],
        memory: ValueMemory | None = None,
        plain: PlainPickle | None = None,
    ) -> None:
        self.inputs: list[Any] = []
        self.results: list[Returned] = []
        self.producers: list[TaskHandle] = []
        self._memory = memory
        _collecting.content = self
        try:
            self._pickled, buffers = plain or self._dumped(value, parts)
        finally:
            _collecting.content = None
        self._buffers = [self._placed(buffer.raw()) for buffer in buffers]
        if not self._buffers:
            self.nbytes = _HEAD.size + len(self._pickled)
            return
        self._begin = _HEAD.size + 2 * _WORD * len(self._buffers)
        end = self._begin + len(self._pickled)
        for buffer, address in self._buffers:
            end = end if address else _aligned(end) + buffer.nbytes
        self.nbytes = end

    @property
    def small(self) -> bytes:
        """The pickle if it needs no memory, because it is small and refers to no other memory."""
        is_alone = not (self._buffers or self.inputs or self.producers)
        return self._pickled if is_alone and len(self._pickled) <= SMALL_PICKLE_BYTES else b""

    def _dumped(self, value: object, parts: Callable[[], Parts]) -> PlainPickle:
        if plain := plain_pickle(value):
            return plain
        for listed in (self.inputs, self.results, self.producers):
            listed.clear()
        buffers: list[pickle.PickleBuffer] = []
        try:
            return _dumped_by_code(value, buffers), buffers
        except UsageError:
            raise
        except Exception as error:
            raise unpicklable(parts(), error, partial(_dumped_by_code, buffers=[])) from error

    def _placed(self, buffer: memoryview) -> tuple[memoryview, int]:
        """Return a buffer with its address if it is memory of the Worker's arrays, otherwise 0."""
        if self._memory is None or not buffer.nbytes:
            return buffer, 0
        array = np.frombuffer(buffer, np.uint8)
        address: int = array.__array_interface__["data"][0]
        if not self._memory.is_in_arena(address):
            return buffer, 0
        self.inputs.append(array)
        return buffer, address

    def reduced_part(self, array: npt.NDArray[Any]) -> Any:
        """Return what the receiver calls to get a part of an array of the Worker, without a copy.

        The tasks that write between its first and last byte come before.
        """
        memory, address = self._memory, int(array.__array_interface__["data"][0])
        if memory is None or array.flags.forc or not array.size or not memory.is_in_arena(address):
            return NotImplemented
        spans = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
        first = address + sum(span for span in spans if span < 0)
        end = address + sum(span for span in spans if span > 0) + array.itemsize
        whole = memory_at(first, end - first, array)
        return _part, (whole, address - first, array.shape, array.strides, array.dtype)

    def is_known(self, thing: type | FunctionType) -> bool:
        """Return whether the receiver has a function or class of the main module by its name."""
        if self._memory is not None:
            return self._memory.inherits(thing)
        return _is_unchanged(thing, _inherited)

    def write(self, target: memoryview) -> None:
        """Write the content at the start of ``target``."""
        pickled, buffers = self._pickled, self._buffers
        _HEAD.pack_into(target, 0, len(pickled), len(buffers))
        if not buffers:
            target[_HEAD.size : self.nbytes] = pickled
            return
        places = [word for buffer, address in buffers for word in (buffer.nbytes, address)]
        struct.pack_into(f"<{len(places)}q", target, _HEAD.size, *places)
        end = self._begin + len(pickled)
        target[self._begin : end] = pickled
        for buffer, address in buffers:
            if not address:
                start = _aligned(end)
                end = start + buffer.nbytes
                target[start:end] = buffer

    def reduced(self, handle: TaskHandle) -> tuple[Callable[..., object], tuple[object, ...]]:
        """Return what the receiver calls to get the result of ``handle``."""
        outputs = handle.outputs
        first = len(self.inputs)
        if isinstance(outputs, Returned):
            if outputs.memory is not self._memory:
                raise UsageError(
                    f"{handle!r} is a task of another Worker, whose memory the task cannot read; "
                    "pass handle.result()",
                    name="handle",
                    value=handle,
                )
            self.inputs += [one.tensor() for one in outputs.each]
            self.results.append(outputs)
            self.inputs += outputs.written
            counts = (len(outputs.each), len(outputs.written), outputs.is_group)
            return _received, (first, *counts)
        if outputs:
            self.inputs += outputs
        else:
            self.producers.append(handle)
        return _arrays, (first, len(outputs or ()))


def plain_pickle(value: object) -> PlainPickle | None:
    """Return the pickle of an object and its buffers.

    Return None if the object contains code of the main module or an array with steps, which may be
    a part of a Worker's array, or cannot be pickled: then :class:`Content` pickles it or explains
    the error. It also pickles handles.
    """
    buffers: list[pickle.PickleBuffer] = []
    try:
        pickled = pickle.dumps(value, 5, buffer_callback=buffers.append)
    except Exception:  # noqa: BLE001 - Content explains it
        return None
    is_plain = b"__main__" not in pickled and b"_reconstruct" not in pickled
    return (pickled, buffers) if is_plain else None


class _Collecting(threading.local):
    content: Content | None = None
    """The content that this thread is pickling."""


_collecting = _Collecting()


def reduced_handle(handle: TaskHandle) -> tuple[Any, ...]:
    """Return the pickle of a handle in the arguments of a submit; raise UsageError elsewhere."""
    content = _collecting.content
    if content is None:
        raise UsageError(
            f"{handle!r} cannot be pickled; pass it to the submit of a session, or use its "
            "result()",
            name="handle",
            value=handle,
        )
    return content.reduced(handle)


_inherited: Mapping[str, object] = {}
"""In a forked child, the functions and classes of the main module that its parent has too."""


def main_module() -> dict[str, object]:
    """Return the functions, tasks and classes that the main module defines, by name."""
    known = vars(sys.modules["__main__"]).items()
    return {name: thing for name, thing in known if _is_code(thing)}


def _is_code(thing: object) -> bool:
    wrapped = inspect.getattr_static(thing, "__wrapped__", thing)
    is_code = isinstance(thing, type) or isinstance(wrapped, FunctionType)
    return is_code and inspect.getattr_static(thing, "__module__", None) == "__main__"


def _is_unchanged(thing: Any, known: Mapping[str, object]) -> bool:
    """Return whether a name of the main module refers to ``thing``, now as in ``known``."""
    name, *rest = thing.__qualname__.split(".")
    found: Any = known.get(name)
    if found is None or vars(sys.modules["__main__"]).get(name) is not found:
        return False
    for part in rest:
        found = getattr(found, part, None)
    return found is thing


def _dumped_by_code(value: object, buffers: list[pickle.PickleBuffer]) -> bytes:
    def is_known(thing: type | FunctionType) -> bool:
        content = _collecting.content
        return content is not None and content.is_known(thing)

    file = io.BytesIO()
    _pickler_of_values()(file, is_known, buffer_callback=buffers.append).dump(value)
    return file.getvalue()


@functools.cache
def _pickler_of_values() -> type[Any]:
    class Pickler(pickler_by_code()):  # type: ignore[misc]
        def reducer_override(self, thing: object) -> Any:
            content = _collecting.content
            if type(thing) is np.ndarray and content is not None:
                return content.reduced_part(thing)
            return super().reducer_override(thing)

    return Pickler


def _part(
    whole: _Bytes,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
) -> npt.NDArray[Any]:
    return np.ndarray(shape, dtype, whole.data, offset, strides)


def _loaded(content: memoryview) -> tuple[Any, list[ref[_Bytes]]]:
    """Return an object, and weak references to the memory of its buffers."""
    nbytes, count = _HEAD.unpack_from(content)
    begin = _HEAD.size + 2 * _WORD * count
    end = begin + nbytes
    if count == 0:
        return pickle.loads(content[begin:end]), []
    whole, buffers, own, start = np.frombuffer(content, np.uint8), [], [], end
    places = struct.unpack_from(f"<{2 * count}q", content, _HEAD.size)
    for size, address in zip(places[::2], places[1::2], strict=True):
        if address:
            buffers.append(memory_at(address, size).data.toreadonly())
            continue
        start = _aligned(start)
        part = whole[start : start + size]
        buffers.append(part.data)
        own.append(ref(part))
        start += size
        del part
    return pickle.loads(content[begin:end], buffers=buffers), own


def counted_content(block: _Bytes) -> tuple[memoryview, memoryview]:
    """Return the count in a block of :meth:`ValueMemory.counted`, and its content or b""."""
    return block[:_WORD].data.cast("q"), block[_WORD:].data.toreadonly()


def loaded(content: memoryview) -> Any:
    """Return the object of a content."""
    return _loaded(content)[0]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class _Memory:
    """Memory of this process at an address; ``owner`` keeps it alive, or its block in use."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }
        self.owner = owner


def memory_at(address: int, nbytes: int, owner: object = None) -> _Bytes:
    """Return the memory at an address of this process; the array keeps ``owner`` alive."""
    return np.asarray(_Memory(address, nbytes, owner))


def place_of(view: _Bytes) -> tuple[int, int]:
    """Return address and size of a block."""
    return view.__array_interface__["data"][0], view.nbytes


def bytes_at(address: int, nbytes: int) -> memoryview:
    """Return the content of a block of the parent, in a child."""
    return memory_at(address, nbytes).data


def _content_of(slot: _Bytes) -> memoryview | None:
    """Return the content of a slot, which keeps the slot in use; None if it has no content."""
    nbytes, address, state = _SLOT.unpack_from(slot.data)
    if state == _EMPTY:
        return None
    if state == _INSIDE:
        return slot.data[_HEADER_BYTES : _HEADER_BYTES + nbytes].toreadonly()
    return memory_at(address, nbytes, slot).data.toreadonly()


# ---- the parent ----


class _Block(ref):  # type: ignore[type-arg]
    """A weak reference to the view of a block of the parent."""

    __slots__ = ("is_punched", "offset", "size")
    __hash__ = object.__hash__  # arrays have no hash
    __eq__ = object.__eq__

    offset: int
    size: int
    is_punched: bool


class _Slot:
    """A slot, which one task after the other uses.

    ``word``: its first word. ``user``: a weak reference to the Returned of the task, or None.
    ``gone``: the callback of this reference.
    """

    __slots__ = ("gone", "offset", "tensor", "user", "word")

    def __init__(self, address: int, offset: int, gone: dict[_Slot, object]) -> None:
        self.offset = offset
        self.word = offset // _WORD
        self.tensor = ContinuousTensor.from_pointer(address + offset, SLOT_BYTES, DataType.UINT8)
        self.user: ref[Returned] | None = None
        self.gone = partial(gone.__setitem__, self)  # no Python code runs


class ValueMemory:
    """The mapping, and the blocks of the parent. Any thread may call the methods.

    ``children``: the number of SUB children. ``capacity``: the size of the mapping, whose memory is
    used only for pages that were written. ``arena``: the mapping of the Worker's arrays.
    ``inherited``: what the main module defines and all SUB children have (:func:`main_module`). No
    Python code runs when a view is destroyed: the next call frees its block.
    """

    def __init__(
        self,
        children: int,
        capacity: int,
        arena: SharedMapping,
        inherited: Mapping[str, object],
    ) -> None:
        self._inherited = inherited
        self._references = {name: References(thing) for name, thing in inherited.items()}
        self.is_captured = False  # whether submits are recorded, for replays that use their blocks
        nbytes = max(capacity, _LEAST_CAPACITY)
        self._mapping = parent_only_mapping(
            reserved(SharedMapping, nbytes, _LEAST_CAPACITY, "values")
        )
        self._children = children
        self._part_bytes = self._mapping.nbytes // 2 // max(children, 1) & -_PAGE
        self._own_bytes = self._mapping.nbytes - self._part_bytes * children
        self._address = self._mapping.address
        self._bytes = memory_at(self._address, self._mapping.nbytes, self._mapping)
        self.data = self._bytes.data
        self.words = self._bytes[: self._mapping.nbytes & -_WORD].data.cast("q")
        self._arena = range(arena.address, arena.address + arena.nbytes)
        self._space = FreeList(self._own_bytes)
        self._small: defaultdict[int, list[int]] = defaultdict(list)  # free blocks by size
        # They stay slots: if the task of a slot has failed, each task that reads this memory is
        # poisoned, until another task has it as its output.
        self._slots: list[_Slot] = []
        self._free_slots: list[_Slot] = []
        self._gone_slots: dict[_Slot, object] = {}  # those whose Returned is gone
        self._live: set[_Block] = set()
        self._gone: deque[_Block] = deque()
        self._kept: OrderedDict[TaskHandle, Sequence[object]] = OrderedDict()
        self._kept_blocks: dict[int, int] = {}  # the first word of the last kept block, by child
        self._lock = threading.Lock()

    def tensor_of(self, view: _Bytes) -> ContinuousTensor:
        """Return the tensor of a block, which keeps it in use only for a capture."""
        if self.is_captured:
            return ContinuousTensor.from_array(view)
        return ContinuousTensor.from_pointer(*place_of(view), DataType.UINT8)

    @property
    def mapping(self) -> SharedMapping:
        """The mapping, which children need at the same address."""
        return self._mapping

    @property
    def addresses(self) -> range:
        """The addresses of the mapping."""
        return range(self._mapping.address, self._mapping.address + self._mapping.nbytes)

    @property
    def nbytes(self) -> int:
        """The memory of all values that a handle, a task or an array refers to."""
        self.settle()
        slots = len(self._slots) - len(self._free_slots)
        blocks = sum(block.size for block in list(self._live)) + slots * SLOT_BYTES
        return blocks + sum(size for _, size in self._results())

    def inherits(self, thing: Any) -> bool:
        """Return whether all SUB children have a function, class or task of the main module.

        False if something to which its code refers has changed since they were forked.
        """
        if not _is_unchanged(thing, self._inherited):
            return False
        return not self._references[thing.__qualname__.partition(".")[0]].have_changed()

    def is_in_arena(self, address: int) -> bool:
        """Return whether memory belongs to an array of the Worker."""
        return address in self._arena

    def part(self, child: int) -> tuple[int, int, list[tuple[int, int]]]:
        """Return address and size of the part of a child, and offset and size of its used blocks.

        ``child``: the number among SUB children. A killed child may have used other blocks, which
        are free.
        """
        self._collect()
        first = self._own_bytes + child * self._part_bytes
        inside = range(first, first + self._part_bytes)
        used = [(offset - first, size) for offset, size in self._results() if offset in inside]
        return self._mapping.address + first, self._part_bytes, used

    def _results(self) -> list[tuple[int, int]]:
        """Return offset and size of each block of a child to which a slot refers."""
        found, words = [], self.words
        for slot in list(self._slots):
            if words[slot.word + _STATE] == _IN_BLOCK:
                header = self._header_of(words[slot.word + _ADDRESS])
                found.append((header * _WORD, words[header + _SIZE]))
        return found

    def keep(self, submitted: TaskHandle, needed: Sequence[object]) -> None:
        """Keep what a submitted task needs until it has ended: its slot, blocks and callable."""
        kept = self._kept
        kept[submitted] = needed
        # drop what the oldest tasks needed, up to the first that has not ended
        try:
            while (oldest := kept.popitem(last=False))[0].has_ended:
                pass
            kept[oldest[0]] = oldest[1]
        except KeyError:
            pass  # none is left

    def drop(self, ended: TaskHandle) -> None:
        """Drop a task that has ended, and what it needed."""
        self._kept.pop(ended, None)

    def settle(self, count: int | None = None) -> None:
        """Free the blocks of tasks that have ended, among the next ``count`` tasks or all."""
        kept = self._kept
        for _ in range(len(kept) if count is None else min(count, len(kept))):
            try:
                oldest = kept.popitem(last=False)
            except KeyError:
                break  # another thread has taken it
            if not oldest[0].has_ended:
                kept[oldest[0]] = oldest[1]
            del oldest
        self._collect()

    def stored(self, content: Content) -> _Bytes:
        """Write a content into a block; return the view that keeps it in use."""
        view = self._block(content.nbytes)
        content.write(view.data)
        return view

    def counted(self, content: Content | None) -> _Bytes:
        """Return a block with a count, 0 at first, and a content; see :func:`counted_content`."""
        view = self._block(_WORD + (content.nbytes if content else 0))
        view[:_WORD] = 0
        if content:
            content.write(view.data[_WORD:])
        return view

    def stored_bytes(self, content: bytes) -> _Bytes:
        """Write bytes into a block that is used once; return the view that keeps it in use."""
        view = self._block(len(content), is_punched=True)
        view.data[:] = content
        return view

    def copied(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a contiguous copy of an array in a block."""
        view = self._block(max(array.nbytes, 1))
        # A view by buffer keeps `view` alive, unlike a slice.
        made = np.frombuffer(view.data, array.dtype, array.size).reshape(array.shape)
        made[...] = array
        return made

    def slot_for(self, returned: Returned) -> _Slot:
        """Return an empty slot, which is in use as long as ``returned`` exists."""
        if self._gone_slots:
            self._collect()
        try:
            slot = self._free_slots.pop()
        except IndexError:
            slot = self._new_slot()
        slot.user = ref(returned, slot.gone)
        return slot

    def _new_slot(self) -> _Slot:
        offset = self._take(_SMALL_BYTES)
        offsets = range(offset, offset + _SMALL_BYTES, SLOT_BYTES)
        first, *others = (_Slot(self._address, one, self._gone_slots) for one in offsets)
        self._slots += first, *others
        self._free_slots += reversed(others)
        return first

    def _block(self, nbytes: int, *, is_punched: bool = False) -> _Bytes:
        """Return the view of a new block; ``is_punched``: its pages return to the system."""
        if self._gone:
            self._collect()
        if nbytes <= _SMALL_BYTES:
            size = max(_LEAST_BYTES, 1 << (nbytes - 1).bit_length())
            free = self._small[size]
            try:
                offset = free.pop()
            except IndexError:
                offset = self._take(_SMALL_BYTES)
                free += range(offset + _SMALL_BYTES - size, offset, -size)
        else:
            size = -(-nbytes // _PAGE) * _PAGE
            offset = self._take(size)
        view = self._bytes[offset : offset + nbytes]
        block = _Block(view, self._gone.append)
        block.offset, block.size = offset, size
        block.is_punched = is_punched or size >= _PUNCHED_BYTES
        self._live.add(block)
        return view

    def _take(self, size: int) -> int:
        with self._lock:
            offset = self._space.take(size)
        if offset is not None:
            return offset
        self.settle()
        with self._lock:
            for small, offsets in list(self._small.items()):
                while offsets:
                    self._space.give_back(offsets.pop(), small)
            offset = self._space.take(size)
            if offset is None:
                raise _full(size, self._space.largest, self._own_bytes, "arguments and slots")
            return offset

    def _collect(self) -> None:
        """Free the blocks whose views are gone, and what their slots refer to."""
        gone, slots, words = self._gone, self._gone_slots, self.words
        while slots:
            try:
                slot, _ = slots.popitem()
            except KeyError:
                break  # another thread has taken it
            if words[slot.word + _STATE] == _IN_BLOCK:
                self._release(words[slot.word + _ADDRESS])
            words[slot.word + _STATE] = _EMPTY
            self._free_slots.append(slot)
        while gone:
            try:
                block = gone.popleft()
            except IndexError:
                return  # another thread has taken it
            self._live.discard(block)
            if block.size <= _SMALL_BYTES:
                self._small[block.size].append(block.offset)
                continue
            with self._lock:
                if block.is_punched:
                    self._mapping.zero(block.offset, block.size)
                self._space.give_back(block.offset, block.size)

    def _release(self, address: int) -> None:
        """Free a block of a child.

        The pages of one large block are kept until the child uses it again, because the system
        would clear and map each page again, which takes six times as long as a copy.
        """
        first = self._header_of(address)
        size, state = self.words[first + _SIZE], _FREE
        if size >= _PUNCHED_BYTES:
            child = (first * _WORD - self._own_bytes) // self._part_bytes
            kept = self._kept_blocks.get(child)
            if size <= _KEPT_BYTES and (kept is None or self.words[kept + _USE] != _KEPT):
                self._kept_blocks[child], state = first, _KEPT
            else:
                with self._lock:
                    begin = address - self._mapping.address
                    self._mapping.zero(begin, size - _HEADER_BYTES)
        self.words[first + _USE] = state

    def _header_of(self, address: int) -> int:
        """Return the first word of the header of a child's block whose content is at an address."""
        return (address - self._mapping.address - _HEADER_BYTES) // _WORD

    def close(self) -> None:
        """Free the memory that no value uses. Called after the children have exited."""
        self._kept.clear()
        self._collect()
        free = set(self._free_slots)
        used = [(block.offset, block.size) for block in list(self._live)] + self._results()
        used += [(one.offset, SLOT_BYTES) for one in self._slots if one not in free]
        end = 0
        for offset, size in sorted([*used, (self._mapping.nbytes, 0)]):
            if offset > end:
                self._mapping.zero(end, offset - end)
            end = max(end, offset + size)


def _full(size: int, largest: int, whole: int, what: str) -> CapacityError:
    return CapacityError(
        f"a value needs {size} contiguous bytes, and {largest} of the {whole} bytes for {what} are "
        "free in one piece; drop handles and results that are no longer needed, pass large data in "
        "arrays of the Worker, or set a larger shared_memory_limit",
        name="shared_memory_limit",
        value=size,
        limit=largest,
    )


class Returned:
    """The value of a task: what its function returned, or, if that is None, the arrays it wrote.

    ``members``: for a group, whose value is a list, the objects of its members; a group has no
    slot. The slot is in use as long as this object exists, also for the arrays in a value.
    """

    __slots__ = ("__weakref__", "_slot", "members", "memory", "written")

    def __init__(
        self, memory: ValueMemory, written: tuple[Any, ...], members: Sequence[Returned] = ()
    ) -> None:
        self.memory = memory
        self.written = written
        self.members = members
        if not members:
            self._slot = memory.slot_for(self)

    @property
    def each(self) -> Sequence[Returned]:
        """The members of a group, or this object."""
        return self.members or (self,)

    @property
    def is_group(self) -> bool:
        """Whether the value is a list with one value for each member."""
        return bool(self.members)

    def tensor(self) -> ContinuousTensor:
        """Return the tensor of the slot, which keeps it in use only for a capture."""
        is_kept = self.memory.is_captured
        return self.memory.tensor_of(self._content()) if is_kept else self._slot.tensor

    def _content(self) -> _Bytes:
        """Return the memory of the slot, which keeps it in use."""
        return memory_at(self.memory.mapping.address + self._slot.offset, SLOT_BYTES, self)

    def value(self) -> Any:
        """Read what the function returned. Call this after the end of the task.

        For a group, return a list; None if all members returned None and wrote arrays.
        """
        if self.members:
            values = [one.value() for one in self.members]
            return None if self.written and _are_none(values) else values
        memory, slot = self.memory, self._slot
        words, first = memory.words, slot.word
        if words[first + _STATE] != _INSIDE or words[first + _BUFFERS]:
            return _value_of(self._content(), "the task")
        begin = slot.offset + _SMALL_BEGIN
        return pickle.loads(memory.data[begin : begin + words[first + _PICKLED]])


def _are_none(values: Iterable[object]) -> bool:
    return all(value is None for value in values)


def of_group(outputs: Sequence[tuple[Any, ...] | Returned]) -> tuple[Any, ...] | Returned:
    """Return the outputs of a group from those of its members."""
    written = tuple(
        array for one in outputs for array in (one.written if isinstance(one, Returned) else one)
    )
    returned = [one for one in outputs if isinstance(one, Returned)]
    if not returned:
        return written
    return Returned(returned[0].memory, written, returned)


def _value_of(slot: _Bytes, what: str, parts: list[ref[_Bytes]] | None = None) -> Any:
    content = _content_of(slot)
    if content is None:
        raise UsageError(
            f"{what} has no value, because its task failed in an earlier run, or belongs to a "
            "captured graph and has not run"
        )
    value, found = _loaded(content)
    if parts is not None:
        parts += found
    return value


# ---- a child ----


class _Blocks:
    """The blocks in the part of a child. ``used``: offset and size of those that are used."""

    def __init__(self, address: int, nbytes: int, used: Iterable[tuple[int, int]]) -> None:
        self._address, self._nbytes = address, nbytes
        self._bytes = memory_at(address, nbytes)
        self._words = self._bytes.data.cast("q")
        self._space = FreeList(nbytes)
        self._used: deque[tuple[int, int]] = deque()
        for offset, size in used:
            if self._space.take_from(offset, size) == offset:
                self._used.append((offset, size))

    def take(self, nbytes: int) -> tuple[int, memoryview]:
        """Return the address and the memory of ``nbytes`` in a new block.

        If there is no space, wait for the parent, which frees the blocks of tasks that have ended.
        """
        size = _aligned(nbytes + _HEADER_BYTES)
        self._collect(8)
        offset = self._kept(size)
        if offset is None:
            offset = self._space.take(size)
        deadline = time.monotonic() + _WAIT_S
        while offset is None and size <= self._nbytes:
            self._collect(len(self._used), keeps=False)
            offset = self._space.take(size)
            if time.monotonic() > deadline:
                break
            if offset is None:
                time.sleep(_PAUSE_S)
        if offset is None:
            what = "the results of this child"
            raise _full(nbytes, max(self._space.largest - _HEADER_BYTES, 0), self._nbytes, what)
        self._words[offset // _WORD + _SIZE] = size
        self._words[offset // _WORD + _USE] = _USED
        self._used.append((offset, size))
        begin = offset + _HEADER_BYTES
        return self._address + begin, self._bytes.data[begin : begin + nbytes]

    def _kept(self, size: int) -> int | None:
        """Return the offset of a kept block of this size, which the caller uses."""
        if size < _PUNCHED_BYTES:
            return None
        for offset, known in self._used:
            if known == size and self._words[offset // _WORD + _USE] == _KEPT:
                self._used.remove((offset, known))
                return offset
        return None

    def _collect(self, count: int, *, keeps: bool = True) -> None:
        """Check the oldest blocks. ``keeps``: whether kept blocks stay kept."""
        for _ in range(min(count, len(self._used))):
            offset, size = self._used.popleft()
            state = self._words[offset // _WORD + _USE]
            if state == _USED or (state == _KEPT and keeps):
                self._used.append((offset, size))
            else:
                self._words[offset // _WORD + _USE] = _FREE
                self._space.give_back(offset, size)


_blocks: _Blocks | None = None


def open_part(
    address: int, nbytes: int, used: Iterable[tuple[int, int]], *, is_forked: bool
) -> None:
    """Begin to use the part of this child."""
    global _blocks, _inherited
    _blocks = _Blocks(address, nbytes, used)
    _inherited = main_module() if is_forked else {}


def empty_slot(slot: memoryview) -> None:
    """Remove the value of an attempt of the task that was not reported."""
    _, address, state = _SLOT.unpack_from(slot)
    if state == _EMPTY:
        return
    _SLOT.pack_into(slot, 0, 0, address, _EMPTY)
    if state == _IN_BLOCK:
        header = memory_at(address - _HEADER_BYTES, _HEADER_BYTES).data.cast("q")
        header[_USE] = _FREE


def store_result(slot: memoryview, result: object, name: str) -> None:
    """Write what a task function returned into its empty slot. Raises UsageError, CapacityError."""
    plain = plain_pickle(result)
    if plain and not plain[1] and (size := len(plain[0])) <= SLOT_BYTES - _SMALL_BEGIN:
        slot[_SMALL_BEGIN : _SMALL_BEGIN + size] = plain[0]
        _SMALL.pack_into(slot, 0, _HEAD.size + size, _INSIDE, size, 0)
        return
    parts = [(f"the value that {name} returned", result)]
    content = Content(result, lambda: parts, plain=plain)
    state, address = _INSIDE, 0
    if content.nbytes <= SLOT_BYTES - _HEADER_BYTES:
        content.write(slot[_HEADER_BYTES:])
    else:
        assert _blocks is not None
        address, target = _blocks.take(content.nbytes)
        content.write(target)
        state = _IN_BLOCK
    _SLOT.pack_into(slot, 0, content.nbytes, address, state)


class Received:
    """The values that a task receives, and the memory of their buffers.

    ``inputs``: the tensors that the values need.
    """

    def __init__(self, block: _Bytes, inputs: Sequence[npt.NDArray[Any]]) -> None:
        self._parts: list[ref[_Bytes]] = []
        _receiving.now = (inputs, self._parts)
        try:
            self._content, parts = _loaded(block.data.toreadonly())
        finally:
            _receiving.now = None
        self._parts += parts

    def take(self) -> Any:
        """Return the values. This object does not refer to them afterwards."""
        content, self._content = self._content, None
        return content

    def kept(self, name: str) -> str | None:
        """Return a message if an object still uses a buffer, although the task has ended."""
        if not self._is_used():
            return None
        gc.collect()  # the array may be part of a cycle of unreachable objects
        if not self._is_used():
            return None
        return (
            f"task function {name} kept an array that it received in a value; its memory is used "
            "again after the task, so keep a copy: array.copy()"
        )

    def _is_used(self) -> bool:
        return any(part() is not None for part in self._parts)


class _Receiving(threading.local):
    now: tuple[Sequence[npt.NDArray[Any]], list[ref[_Bytes]]] | None = None


_receiving = _Receiving()


def _received(first: int, slots: int, written: int, is_group: bool) -> Any:
    assert _receiving.now is not None
    inputs, parts = _receiving.now
    listed = inputs[first : first + slots]
    values = [_value_of(slot, "a handle in the arguments", parts) for slot in listed]
    if written and _are_none(values):
        return _arrays(first + slots, written)
    return values if is_group else values[0]


def _arrays(first: int, count: int) -> Any:
    assert _receiving.now is not None
    found = tuple(_receiving.now[0][first : first + count])
    return found[0] if count == 1 else found or None
