"""Models as layers: lists of layers, and ready modules that are cut before named submodules.

    cut = cut_model(model, cut="transformer.h.*")
    cut.trace(args, kwargs)    # one sample: which part has which parameters, and what it costs
    cut.layers                 # for _ringzero.Worker
"""
from __future__ import annotations

import fnmatch
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ringzero import _ringzero
from ringzero.errors import refuse


class Nested:
    """The way back from a list of tensors to any nesting of lists, tuples, dicts and registered classes."""

    def __init__(self, value: Any, what: str) -> None:
        self._leaves, self._spec = pytree.tree_flatten(value)
        self._places = [i for i, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]
        for leaf in self._leaves:
            hidden = not isinstance(leaf, (torch.Tensor, nn.Module)) and getattr(leaf, "__dict__", None)
            if hidden and any(isinstance(each, torch.Tensor) for each in hidden.values()):
                raise refuse(f"{what}: a {type(leaf).__name__} has tensors that cannot be seen: give a tuple or a dict, or "
                             "register the class with torch.utils._pytree.register_pytree_node")

    def take(self) -> list[torch.Tensor]:
        """The tensors; they are not kept."""
        tensors = [self._leaves[i] for i in self._places]
        for i in self._places:
            self._leaves[i] = None
        return tensors

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> Any:
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors):
            leaves[place] = tensor
        return pytree.tree_unflatten(leaves, self._spec)


