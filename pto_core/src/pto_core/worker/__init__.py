"""Workers of level 3 and up, their children, and the engine of their runs."""
