"""Check a backend's device memory."""

from __future__ import annotations

import ctypes

from pto_devkit import abi
from pto_devkit.checks import expect, random_numbers
from pto_devkit.native import StatusError
from pto_devkit.subjects import BackendSubject

_TOO_MUCH_BYTES = 1 << 60


def check_memory_round_trip(backend: BackendSubject, seed: int | None = None) -> None:
    """Require that data copied to the device is copied back unchanged, at any size and offset.

    The check fills buffers of random sizes with random bytes, and overwrites parts of them at odd
    offsets. After every write it compares each whole buffer with a copy on the host.
    """
    with random_numbers(seed) as numbers, backend.open() as device:
        for size in [
            1,
            2,
            7,
            1023,
            1024,
            1025,
            *(numbers.randrange(1, 1 << 16) for _ in range(12)),
        ]:
            address = device.allocate(size)
            expected = bytearray(numbers.randbytes(size))
            device.copy_in(address, bytes(expected))
            for _ in range(4):
                first = numbers.randrange(size)
                part = numbers.randbytes(numbers.randrange(size - first) + 1)
                device.copy_in(address + first, part)
                expected[first : first + len(part)] = part
                _expect_same(bytes(expected), device.copy_out(address, size), size)
                got = device.copy_out(address + first, len(part))
                _expect_same(part, got, size)
            device.free(address)


def _expect_same(expected: bytes, got: bytes, size: int) -> None:
    if expected != got:
        index = next(i for i, (a, b) in enumerate(zip(expected, got, strict=True)) if a != b)
        expect(
            False,
            f"byte {index} of {len(got)} that were copied out of a buffer of {size} bytes is "
            f"{got[index]:#04x}, but {expected[index]:#04x} was copied in",
        )


def check_addresses_are_aligned(backend: BackendSubject) -> None:
    """Require that every device address is a multiple of 1024 and not 0, whatever the size."""
    with backend.open() as device:
        for size in (0, 1, 3, 1000, 1024, 1025, 100_000):
            address = device.allocate(size)
            expect(
                address and address % abi.ALIGNMENT == 0,
                f"allocate({size}) returned {address:#x}, not a multiple of {abi.ALIGNMENT}",
            )


def check_buffers_do_not_overlap(backend: BackendSubject, seed: int | None = None) -> None:
    """Require that live buffers share no byte, even after others were freed."""
    with random_numbers(seed) as numbers, backend.open() as device:
        live: dict[int, bytes] = {}
        for _ in range(200):
            if live and numbers.random() < 0.4:
                victim = numbers.choice(sorted(live))
                device.free(victim)
                del live[victim]
            size = numbers.randrange(1, 5000)
            address = device.allocate(size)
            expect(address not in live, f"allocate({size}) returned the live address {address:#x}")
            live[address] = numbers.randbytes(size)
            device.copy_in(address, live[address])
        for address, content in live.items():
            expect(
                device.copy_out(address, len(content)) == content,
                f"the {len(content)} bytes at {address:#x} changed when other buffers were written",
            )


def check_empty_buffers_are_distinct(backend: BackendSubject) -> None:
    """Require that ``allocate(0)`` returns a separate buffer that can be freed."""
    with backend.open() as device:
        addresses = [device.allocate(0) for _ in range(8)]
        expect(len(set(addresses)) == 8, f"8 empty buffers have the addresses {addresses}")
        for address in addresses:
            device.copy_in(address, b"")
            device.free(address)


def check_device_memory_is_apart(backend: BackendSubject) -> None:
    """Require that a copy is independent: a later write to the host's buffer does not change it."""
    with backend.open() as device:
        address = device.allocate(4096)
        host = ctypes.create_string_buffer(b"\x11" * 4096, 4096)
        device.copy_in(address, host)
        ctypes.memset(host, 0x22, 4096)
        expect(
            device.copy_out(address, 4096) == b"\x11" * 4096,
            "a write to the host's buffer after the copy in changed the device's memory",
        )


def check_bad_addresses_are_refused(backend: BackendSubject) -> None:
    """Require an error for a second free and for an unknown address; the device remains usable."""
    with backend.open() as device:
        address = device.allocate(64)
        device.free(address)
        for bad in (address, address + 16, 8):
            try:
                device.free(bad)
            except StatusError as refusal:
                expect(
                    refusal.status in (abi.Status.ADDRESS, abi.Status.USAGE) and refusal.message,
                    f"free({bad:#x}) of no live buffer answered {refusal}; ADDRESS and a message",
                )
            else:
                expect(False, f"free({bad:#x}) of no live buffer answered OK")
        device.free(device.allocate(64))


def check_exhausted_memory_is_an_error(backend: BackendSubject) -> None:
    """Require MEMORY for an allocation that is too large; the device remains usable."""
    with backend.open() as device:
        try:
            device.allocate(_TOO_MUCH_BYTES)
        except StatusError as refusal:
            expect(
                refusal.status in (abi.Status.MEMORY, abi.Status.CAPACITY) and refusal.message,
                f"allocate(2**60) answered {refusal}; expected MEMORY and a message",
            )
        else:
            expect(False, "allocate(2**60) answered OK")
        address = device.allocate(16)
        device.copy_in(address, b"0123456789abcdef")
        expect(
            device.copy_out(address, 16) == b"0123456789abcdef",
            "the device lost data after a failed allocation",
        )


def check_leaks_are_reported(backend: BackendSubject) -> None:
    """Require that ``close`` reports the number of leaks, their bytes, and the first leak."""
    device = backend.open()
    kept = {device.allocate(size): size for size in (100, 3000)}
    device.free(device.allocate(50))
    leaks = device.close()
    expect(
        leaks.buffers == 2 and leaks.bytes >= sum(kept.values()),
        f"2 buffers of {sum(kept.values())} bytes were not freed, but close() reports "
        f"{leaks.buffers} of {leaks.bytes} bytes",
    )
    expect(
        leaks.first_address in kept and leaks.first_bytes >= kept[leaks.first_address],
        f"the first leak is reported as {leaks.first_bytes} bytes at {leaks.first_address:#x}, "
        f"but no such buffer was allocated",
    )


def check_nothing_leaks_unasked(backend: BackendSubject) -> None:
    """Require that a device without leaks reports none."""
    device = backend.open()
    for size in (0, 1, 5000):
        device.free(device.allocate(size))
    leaks = device.close()
    expect(leaks.buffers == 0, f"close() reports {leaks.buffers} leaks, but there are none")


def check_devices_are_apart(backend: BackendSubject) -> None:
    """Require that two open devices have separate memory, even after one of them closes."""
    with backend.open(0) as first:
        with backend.open(1) as second:
            pairs = [(device, device.allocate(4096)) for device in (first, second)]
            for index, (device, address) in enumerate(pairs):
                device.copy_in(address, bytes([index + 1]) * 4096)
            for index, (device, address) in enumerate(pairs):
                expect(
                    device.copy_out(address, 4096) == bytes([index + 1]) * 4096,
                    f"device {index} has the bytes of the other device",
                )
        address = pairs[0][1]
        expect(first.copy_out(address, 4096) == b"\x01" * 4096, "closing device 1 changed device 0")
        first.free(address)
