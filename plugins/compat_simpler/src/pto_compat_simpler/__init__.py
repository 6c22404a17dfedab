"""The implementation of the modules ``simpler`` and ``simpler_setup`` of the published runtime."""
