"""A runtime variant that infers dependencies and keeps tasks in rings of a fixed size."""

from pto_runtime_pto2.variant import plugin

__all__ = ["plugin"]
