"""Children of a Worker on other hosts."""

REASON_BYTES = 4096
"""The size of the shared memory in which a relay explains its exit."""

TABLE_BYTES = 1 << 20
"""The size of the table of digests that all relays of a Worker share: one entry of 64 bytes for
each 1 MiB of an input of up to 16 GiB."""
