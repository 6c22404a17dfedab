"""Graphs, race checks, measured accesses and traces of programs.

``graphs`` has the graph of a program and its findings, ``traces`` the traces of runs. The core
reaches both through ``provider``; ``commands`` has the subcommands of ``pto``.
"""
