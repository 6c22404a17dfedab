"""Level 3 and up: Workers, their children, and the engine of their runs."""
