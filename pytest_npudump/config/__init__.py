"""What a runtime reads to switch a dump on: written from a request, checked by the runtime's own rules."""
