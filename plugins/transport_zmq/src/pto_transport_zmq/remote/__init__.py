"""Children of a Worker on other hosts."""
