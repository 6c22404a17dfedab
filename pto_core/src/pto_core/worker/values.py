"""Values of tasks: objects that tasks receive and return, pickled in shared memory.

One mapping has a part for the parent and a part for each SUB child::

    | parent: arguments, slots | child 0: large results | child 1: large results | ...

The parent pickles the objects of a submit into a block of its part, and the block is an input
tensor of the task. A task that returns an object has a slot: a block of the parent's part that is
an output tensor of the task. A task that receives its handle has the slot as an input tensor, so
the engine orders, repeats and poisons both tasks like tasks that share an array. A result that is
larger than the slot lies in a block of the child's part, and the slot contains its address.

Buffers inside an object, such as the memory of a NumPy array, follow the pickle in the same block
(pickle protocol 5). The receiver has read-only views of them.

A block of the parent is free when no view of it exists. Views have: a handle, for its slot; the
driver, until the task has ended; the arrays in a result that the program has read. A block of a
child is free when its header says so. The parent changes the header when the slot is free.
"""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from weakref import ref

import numpy as np
import numpy.typing as npt

from pto_core._worker import SharedMapping, TaskHandle
from pto_core.errors import CapacityError, UsageError
from pto_core.errors.values import shown
from pto_core.worker.processes.parking import parent_only_mapping

_Bytes = npt.NDArray[np.uint8]
Parts: TypeAlias = Iterable[tuple[str, object]]

SLOT_BYTES = 256
_HEADER_BYTES = 64
"""The size of the header of a slot, and of a block in the part of a child."""
_ALIGNMENT = 64
_LEAST_CAPACITY = 1 << 21
_PAGE = mmap.PAGESIZE
_PUNCHED_BYTES = 1 << 20
"""The minimum size of a free block whose pages are returned to the system."""

# The words of a slot. The content follows the header, or lies in a block of a child.
_STATE, _NBYTES, _ADDRESS = range(3)
_EMPTY, _INSIDE, _IN_BLOCK = range(3)
# The words of the header of a block.
_SIZE, _IS_USED = range(2)
_WORD = 8

_HEAD = struct.Struct("<qq")  # bytes of the pickle, number of buffers; then the size of each buffer


class Content:
    """A pickled object and its buffers. Raises UsageError, which names what cannot be pickled.

    ``parts``: names and parts of the object, for messages. ``memory``: the memory of the Worker to
    which the object is submitted. ``inputs``: the tensors of the handles in the object.
    ``producers``: the handles in the object whose tasks have no result.
    """

    def __init__(
        self, value: object, parts: Callable[[], Parts], memory: ValueMemory | None = None
    ) -> None:
        self.inputs: list[Any] = []
        self.producers: list[TaskHandle] = []
        self._memory = memory
        _collecting.content = self
        try:
            self._pickled, self._buffers = _pickled(value, parts, self._forget)
        finally:
            _collecting.content = None
        if not self._buffers:
            self.nbytes = _HEAD.size + len(self._pickled)
            return
        self._begin = _HEAD.size + _WORD * len(self._buffers)
        end = self._begin + len(self._pickled)
        for buffer in self._buffers:
            end = _aligned(end) + buffer.nbytes
        self.nbytes = end

    def write(self, target: memoryview) -> None:
        """Write the content at the start of ``target``."""
        pickled, buffers = self._pickled, self._buffers
        _HEAD.pack_into(target, 0, len(pickled), len(buffers))
        if not buffers:
            target[_HEAD.size : self.nbytes] = pickled
            return
        struct.pack_into(f"<{len(buffers)}q", target, _HEAD.size, *(b.nbytes for b in buffers))
        end = self._begin + len(pickled)
        target[self._begin : end] = pickled
        for buffer in buffers:
            start = _aligned(end)
            end = start + buffer.nbytes
            target[start:end] = buffer

    def _forget(self) -> None:
        self.inputs.clear()
        self.producers.clear()

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
            self.inputs += outputs.slots
            return _received, (first, len(outputs.slots) if outputs.is_group else None)
        if not outputs:
            self.producers.append(handle)
            return _nothing, ()
        self.inputs += outputs
        return _arrays, (first, len(outputs))


class _Collecting(threading.local):
    content: Content | None = None
    """The content that this thread is pickling."""


_collecting = _Collecting()


def _reduce_handle(self: TaskHandle, protocol: object = None) -> tuple[Any, ...]:
    content = _collecting.content
    if content is None:
        raise UsageError(
            f"{self!r} cannot be pickled; pass it to the submit of a session, or use its result()",
            name="handle",
            value=self,
        )
    return content.reduced(self)


TaskHandle.__reduce_ex__ = _reduce_handle  # type: ignore[assignment, method-assign]


