"""The reference functions of the published runtime, which are not available here."""
