"""Results to text and data, a module a medium: words are made here. Knows nothing of pytest.

``terminal`` is a failed test's screenful; ``verdicts``, ``layer_names``, ``origins``, ``explanations`` and
``scenes`` are its parts. ``result_json`` is the same as data; ``files`` are the two beside the dump,
``summary`` the line of a session. ``ci`` is for the services that run tests.

``media`` is the table of what shows a whole session: ``npudump report`` and the plugin have their options
from it. ``view`` is what these and charts show; ``charts`` draws it for ``html/``, the page of a session, for
notebooks and for files; ``model_explorer`` colours a model with it.
"""
