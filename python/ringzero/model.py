"""The model: cut into parts, which are the layers of the ring; and its values."""
import contextlib
import fnmatch
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ringzero import _ringzero
from ringzero.errors import InputError


def take_apart(value: Any, what: str) -> tuple[list[torch.Tensor], Callable[[list], Any]]:
    """The tensors in any nesting of lists, dicts and registered classes; and what puts others in
    their places, which does not keep them."""
    leaves, spec = pytree.tree_flatten(value)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    others = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    for leaf in others:
        members = {} if isinstance(leaf, nn.Module) else dict(getattr(leaf, "__dict__", {}))
        if any(isinstance(each, torch.Tensor) for each in pytree.tree_leaves(members)):
            raise InputError(f"{what}: a {type(leaf).__name__} has tensors that cannot be seen: "
                             "give a tuple or a dict, or register the class with "
                             "torch.utils._pytree.register_pytree_node")

    def put(given: list[torch.Tensor]) -> Any:
        found = dict(zip(places, given))
        return pytree.tree_unflatten([found.get(i, leaf) for i, leaf in enumerate(others)], spec)
    return [leaves[i] for i in places], put


class _Entry(NamedTuple):
    """Where a parameter or buffer is: in `holder`, as `key`."""
    name: str  # full
    holder: nn.Module
    key: str
    is_buffer: bool

    @property
    def tensor(self) -> torch.Tensor:
        return getattr(self.holder, self.key)


