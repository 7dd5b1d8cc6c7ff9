"""The emulated machine and the manners of its interface.

``memory``, ``streams``, ``events``, ``reports`` (callbacks, and threads of the application) and ``faults``;
``codes``, ``handles`` and ``arguments`` are how pyACL answers, names things and reads what it is given.
"""
