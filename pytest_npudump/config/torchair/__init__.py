"""TorchAir's dump configuration: ``checker`` judges its values, ``options`` fills a real one."""
