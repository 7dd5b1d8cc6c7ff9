"""Wrappers that torch puts around modules: paths and classes of a model that is compiled or spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELD = "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"
"""Names under which torch's wrappers hold a module, and which torch leaves out of those of parameters."""


def unwrapped(model: Any) -> Any:
    """Return a model without the wrappers that torch put around it, to compile or to spread it."""
    parts = getattr(model, "_modules", {})  # attributes of a wrapper may be those of what it holds
    spread = type(model).__name__ in {"DataParallel", "DistributedDataParallel"}
    name = next((one for one in (*_HELD, *["module"] * spread) if one in parts), "")
    return unwrapped(parts[name]) if name else model


def paths_of(model: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a torch model and its modules with their paths, as they are without such wrappers."""
    model = unwrapped(model)
    yield path, model
    for name, part in model._modules.items():  # noqa: SLF001 - named_children() leaves out what is held twice
        if part is not None:
            yield from paths_of(part, f"{path}.{name}" if path else name)


def plain_path(path: str) -> str:
    """Return the path of a parameter without the wrappers that torch put around modules."""
    return ".".join(one for one in path.split(".") if one not in _HELD)


def kind_of(module: Any) -> str:
    """Return the name of a module's class, of which torch makes another one as it shards parameters."""
    kind, *others = type(module).__mro__
    return (others[1] if others[0].__name__ == "FSDPModule" else kind).__name__