class Parameters:
    """The parameters of modules, which have values within a micro-batch only. Outside they are meta tensors: shapes and
    types can be read, values cannot."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._places: list[tuple[dict, str, nn.Parameter, nn.Parameter]] = []
        self._shown = True
        metas: dict[int, nn.Parameter] = {}
        for part in (part for module in modules for part in module.modules()):
            for name, real in part._parameters.items():
                if real is None:
                    continue
                if id(real) not in metas:
                    metas[id(real)] = nn.Parameter(torch.empty_like(real, device="meta"), requires_grad=real.requires_grad)
                self._places.append((part._parameters, name, real, metas[id(real)]))

    def show(self, on: bool) -> None:
        if on != self._shown:
            self._shown = on
            for holder, name, real, meta in self._places:
                holder[name] = real if on else meta


def _modes_of(module: nn.Module) -> Callable[[bool], None]:
    """set_training(on): with the modes that the submodules have now."""
    modes = [(part, part.training) for part in module.modules()]

    def set_training(on: bool) -> None:
        for part, training in modes:
            part.training = on and training
    return set_training


def _norms(module: nn.Module) -> list[tuple[str, nn.Module]]:
    found = []
    for name, part in module.named_modules():
        if getattr(part, "running_mean", None) is None:
            continue
        if isinstance(part, nn.SyncBatchNorm) or not isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise refuse(f"{name or 'the layer'}: a {type(part).__name__} has running statistics; only BatchNorm's can "
                         "travel with their stage")
        if part.training:
            found.append((name + "." if name else "", part))
    return found


def _as_list(output: Any, name: str) -> list[torch.Tensor]:
    tensors = [output] if isinstance(output, torch.Tensor) else list(output)
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise refuse(f"layer {name!r} gives a {type(tensor).__name__}: wanted a tensor, or a tuple of tensors")
    return tensors


class LayerList:
    """Layers one after the other: modules, functions that make a module whenever they are called, or (name, either)."""

    run = None
    aliases: dict[str, str] = {}

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = [item if isinstance(item, tuple) else (str(i), item) for i, item in enumerate(items)]
        self._built: list[tuple[int, weakref.ref[nn.Module]]] = []
        self.layers: list[_ringzero.Layer] = []
        self.names: dict[str, str] = {}  # the ring's name of a tensor: the user's

    def trace(self, args: tuple, kwargs: dict) -> None:
        tensors = self.inputs(args, kwargs)
        owners: dict[int, str] = {}
        for i, (name, item) in enumerate(self._items):
            ready = isinstance(item, nn.Module)
            module = item if ready else item()
            if not isinstance(module, nn.Module):
                raise refuse(f"layer {name!r}: wanted an nn.Module, its function gave a {type(module).__name__}")
            for member, tensor in [*module.named_parameters(), *module.named_buffers()]:
                self.names[f"{name}.{member}"] = f"{name}.{member}"
                if ready and owners.setdefault(id(tensor), name) != name:
                    raise refuse(f"{name}.{member} is in layer {owners[id(tensor)]!r}, too: one module can share it, a list cannot")
            tensors, cost = self._count(module, name, tensors)
            self.layers.append(_ringzero.Layer(name=name, build=self._builder(i), cost=cost, tied=[], ready=ready))

    @staticmethod
    def _count(module: nn.Module, name: str, tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], tuple[int, int]]:
        set_training = _modes_of(module)
        module.eval()
        meter = _ringzero.CostMeter(tensors)
        try:
            tensors = _as_list(module(*tensors), name)
            return tensors, meter.cost
        finally:
            del meter
            set_training(True)

    def _builder(self, i: int) -> Callable[[], _ringzero.Parts]:
        name, item = self._items[i]

        def build() -> _ringzero.Parts:
            ready = isinstance(item, nn.Module)
            module = item if ready else item()
            if not ready and any(known() is module for _, known in self._built):
                raise refuse(f"layer {name!r}: its function gives the same module every time; give the module itself")
            self._built.append((i, weakref.ref(module)))

            def forward(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
                return _as_list(module(*tensors), name)
            return _ringzero.Parts(module=module, parameters=list(module.named_parameters()), buffers=list(module.named_buffers()),
                                   norms=_norms(module), set_training=_modes_of(module), forward=forward)
        return build

    @property
    def modules(self) -> list[nn.Module]:
        """Those that train: once the worker is made, the others are gone."""
        living = {i: known() for i, known in self._built if known() is not None}
        return [living[i] for i in sorted(living)]

    def with_aliases(self, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return values

    def inputs(self, args: tuple, kwargs: dict) -> list[torch.Tensor]:
        if kwargs or not all(isinstance(each, torch.Tensor) for each in args):
            raise refuse("a list of layers takes tensors alone, by position")
        return list(args)

    def outputs(self, tensors: list[torch.Tensor]) -> Any:
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    def close(self) -> None:
        self.layers = []


class _Uses(TorchFunctionMode):
    """In which parts each tensor is read, by its id."""

    def __init__(self, marks: "_TraceMarks") -> None:
        super().__init__()
        self._marks = marks
        self.parts: dict[int, set[int]] = {}

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor):
                self.parts.setdefault(id(leaf), set()).add(self._marks.part)
        return function(*args, **(kwargs or {}))


class _TraceMarks:
    """Counts what each part costs, in place of a ring's marks."""

    def __init__(self) -> None:
        self.part = 0
        self.costs: list[tuple[int, int]] = []
        self._meter: Any = None

    def enter(self, part: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        self.part = part
        self._meter = _ringzero.CostMeter(tensors)
        return tensors

    def leave(self, _: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        self.costs.append(self._meter.cost)
        self._meter = None
        return tensors


class ReadyModule:
    """One nn.Module, cut before submodules: what their calls are given leaves one part and enters the next."""

    def __init__(self, module: nn.Module, cut: str | Sequence[str] | None) -> None:
        self.module, self.modules = module, [module]
        self.cuts = _cuts_of(module, cut)
        self.names: dict[str, str] = {}  # the ring's name of a tensor: the module's
        self.layers: list[_ringzero.Layer] = []
        self._set_training = _modes_of(module)
        self._marks: Any = None
        self._part = 0
        self._handles = [
            module.get_submodule(name).register_forward_pre_hook(self._hook_before(i), prepend=True, with_kwargs=True)
            for i, name in enumerate(self.cuts)]
        self._twins: list[tuple[dict, str, dict, str]] = []

    def _hook_before(self, part: int) -> Callable:
        def before(_: nn.Module, args: tuple, kwargs: dict) -> tuple | None:
            if self._marks is None:
                return None
            if self._part != part:
                raise refuse(f"{self.cuts[part]} is called as part {self._part + 1} of the model, not {part + 1}: parts are "
                             f"called once, in the order of cut= ({', '.join(self.cuts)})")
            given = Nested((args, kwargs), f"what {self.cuts[part]} is called with")
            tensors = self._marks.leave(part, given.take())
            self._part = part + 1
            return given.with_tensors(self._marks.enter(part + 1, tensors))
        return before

    def run(self, marks: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """One forward of the module, with a mark before each cut."""
        self._marks, self._part = marks, 0
        try:
            args, kwargs = self._given.with_tensors(marks.enter(0, tensors))
            self._result = Nested(self.module(*args, **kwargs), "the model's output")
            if self._part != len(self.cuts):
                raise refuse(f"the model's forward did not call {self.cuts[self._part]}")
            return marks.leave(self._part, self._result.take())
        finally:
            self._marks = None

    def inputs(self, args: tuple, kwargs: dict) -> list[torch.Tensor]:
        self._given = Nested((args, kwargs), "the model's input")
        return self._given.take()

    def outputs(self, tensors: list[torch.Tensor]) -> Any:
        return self._result.with_tensors(tensors)

    def trace(self, args: tuple, kwargs: dict) -> None:
        marks, calls = _TraceMarks(), {}
        uses = _Uses(marks)
        # After a module's forward: before it, the cut's own hook has not run yet.
        note = nn.modules.module.register_module_forward_hook(
            lambda module, _, __: calls.setdefault(module, set()).add(marks.part))
        tensors = self.inputs(args, kwargs)
        eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else None
        self.module.eval()
        try:
            with uses:
                self.run(marks, tensors)
        finally:
            note.remove()
            self._set_training(True)
            if eager is not None:
                torch.compiler.set_stance("default")
        self._share_out(uses.parts, calls)
        places = {name: f"{self._name(part)}.{self._path(part, name)}" for part, members in enumerate(self._members)
                  for name, _, _ in members}
        self.names = {ours: name for name, ours in places.items()}
        for part, cost in enumerate(marks.costs):
            tied = [(self._path(part, name), places[self._tied[name]]) for name, _, _ in self._members[part] if name in self._tied]
            self.layers.append(_ringzero.Layer(name=self._name(part), build=self._builder(part), cost=cost, tied=tied, ready=True))

    # Gives every parameter and buffer its part. A parameter that several parts share becomes several, tied by name.
    def _share_out(self, uses: dict, calls: dict) -> None:
        entries, count = [], {}
        for prefix, holder in self.module.named_modules(remove_duplicate=False):
            for name, tensor in [*holder._parameters.items(), *holder._buffers.items()]:
                if tensor is not None:
                    entries.append((f"{prefix}.{name}" if prefix else name, holder, name, tensor))
                    count[id(tensor)] = count.get(id(tensor), 0) + 1
        parts = {full: self._part_of(full, holder, tensor, count[id(tensor)] > 1, uses, calls) for full, holder, _, tensor in entries}
        for full, _, _, tensor in entries:
            missing = uses.get(id(tensor), set()) - {parts[each] for each, _, _, other in entries if other is tensor}
            if missing:
                raise refuse(f"{full} is also used in the part {self._name(min(missing))!r}, by no module that has it: cut= must "
                             "leave its uses in one part")
        self._members: list[list[tuple[str, torch.Tensor, bool]]] = [[] for _ in range(len(self.cuts) + 1)]
        self._tied: dict[str, str] = {}     # a parameter's name: its name in an earlier part
        self.aliases: dict[str, str] = {}  # a tensor's name: its first name
        first: dict[int, tuple[str, nn.Module, str]] = {}
        for full, holder, name, tensor in sorted(entries, key=lambda entry: parts[entry[0]]):
            known = first.setdefault(id(tensor), (full, holder, name))
            buffer = name in holder._buffers
            if known[0] == full:
                self._members[parts[full]].append((full, tensor, buffer))
                continue
            self.aliases[full] = known[0]
            if buffer or parts[full] == parts[known[0]]:
                continue
            if isinstance(holder, nn.RNNBase):
                raise refuse(f"{full} is shared with {known[0]}, which torch's recurrent modules cannot follow: leave both in one part")
            twin = nn.Parameter(torch.empty_like(tensor), requires_grad=tensor.requires_grad)
            holder._parameters[name] = twin
            self._twins.append((holder._parameters, name, known[1]._parameters, known[2]))
            self._tied[full] = known[0]
            self._members[parts[full]].append((full, twin, False))

    def _part_of(self, full: str, holder: nn.Module, tensor: torch.Tensor, shared: bool, uses: dict, calls: dict) -> int:
        used, called = uses.get(id(tensor), set()), calls.get(holder, set())
        parts = (used & called or called or used) if shared else (used or called)
        if len(parts) > 1:
            raise refuse(f"{full} is used in several parts of the model ({', '.join(self._name(i) for i in sorted(parts))}): "
                         "cut= must leave its uses in one")
        return min(parts, default=0)

    def _name(self, part: int) -> str:
        return self.cuts[part - 1] if part > 0 else "begin"

    def _path(self, part: int, name: str) -> str:
        return name.removeprefix(self._name(part) + ".")

    def _builder(self, part: int) -> Callable[[], _ringzero.Parts]:
        members = [(self._path(part, name), tensor, buffer) for name, tensor, buffer in self._members[part]]
        here = {name for name, _, _ in self._members[part]}
        norms = [(self._path(part, prefix), norm) for prefix, norm in _norms(self.module) if prefix + "running_mean" in here]

        def build() -> _ringzero.Parts:
            return _ringzero.Parts(module=self.module, parameters=[(path, tensor) for path, tensor, buffer in members if not buffer],
                                   buffers=[(path, tensor) for path, tensor, buffer in members if buffer], norms=norms,
                                   set_training=self._set_training, forward=None)
        return build

    def with_aliases(self, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`values` by all names, in the module's order; those of shared parameters, too."""
        return {**values, **{name: values[known] for name, known in self.aliases.items() if known in values}}

    def close(self) -> None:
        """The module is as before, but for its values."""
        for handle in self._handles:
            handle.remove()
        for holder, name, first, first_name in self._twins:
            holder[name] = first[first_name]
        self._handles, self._twins, self.layers = [], [], []


def _cuts_of(module: nn.Module, cut: str | Sequence[str] | None) -> list[str]:
    names = [name for name, _ in module.named_modules() if name]
    some = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    if cut is None:
        lists = [(len(part), name) for name, part in module.named_modules() if isinstance(part, (nn.ModuleList, nn.Sequential))]
        longest, name = max(lists, key=lambda each: each[0], default=(0, ""))
        if longest < 2:
            raise refuse(f"{type(module).__name__} has no list of layers (ModuleList, Sequential) to cut: give cut=, a list of "
                         f"submodules or a pattern; there are {some}")
        cut = f"{name}.*" if name else "*"
    if isinstance(cut, str):
        cuts = [name for name in names if name.count(".") == cut.count(".") and fnmatch.fnmatchcase(name, cut)]
        if not cuts:
            raise refuse(f"cut={cut!r} names no submodule; there are {some}")
        return cuts
    for name in cut:
        if name not in names:
            raise refuse(f"cut=: {name!r} is no submodule; there are {some}")
    return list(cut)


def cut_model(model: Any, cut: str | Sequence[str] | None) -> LayerList | ReadyModule:
    """`model`: an nn.Module, or a list of layers."""
    if isinstance(model, nn.Module):
        return ReadyModule(model, cut)
    if isinstance(model, (list, tuple)):
        if cut is not None:
            raise refuse("cut= is for one module; a list of layers is cut already")
        return LayerList(model)
    raise refuse(f"model: wanted an nn.Module or a list of layers, found a {type(model).__name__}")
