"""The commands of this package: `pto agent` and `pto keys`."""
