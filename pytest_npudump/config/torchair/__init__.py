"""TorchAir's dump configuration: ``checker`` judges its values, ``dump_config`` fills a real one."""
