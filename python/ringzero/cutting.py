"""Models cut into parts, which are the layers of the ring.

    cut = CutModel(model, cut="transformer.h.*")
    cut.trace(example)         # one sample: which part has which parameters, and what it costs
    cut.parts                  # for _ringzero.Worker
"""
from __future__ import annotations

import contextlib
import fnmatch
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ringzero import _ringzero
from ringzero.errors import refuse


def take_apart(value: Any, what: str) -> tuple[list[torch.Tensor], Callable[[list], Any]]:
    """The tensors in any nesting of lists, tuples, dicts and registered classes; and the function
    that puts others in their places. It does not keep the tensors."""
    leaves, spec = pytree.tree_flatten(value)
    tensors = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    for i, leaf in enumerate(leaves):
        plain = i in tensors or isinstance(leaf, nn.Module)
        members = {} if plain else getattr(leaf, "__dict__", {})
        if any(isinstance(each, torch.Tensor) for each in pytree.tree_leaves(dict(members))):
            raise refuse(f"{what}: a {type(leaf).__name__} has tensors that cannot be seen: give a "
                         "tuple or a dict, or register the class with "
                         "torch.utils._pytree.register_pytree_node")
    places = list(tensors)
    others = [None if i in tensors else leaf for i, leaf in enumerate(leaves)]

    def put(given: list[torch.Tensor]) -> Any:
        found = dict(zip(places, given))
        return pytree.tree_unflatten([found.get(i, leaf) for i, leaf in enumerate(others)], spec)
    return list(tensors.values()), put


def drop_values(module: nn.Module) -> None:
    """Memory that nothing has touched takes their place."""
    for parameter in module.parameters():
        parameter.data = torch.empty_like(parameter)


