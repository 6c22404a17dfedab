"""The subcommands of ``pto`` that show graphs and traces: graph, why, check and trace."""
