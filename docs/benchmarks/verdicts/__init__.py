"""Which rules see which faults, name the right layer, and fail for noise: measured on real models.

``models`` finds the models, ``network`` takes them apart, ``execution`` runs them. ``numerics`` and
``fusion`` are ways to compute the same, ``faults`` are ways to compute something else. ``observed`` is what a
dump tells of a run, ``rules`` judge, ``experiment`` counts and ``tables`` prints. All of it runs with
``python docs/benchmarks/verdicts/run.py``. ``naming`` counts which operators are named in the end, on these
models and ``held_out`` ones: ``run_naming.py``. ``run_main_flow.py`` puts ``unseen_faults`` into ``unseen``
models and runs pytest with the plugin.
"""