class CutModel:
    """A module, cut before submodules: what their calls are given leaves one part and enters the
    next. A list is a Sequential, in which functions may stand for the modules that they make."""

    def __init__(self, model: Any, cut: str | Sequence[str] | None) -> None:
        self._makers: dict[int, Callable[[], nn.Module]] = {}  # by part
        self._made: dict = {}  # what one of them has made last, by part and name
        if isinstance(model, (list, tuple)):
            if cut is not None:
                raise InputError("cut= is for one module; a list of layers is cut already")
            model, cut = self._sequence(model), "*"
        if not isinstance(model, nn.Module):
            raise InputError(f"model: wanted an nn.Module or a list of layers, found {type(model)}")
        self.module = model
        self._parts = ["begin", *_cuts_of(model, cut)]
        self.aliases: dict[str, str] = {}  # a tensor's name: its first name
        self.constants: dict[str, torch.Tensor] = {}  # buffers that are saved, by name
        self._modes = [(part, part.training) for part in model.modules()]
        self._marks, self._part = None, 0  # of the forward that runs
        self._groups: list[list[_Entry]] = []  # that share a tensor
        self._hooks = [model.get_submodule(name).register_forward_pre_hook(
            functools.partial(self._enter, part), prepend=True, with_kwargs=True)
            for part, name in enumerate(self._parts) if part]

    def _sequence(self, items: Sequence[Any]) -> nn.Sequential:
        modules = []
        for part, item in enumerate(items, 1):
            if not isinstance(item, nn.Module):
                self._makers[part], item = item, item()
                if not isinstance(item, nn.Module):
                    raise InputError(f"layer {part - 1}: wanted an nn.Module or a function that "
                                     f"makes one, found a {type(item).__name__}")
                for parameter in item.parameters():  # memory that nothing touches
                    parameter.data = torch.empty_like(parameter)
            modules.append(item)
        if len(set(modules)) < len(modules):
            raise InputError("model: a layer is in the list twice, or a function makes one alone")
        return nn.Sequential(*modules)

    def _initial(self, part: int, path: str) -> torch.Tensor:
        """The first values of a parameter. Its layer is made once for all that it has."""
        if (part, path) not in self._made:
            self._made.clear()
            made = self._makers[part]().named_parameters()
            self._made.update({(part, name): values for name, values in made})
        return self._made.pop((part, path))

    def _enter(self, part: int, _: nn.Module, args: tuple, kwargs: dict) -> tuple | None:
        """Before a submodule that begins a part: the hook."""
        if self._marks is None:
            return None
        name = self._parts[part]
        if self._part != part - 1:
            raise InputError(f"{name} is called as part {self._part + 1} of the model, not {part}: "
                             f"once each, in the order of cut= ({', '.join(self._parts[1:])})")
        tensors, put = take_apart((args, kwargs), f"what {name} is called with")
        tensors = self._marks.leave(self._part, tensors)
        self._part = part
        return put(self._marks.enter(part, tensors))

    def run(self, marks: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """One forward of the module, with a mark before each cut."""
        self._marks, self._part = marks, 0
        try:
            args, kwargs = self._put_inputs(marks.enter(0, tensors))
            result, self.outputs = take_apart(self.module(*args, **kwargs), "the model's output")
            if self._part != len(self._parts) - 1:
                raise InputError(f"the model's forward did not call {self._parts[self._part + 1]}")
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

    def trace(self, example: Any) -> list[_ringzero.Part]:
        """`example`: a tuple of positional arguments, a dict of named ones, or one argument."""
        args, kwargs = ((), dict(example)) if isinstance(example, Mapping) else (example, {})
        inputs = self.inputs(args if isinstance(args, tuple) else (args,), kwargs)
        marks = _ringzero.CountingMarks(len(self._parts))
        self._untie()
        compiles = "torch._dynamo" in sys.modules
        eager = torch.compiler.set_stance("force_eager") if compiles else contextlib.nullcontext()
        self.set_training(False)
        try:
            with eager:
                self.run(marks, inputs)
        finally:
            self.set_training(True)
        entries = self._entries()  # the first forward of a module may make some
        parts, tied = self._share_out(entries, marks)
        made, ours = [], {}
        for part, (name, cost) in enumerate(zip(self._parts, marks.costs)):
            here = [entry for entry in entries if parts.get(entry.name) == part]
            own = f"{name}." if part else ""
            path = {e.name: e.name.removeprefix(own) if e.name.startswith(own)
                    else f"outer:{e.name}" for e in here}
            ours.update({each: f"{name}.{path[each]}" for each in path})
            made.append(_ringzero.Part(
                name=name, cost=cost,
                parameters=[(path[e.name], e.tensor) for e in here if not e.is_buffer],
                buffers=[(path[e.name], e.tensor) for e in here if e.is_buffer],
                norms=[(path[e.name].removesuffix(e.key), e.holder) for e in here
                       if e.key == "running_mean" and e.holder.training],
                initial=functools.partial(self._initial, part) if part in self._makers else None,
                tied=[(path[e.name], ours[tied[e.name]]) for e in here if e.name in tied]))
        self.names = {theirs: name for name, theirs in ours.items()}  # the ring's: the module's
        return made

    def _entries(self) -> list[_Entry]:
        """All parameters and buffers."""
        known: dict[tuple[nn.Module, str], _Entry] = {}
        for prefix, holder in self.module.named_modules(remove_duplicate=False):
            for name, tensor in [*holder.named_parameters(prefix, False, remove_duplicate=False),
                                 *holder.named_buffers(prefix, False, remove_duplicate=False)]:
                key = name.rpartition(".")[2]
                entry = _Entry(name, holder, key, not isinstance(tensor, nn.Parameter))
                if (first := known.setdefault((holder, key), entry)) is not entry:
                    self.aliases[name] = first.name  # its module has two names
        return list(known.values())

    def _untie(self) -> None:
        """What several modules share becomes several with equal values: uses can be told apart."""
        groups: dict[int, list[_Entry]] = {}
        for entry in self._entries():
            groups.setdefault(id(entry.tensor), []).append(entry)
        self._groups = [group for group in groups.values() if len(group) > 1]
        for first, *others in self._groups:
            for entry in others:
                setattr(entry.holder, entry.key, first.tensor.clone() if entry.is_buffer else
                        nn.Parameter(first.tensor.detach(), first.tensor.requires_grad))

    def _share_out(self, entries: list[_Entry], marks: Any) -> tuple[dict, dict]:
        """The part of each, by name; and for each tied parameter the name of its target."""
        parts, tied = {}, {}
        used = {entry: marks.readers_of(entry.tensor) for entry in entries}
        near = {entry.holder: found for entry, found in used.items() if found}
        for entry, found in used.items():
            if len(found) > 1:
                where = ", ".join(self._parts[i] for i in found)
                raise InputError(f"{entry.name} is used in several parts of the model ({where}): "
                                 "cut= must leave its uses in one")
            around = [i for i, part in enumerate(self._parts) if entry.name.startswith(part + ".")]
            parts[entry.name] = max(found or near.get(entry.holder) or around or [0])
            if entry.is_buffer and entry.key not in entry.holder._non_persistent_buffers_set:
                self.constants[entry.name] = entry.tensor.clone()
        for group in self._groups:
            tensors = [entry.tensor for entry in group]
            group.sort(key=lambda entry: parts[entry.name])
            for entry, tensor in zip(group, tensors):
                setattr(entry.holder, entry.key, tensor)
            for entry in group[1:]:
                self.aliases[entry.name] = first = group[0].name
                if parts[entry.name] == parts[first]:  # one again
                    setattr(entry.holder, entry.key, tensors[0])
                    del parts[entry.name]
                elif not entry.is_buffer:
                    entry.tensor.data = torch.empty_like(entry.tensor)
                    tied[entry.name] = first
        self.aliases = {name: self.aliases.get(each, each) for name, each in self.aliases.items()}
        return parts, tied

    def close(self) -> None:
        """The module is as before, but for its values."""
        for hook in self._hooks:
            hook.remove()
        for first, *others in self._groups:
            for entry in others:
                setattr(entry.holder, entry.key, first.tensor)


def _cuts_of(module: nn.Module, cut: str | Sequence[str] | None) -> list[str]:
    names = [name for name, _ in module.named_modules() if name]
    some = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    if cut is None:
        lists = [(len(part), name) for name, part in module.named_modules()
                 if isinstance(part, (nn.ModuleList, nn.Sequential)) and len(part) > 1]
        if not lists:
            raise InputError(f"{type(module).__name__} has no ModuleList or Sequential to cut: give"
                             f" cut=, a list of submodules or a pattern; there are {some}")
        name = max(lists, key=lambda each: each[0])[1]
        cut = f"{name}.*" if name else "*"
    found = []
    for pattern in [cut] if isinstance(cut, str) else cut:
        found += (matching := [name for name in names if name.count(".") == pattern.count(".")
                               and fnmatch.fnmatchcase(name, pattern)])
        if not matching:
            raise InputError(f"cut=: {pattern!r} names no submodule; there are {some}")
    return found


def _refuse_copy(*_: Any, **__: Any) -> NoReturn:
    raise InputError("parameters have values within forward and backward only: see engine."
                     "state_dict(), engine.save_pretrained(folder), engine.close(values=True)")


_REFUSED = ("state_dict", "_apply", "__deepcopy__", "__reduce_ex__")  # _apply: to(); last: pickling


class Values:
    """Outside of forward and backward parameters are meta tensors, and copying them is refused."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._places: list[tuple[dict, str, nn.Parameter, nn.Parameter]] = []
        self._shown = True
        metas: dict[int, nn.Parameter] = {}
        for part in module.modules():
            part.__dict__.update(dict.fromkeys(_REFUSED, _refuse_copy))
            for name, real in part._parameters.items():
                if real is not None:
                    meta = nn.Parameter(torch.empty_like(real, device="meta"), real.requires_grad)
                    meta.__dict__.update(dict.fromkeys(_REFUSED, _refuse_copy))
                    meta = metas.setdefault(id(real), meta)
                    self._places.append((part._parameters, name, real, meta))
        self.show(False)

    def show(self, on: bool) -> None:
        if on != self._shown:
            self._shown = on
            for holder, name, real, meta in self._places:
                holder[name] = real if on else meta

    def fill(self, state: dict[str, torch.Tensor]) -> None:
        """The run is over, and the module holds these values."""
        for part in self._module.modules():
            for name in _REFUSED:
                part.__dict__.pop(name, None)
        for name, tensor in [*self._module.named_parameters(), *self._module.named_buffers()]:
            if name in state:
                tensor.data = state[name]
