"""The emulated machine and the manners of its interface.

``memory``, ``streams``, ``events``, ``reports`` (callbacks, threads of the application), ``fault_injection``;
``codes``, ``handles`` and ``parse_tuple`` are how pyACL answers, names things and reads what it is given.
"""
