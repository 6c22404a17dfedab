"""The tools of the published runtime, which commands of ptorun replace."""
