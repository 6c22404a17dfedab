"""The ``pto`` command.

A subcommand is a module with ``add_arguments(parser)`` and ``run(namespace) -> exit code``; it is
imported when it is invoked. Exit codes: 0 right, 1 wrong result, 2 usage, 3 could not build,
4 run failed, 5 backend not available, 130 interrupted.
"""
