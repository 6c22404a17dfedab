"""Level 3 and up: the hierarchy engine. One engine for every level; none asks which level it is."""