def _pickled(
    value: object, parts: Callable[[], Parts], forget: Callable[[], None]
) -> tuple[bytes, list[memoryview]]:
    """Pickle by reference, or, if that is impossible, functions and classes by code.

    The classes of the main module travel by code, because the receiver may have others.
    """
    buffers: list[pickle.PickleBuffer] = []
    try:
        content = pickle.dumps(value, 5, buffer_callback=buffers.append)
        is_complete = b"__main__" not in content
    except UsageError:
        raise
    except Exception:  # noqa: BLE001 - the second attempt explains it
        is_complete = False
    if not is_complete:
        import cloudpickle

        buffers.clear()
        forget()
        try:
            content = cloudpickle.dumps(value, 5, buffer_callback=buffers.append)
        except UsageError:
            raise
        except Exception as error:
            path, found = _culprit(parts())
            raise UsageError(
                f"{path} is {shown(found)} of type {type(found).__name__}, which cannot be "
                f"pickled: {error}; pass what it is made from, and make it in the task",
                name=path,
                value=type(found).__name__,
            ) from error
    return content, [buffer.raw() for buffer in buffers]


def _culprit(parts: Parts) -> tuple[str, object]:
    """Return the innermost part that cannot be pickled, and how to reach it."""
    import cloudpickle

    path, value = "", None
    seen: set[int] = set()
    while True:
        for name, part in parts:
            try:
                cloudpickle.dumps(part)
            except Exception:  # noqa: BLE001 - this is the part that is searched for
                path, value = path + name, part
                break
        else:
            return path, value
        if id(value) in seen:
            return path, value
        seen.add(id(value))
        parts = _parts(value)