class _Trace(TorchFunctionMode):
    """In place of the marks of a ring: which part reads which tensors, and what each part costs."""

    def __init__(self, cut: CutModel) -> None:
        super().__init__()
        self._cut, self._meter, self.part = cut, None, 0
        self.uses: dict[int, set[int]] = {}  # parts by the tensor's id
        self.costs: list[tuple[int, int]] = []

    def enter(self, part: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        self.part = part
        if part in self._cut.makers:
            made = self._cut.makers[part]().parameters()
            for parameter, value in zip(self._cut.module[part - 1].parameters(), made):
                parameter.data = value.data
        self._meter = _ringzero.CostMeter(tensors)
        return tensors

    def leave(self, part: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        self.costs.append(self._meter.cost)
        self._meter = None
        if part in self._cut.makers:
            drop_values(self._cut.module[part - 1])
        return tensors

    def __torch_function__(self, function: Any, types: Any, args: tuple = (),
                           kwargs: dict | None = None) -> Any:
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor):
                self.uses.setdefault(id(leaf), set()).add(self.part)
        return function(*args, **(kwargs or {}))


class _Entry(NamedTuple):
    """A parameter or buffer in a module."""
    name: str  # full
    holder: nn.Module
    key: str   # in holder
    tensor: torch.Tensor


class CutModel:
    """A module, cut before submodules: what their calls are given leaves one part and enters the
    next. A list is a Sequential, in which functions may stand for the modules that they make."""

    def __init__(self, model: Any, cut: str | Sequence[str] | None) -> None:
        self.makers: dict[int, Callable[[], nn.Module]] = {}  # by part
        self._fresh: tuple[int, nn.Module | None] = (0, None)  # what one of them has made last
        if isinstance(model, (list, tuple)):
            if cut is not None:
                raise refuse("cut= is for one module; a list of layers is cut already")
            model, cut = self._sequence(model), "*"
        if not isinstance(model, nn.Module):
            raise refuse("model: wanted an nn.Module or a list of layers, found a "
                         f"{type(model).__name__}")
        self.module = model
        self.cuts = _cuts_of(model, cut)
        self.names: dict[str, str] = {}    # the ring's name of a tensor: the module's
        self.aliases: dict[str, str] = {}  # a tensor's name: its first name
        self.constants: dict[str, torch.Tensor] = {}  # buffers that are saved, by name
        self.parts: list[_ringzero.Part] = []
        self._modes = [(part, part.training) for part in model.modules()]
        self._marks: Any = None
        self._part = 0
        self._twins: list[tuple[_Entry, _Entry]] = []
        self._hooks = [
            model.get_submodule(name).register_forward_pre_hook(self._hook_before(i), prepend=True,
                                                                with_kwargs=True)
            for i, name in enumerate(self.cuts)]

    def _sequence(self, items: Sequence[Any]) -> nn.Sequential:
        modules = []
        for part, item in enumerate(items, 1):
            if not isinstance(item, nn.Module):
                self.makers[part], item = item, item()
                if not isinstance(item, nn.Module):
                    raise refuse(f"layer {part - 1}: wanted an nn.Module or a function that makes "
                                 f"one, found a {type(item).__name__}")
                drop_values(item)
            modules.append(item)
        if len(set(modules)) < len(modules):
            raise refuse("model: a layer is in the list twice, or a function makes one alone")
        return nn.Sequential(*modules)

    def _initial(self, part: int, path: str) -> torch.Tensor:
        """The first values of a parameter, of a fresh layer, which is kept for the next one."""
        if self._fresh[0] != part:
            self._fresh = (0, None)
            self._fresh = (part, self.makers[part]())
        return self._fresh[1].get_parameter(path)

    def _hook_before(self, part: int) -> Callable:
        def before(_: nn.Module, args: tuple, kwargs: dict) -> tuple | None:
            if self._marks is None:
                return None
            if self._part != part:
                raise refuse(f"{self.cuts[part]} is called as part {self._part + 1} of the model, "
                             f"not {part + 1}: parts are called once, in the order of cut= "
                             f"({', '.join(self.cuts)})")
            tensors, put = take_apart((args, kwargs), f"what {self.cuts[part]} is called with")
            tensors = self._marks.leave(part, tensors)
            self._part = part + 1
            return put(self._marks.enter(part + 1, tensors))
        return before

    def run(self, marks: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """One forward of the module, with a mark before each cut."""
        self._marks, self._part = marks, 0
        try:
            args, kwargs = self._put_inputs(marks.enter(0, tensors))
            result, self.outputs = take_apart(self.module(*args, **kwargs), "the model's output")
            if self._part != len(self.cuts):
                raise refuse(f"the model's forward did not call {self.cuts[self._part]}")
            return marks.leave(self._part, result)
        finally:
            self._marks = None

    def inputs(self, args: tuple, kwargs: dict) -> list[torch.Tensor]:
        """What run() is to be given. After it, outputs(tensors) is what the module returned."""
        tensors, self._put_inputs = take_apart((args, kwargs), "the model's input")
        return tensors

    def set_training(self, on: bool) -> None:
        """With the modes that the submodules were given with."""
        for part, training in self._modes:
            part.training = on and training

    def trace(self, example: Any) -> None:
        """`example`: a tuple of positional arguments, a dict of named ones, or one argument."""
        args, kwargs = ((), dict(example)) if isinstance(example, Mapping) else (example, {})
        args = args if isinstance(args, tuple) else (args,)
        trace, calls = _Trace(self), {}
        # After a module's forward: before it, the cut's own hook has not run yet.
        note = nn.modules.module.register_module_forward_hook(
            lambda module, _, __: calls.setdefault(module, set()).add(trace.part))
        compiles = "torch._dynamo" in sys.modules
        eager = torch.compiler.set_stance("force_eager") if compiles else contextlib.nullcontext()
        self.set_training(False)
        try:
            with trace, eager:
                self.run(trace, self.inputs(args, kwargs))
        finally:
            note.remove()
            self.set_training(True)
        members, tied = self._share_out(trace.uses, calls)
        places = {entry.name: f"{self._name(part)}.{self._path(part, entry.name)}"
                  for part, entries in enumerate(members) for entry in entries}
        self.names = {ours: name for name, ours in places.items()}
        norms = [(f"{name}." if name else "", norm) for name, norm in self.module.named_modules()
                 if norm.training and getattr(norm, "running_mean", None) is not None]
        for part, entries in enumerate(members):
            path = {entry.name: self._path(part, entry.name) for entry in entries}
            pairs: dict[bool, list] = {True: [], False: []}
            for entry in entries:
                pairs[entry.key in entry.holder._buffers].append((path[entry.name], entry.tensor))
            self.parts.append(_ringzero.Part(
                name=self._name(part), parameters=pairs[False], buffers=pairs[True],
                norms=[(self._path(part, prefix), norm) for prefix, norm in norms
                       if prefix + "running_mean" in path],
                cost=trace.costs[part],
                initial=functools.partial(self._initial, part) if part in self.makers else None,
                tied=[(path[name], places[tied[name]]) for name in path if name in tied]))

    def _share_out(self, uses: dict, calls: dict) -> tuple[list[list[_Entry]], dict[str, str]]:
        """What each part has; and for parameters that earlier parts have, too, their name there.
        Such a parameter becomes several, tied by name."""
        entries = [_Entry(f"{prefix}.{key}" if prefix else key, holder, key, tensor)
                   for prefix, holder in self.module.named_modules(remove_duplicate=False)
                   for key, tensor in [*holder._parameters.items(), *holder._buffers.items()]
                   if tensor is not None]
        names: dict[int, list[str]] = {}
        for entry in entries:
            holder, buffer = entry.holder, entry.key in entry.holder._buffers
            if buffer and entry.key not in holder._non_persistent_buffers_set:
                self.constants[entry.name] = entry.tensor.clone()
            names.setdefault(id(entry.tensor), []).append(entry.name)
        parts = {}
        for entry in entries:
            used, called = uses.get(id(entry.tensor), set()), calls.get(entry.holder, set())
            shared = len(names[id(entry.tensor)]) > 1
            found = (used & called or called or used) if shared else (used or called)
            if len(found) > 1:
                raise refuse(f"{entry.name} is used in several parts of the model ("
                             f"{', '.join(self._name(i) for i in sorted(found))}): cut= must leave "
                             "its uses in one")
            parts[entry.name] = min(found, default=0)
        members: list[list[_Entry]] = [[] for _ in range(len(self.cuts) + 1)]
        tied, first = {}, {}
        for entry in sorted(entries, key=lambda each: parts[each.name]):
            missing = (uses.get(id(entry.tensor), set())
                       - {parts[name] for name in names[id(entry.tensor)]})
            if missing:
                raise refuse(f"{entry.name} is also used in the part {self._name(min(missing))!r}, "
                             "by no module that has it: cut= must leave its uses in one part")
            known, part = first.setdefault(id(entry.tensor), entry), parts[entry.name]
            if known is not entry:
                self.aliases[entry.name] = known.name
                if entry.key in entry.holder._buffers or part == parts[known.name]:
                    continue
                tied[entry.name] = known.name
                entry = self._twin(entry, known)
            members[part].append(entry)
        return members, tied

    def _twin(self, entry: _Entry, first: _Entry) -> _Entry:
        if isinstance(entry.holder, nn.RNNBase):
            raise refuse(f"{entry.name} is shared with {first.name}, which torch's recurrent "
                         "modules cannot follow: leave both in one part")
        twin = nn.Parameter(torch.empty_like(entry.tensor),
                            requires_grad=entry.tensor.requires_grad)
        entry.holder._parameters[entry.key] = twin
        self._twins.append((entry, first))
        return entry._replace(tensor=twin)

    def _name(self, part: int) -> str:
        return self.cuts[part - 1] if part > 0 else "begin"

    def _path(self, part: int, name: str) -> str:
        """A name within a part. What is in no submodule of the part has a prefix of its own."""
        own = self._name(part) + "."
        if part == 0:
            return name
        return name.removeprefix(own) if name.startswith(own) else f"outer:{name}"

    def close(self) -> None:
        """The module is as before, but for its values."""
        for hook in self._hooks:
            hook.remove()
        for entry, first in self._twins:
            entry.holder._parameters[entry.key] = first.holder._parameters[first.key]
        self._hooks = []
        self.settle()

    def settle(self) -> None:
        """The worker has what it needs of the parts."""
        self.parts, self._fresh = [], (0, None)


def _cuts_of(module: nn.Module, cut: str | Sequence[str] | None) -> list[str]:
    names = [name for name, _ in module.named_modules() if name]
    some = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    if cut is None:
        lists = [(len(part), name) for name, part in module.named_modules()
                 if isinstance(part, (nn.ModuleList, nn.Sequential))]
        longest, name = max(lists, key=lambda each: each[0], default=(0, ""))
        if longest < 2:
            raise refuse(f"{type(module).__name__} has no list of layers (ModuleList, Sequential) "
                         "to cut: give cut=, a list of submodules or a pattern; there are " + some)
        cut = f"{name}.*" if name else "*"
    if isinstance(cut, str):
        found = [name for name in names
                 if name.count(".") == cut.count(".") and fnmatch.fnmatchcase(name, cut)]
        if not found:
            raise refuse(f"cut={cut!r} names no submodule; there are {some}")
        return found
    for name in cut:
        if name not in names:
            raise refuse(f"cut=: {name!r} is no submodule; there are {some}")
    return list(cut)
