"""Text as the C++ libraries of CANN and MindSpore read it, where Python's would take more or less.

``strict_json`` is nlohmann::json, with ``strict_json_deep`` for nesting that Python cannot follow;
``ecmascript`` is ``std::regex``.
"""