def _parts(value: object) -> Parts:
    if isinstance(value, Mapping):
        yield from ((f"[{shown(key)}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())


def _loaded(content: memoryview) -> tuple[Any, list[ref[_Bytes]]]:
    """Return an object, and weak references to the memory of its buffers."""
    nbytes, count = _HEAD.unpack_from(content)
    begin = _HEAD.size + _WORD * count
    end = begin + nbytes
    if count == 0:
        return pickle.loads(content[begin:end]), []
    whole, parts, start = np.frombuffer(content, np.uint8), [], end
    for size in struct.unpack_from(f"<{count}q", content, _HEAD.size):
        start = _aligned(start)
        parts.append(whole[start : start + size])
        start += size
    return pickle.loads(content[begin:end], buffers=[part.data for part in parts]), [
        *map(ref, parts)
    ]


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


def _memory_at(address: int, nbytes: int, owner: object = None) -> _Bytes:
    return np.asarray(_Memory(address, nbytes, owner))


def _content_of(slot: _Bytes) -> memoryview | None:
    """Return the content of a slot, which keeps the slot in use; None if it has no content."""
    words = slot[:_HEADER_BYTES].data.cast("q")
    state, nbytes = words[_STATE], words[_NBYTES]
    if state == _EMPTY:
        return None
    if state == _INSIDE:
        return slot.data[_HEADER_BYTES : _HEADER_BYTES + nbytes].toreadonly()
    return _memory_at(words[_ADDRESS], nbytes, slot).data.toreadonly()


# ---- the parent ----


class _Block(ref):  # type: ignore[type-arg]
    """A weak reference to the view of a block of the parent."""

    __slots__ = ("is_slot", "offset", "size")
    __hash__ = object.__hash__  # arrays have no hash
    __eq__ = object.__eq__

    offset: int
    size: int
    is_slot: bool


class ValueMemory:
    """The mapping, and the blocks of the parent. Any thread may call the methods.

    ``children``: the number of SUB children. ``capacity``: the size of the mapping, whose memory is
    used only for pages that were written. No Python code runs when a view is destroyed: the next
    call frees its block.
    """

    def __init__(self, children: int, capacity: int) -> None:
        self._mapping = _reserved(capacity)
        self._children = children
        self._part_bytes = self._mapping.nbytes // 2 // max(children, 1) & -_PAGE
        self._own_bytes = self._mapping.nbytes - self._part_bytes * children
        self._bytes = _memory_at(self._mapping.address, self._mapping.nbytes, self._mapping)
        self._words = self._bytes[: self._mapping.nbytes & -_WORD].data.cast("q")
        self._used_bytes = 0  # where the blocks end
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._live: set[_Block] = set()
        self._gone: deque[_Block] = deque()
        self._lock = threading.Lock()

    @property
    def mapping(self) -> SharedMapping:
        """The mapping, which children need at the same address."""
        return self._mapping

    def part(self, child: int) -> tuple[int, int]:
        """Return the address and the size of the part of a child, by number among SUB children."""
        offset = self._own_bytes + child * self._part_bytes
        return self._mapping.address + offset, self._part_bytes

    def stored(self, content: Content) -> _Bytes:
        """Write a content into a block; return the view that keeps it in use."""
        view = self._block(content.nbytes, is_slot=False)
        content.write(view.data)
        return view

    def copied(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a contiguous copy of an array in a block."""
        view = self._block(max(array.nbytes, 1), is_slot=False)
        # A view by buffer keeps `view` alive, unlike a slice.
        made = np.frombuffer(view.data, array.dtype, array.size).reshape(array.shape)
        made[...] = array
        return made

    def slot(self) -> _Bytes:
        """Return an empty slot."""
        return self._block(SLOT_BYTES, is_slot=True)

    def _block(self, nbytes: int, *, is_slot: bool) -> _Bytes:
        size = max(SLOT_BYTES, 1 << (nbytes - 1).bit_length())
        if self._gone:
            self._collect()
        free = self._free[size]
        try:
            offset = free.pop()
        except IndexError:
            offset = self._extend(size)
        view = self._bytes[offset : offset + nbytes]
        block = _Block(view, self._gone.append)
        block.offset, block.size, block.is_slot = offset, size, is_slot
        self._live.add(block)
        return view

    def _extend(self, size: int) -> int:
        with self._lock:
            offset = self._used_bytes
            if offset + size > self._own_bytes:
                alive = sum(block.size for block in list(self._live))
                raise CapacityError(
                    f"a value needs a block of {size} bytes, and {alive} of {self._own_bytes} "
                    "bytes for values are in use; drop handles and results that are no longer "
                    "needed, or pass large data in arrays of the Worker",
                    name="values",
                    value=size,
                    limit=self._own_bytes,
                )
            self._used_bytes = offset + size
            return offset

    def _collect(self) -> None:
        """Free the blocks whose views are gone, and what their slots refer to."""
        gone, words = self._gone, self._words
        while gone:
            try:
                block = gone.popleft()
            except IndexError:
                return  # another thread has taken it
            self._live.discard(block)
            if block.is_slot:
                first = block.offset // _WORD
                if words[first + _STATE] == _IN_BLOCK:
                    self._release(words[first + _ADDRESS])
                words[first + _STATE] = _EMPTY
            if block.size >= _PUNCHED_BYTES:
                with self._lock:
                    self._mapping.zero(block.offset, block.size)
            self._free[block.size].append(block.offset)

    def _release(self, address: int) -> None:
        """Free a block of a child."""
        offset = address - self._mapping.address
        first = (offset - _HEADER_BYTES) // _WORD
        size = self._words[first + _SIZE]
        if size >= _PUNCHED_BYTES:
            with self._lock:
                self._mapping.zero(offset, size - _HEADER_BYTES)
        self._words[first + _IS_USED] = 0


def _reserved(capacity: int) -> SharedMapping:
    """Reserve addresses; reserve fewer if a limit of the process (``ulimit -v``) refuses them."""
    while True:
        try:
            return parent_only_mapping(SharedMapping(capacity))
        except OSError as error:
            if capacity // 2 < _LEAST_CAPACITY:
                raise CapacityError(
                    f"reserving {capacity} bytes of addresses for values failed: "
                    f"{error.strerror}; raise the limit of this process (ulimit -v)",
                    name="values",
                    value=capacity,
                ) from error
            capacity //= 2


class Returned:
    """The value of a task: what its function returned, or else the arrays that it wrote.

    ``slots``: one, or one for each member of a group.
    """

    __slots__ = ("_value", "is_group", "memory", "slots", "written")

    def __init__(
        self,
        memory: ValueMemory,
        slots: Sequence[_Bytes],
        written: tuple[Any, ...],
        *,
        is_group: bool = False,
    ) -> None:
        self.memory = memory
        self.slots = slots
        self.written = written
        self.is_group = is_group

    def value(self) -> Any:
        """Return the value, or a list with the value of each member. The task has ended."""
        try:
            return self._value
        except AttributeError:
            pass
        values = [_value_of(slot, "the task") for slot in self.slots]
        self._value: Any = values if self.is_group else values[0]
        return self._value


def of_group(outputs: Sequence[tuple[Any, ...] | Returned]) -> tuple[Any, ...] | Returned:
    """Return the outputs of a group from those of its members."""
    written = tuple(
        array for one in outputs for array in (one.written if isinstance(one, Returned) else one)
    )
    returned = [one for one in outputs if isinstance(one, Returned)]
    if not returned:
        return written
    slots = [slot for one in returned for slot in one.slots]
    return Returned(returned[0].memory, slots, written, is_group=True)


def _value_of(slot: _Bytes, what: str, parts: list[ref[_Bytes]] | None = None) -> Any:
    content = _content_of(slot)
    if content is None:
        raise UsageError(f"{what} has no value, because its task failed in an earlier run")
    value, found = _loaded(content)
    if parts is not None:
        parts += found
    return value


# ---- a child ----


class _Blocks:
    """The blocks in the part of a child. The first word of the part states where they end.

    The state of the blocks is in the part only, so a process that replaces a killed child continues
    with it.
    """

    def __init__(self, address: int, nbytes: int) -> None:
        self._address, self._nbytes = address, nbytes
        self._bytes = _memory_at(address, nbytes)
        self._words = self._bytes.data.cast("q")
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._used: deque[tuple[int, int]] = deque()
        offset = _HEADER_BYTES
        while offset < self._words[0]:
            size = self._words[offset // _WORD + _SIZE]
            self._used.append((offset, size))
            offset += size
        self._words[0] = offset

    def take(self, nbytes: int) -> tuple[int, memoryview]:
        """Return the address and the memory of ``nbytes`` in a new block."""
        size = 1 << (nbytes + _HEADER_BYTES - 1).bit_length()
        self._collect(8)
        if not self._free[size] and self._words[0] + size > self._nbytes:
            self._collect(len(self._used))
        if self._free[size]:
            offset = self._free[size].pop()
            self._words[offset // _WORD + _IS_USED] = 1
        else:
            offset = self._extend(size)
        self._used.append((offset, size))
        begin = offset + _HEADER_BYTES
        return self._address + begin, self._bytes.data[begin : begin + nbytes]

    def _extend(self, size: int) -> int:
        words, offset = self._words, self._words[0]
        if offset + size > self._nbytes:
            raise CapacityError(
                f"a result needs a block of {size} bytes, and the {self._nbytes} bytes for results "
                "of this child are in use; drop handles and results that are no longer needed",
                name="values",
                value=size,
                limit=self._nbytes,
            )
        # The header precedes the end, for a process that replaces this one.
        words[offset // _WORD + _SIZE] = size
        words[offset // _WORD + _IS_USED] = 1
        words[0] = offset + size
        return offset

    def _collect(self, count: int) -> None:
        """Check the oldest blocks."""
        for _ in range(min(count, len(self._used))):
            offset, size = self._used.popleft()
            if self._words[offset // _WORD + _IS_USED]:
                self._used.append((offset, size))
            else:
                self._free[size].append(offset)


_blocks: _Blocks | None = None


def open_part(address: int, nbytes: int) -> None:
    """Begin to use the part of this child."""
    global _blocks
    _blocks = _Blocks(address, nbytes)


def store_result(slot: _Bytes, result: object, name: str) -> None:
    """Write what a task function returned into its slot. Raises UsageError and CapacityError."""
    content = Content(result, lambda: [(f"the value that {name} returned", result)])
    words = slot[:_HEADER_BYTES].data.cast("q")
    if words[_STATE] == _IN_BLOCK:  # of an attempt whose end was not reported
        header = _memory_at(words[_ADDRESS] - _HEADER_BYTES, _HEADER_BYTES).data.cast("q")
        header[_IS_USED] = 0
    words[_STATE] = _EMPTY
    if content.nbytes <= SLOT_BYTES - _HEADER_BYTES:
        content.write(slot.data[_HEADER_BYTES:])
        state = _INSIDE
    else:
        assert _blocks is not None
        words[_ADDRESS], target = _blocks.take(content.nbytes)
        content.write(target)
        state = _IN_BLOCK
    words[_NBYTES] = content.nbytes
    words[_STATE] = state


class Received:
    """The values that a task receives, and what they refer to while the task runs.

    ``inputs``: the tensors of the handles in the values.
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

    def release(self, name: str) -> None:
        """End the use of the buffers. Raises UsageError if the task has kept one."""
        if self._is_used():
            gc.collect()  # the array may be part of a cycle of unreachable objects
        if self._is_used():
            raise UsageError(
                f"task function {name} kept an array that it received in a value; its memory is "
                "used again after the task, so keep a copy: array.copy()",
                name=name,
            )

    def _is_used(self) -> bool:
        return any(part() is not None for part in self._parts)


class _Receiving(threading.local):
    now: tuple[Sequence[npt.NDArray[Any]], list[ref[_Bytes]]] | None = None


_receiving = _Receiving()


def _received(first: int, count: int | None) -> Any:
    assert _receiving.now is not None
    inputs, parts = _receiving.now
    if count is None:
        return _value_of(inputs[first], "a handle in the arguments", parts)
    slots = inputs[first : first + count]
    return [_value_of(slot, "a handle in the arguments", parts) for slot in slots]


def _arrays(first: int, count: int) -> Any:
    assert _receiving.now is not None
    found = tuple(_receiving.now[0][first : first + count])
    return found[0] if count == 1 else found


def _nothing() -> None:
    return None


def default_capacity(limit: int | None) -> int:
    """Return the size of the mapping: the limit of shared memory, or the memory of the machine."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(limit or machine, _LEAST_CAPACITY)
