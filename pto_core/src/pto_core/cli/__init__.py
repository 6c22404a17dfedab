"""The ``pto`` command.

A subcommand is a module with ``add_arguments(parser)`` and ``run(namespace) -> exit code``; the
module is imported when the subcommand is invoked. Exit codes: 0 success, 1 wrong result, 2 usage
error, 3 build failed, 4 run failed, 5 backend not available, 130 interrupted.
"""
