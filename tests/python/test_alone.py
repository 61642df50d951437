"""One worker in this process: what a module may be, what it holds when, how loops are written."""
import copy
import gc
import io
import os
import pickle
import resource

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ringzero
import train_gpt

CONFIG = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
X, Y = torch.randn(2, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 2])


def net(*more: nn.Module) -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), *more, nn.Linear(5, 3))


def inner() -> nn.Linear:
    torch.manual_seed(5)
    return nn.Linear(5, 5)


def engine_of(model: object, iterations: int = 3, config: dict = CONFIG, **options: object) -> ringzero.Engine:
    return ringzero.initialize(model=model, config=config, iterations=iterations, example=options.pop("example", X[:1]), **options)[0]


def train(model: object, iterations: int = 3, **options: object) -> dict:
    engine = engine_of(model, iterations, **options)
    for _ in range(iterations):
        engine.backward(nn.functional.cross_entropy(engine(X), Y))
        engine.step()
    state = engine.state_dict()
    engine.close()
    return {"losses": engine.losses, **state}


def equal(one: dict, other: dict) -> bool:
    return one["losses"] == other["losses"] and all(torch.equal(one[key], other[key]) for key in one if key != "losses")


def plain(model: nn.Module, iterations: int = 3) -> list:
    optimizer, losses = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1), []
    for _ in range(iterations):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X), Y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_what_would_copy_values_that_are_not_there_is_refused() -> None:
    model = net()
    engine = engine_of(model, 1)
    weight = model[0].weight
    assert weight.shape == (5, 6) and weight.dtype == torch.float32 and "meta" in repr(weight)
    for copies in (model.state_dict, lambda: model[0].state_dict(), lambda: model.to(torch.float64), lambda: copy.deepcopy(model),
                   lambda: copy.deepcopy(model[0]), lambda: pickle.dumps(model), lambda: torch.save(model, io.BytesIO()),
                   lambda: torch.save(weight, io.BytesIO()), lambda: copy.deepcopy(weight), model.float):
        with pytest.raises(ringzero.InputError, match=r"engine.state_dict\(\)"):
            copies()
    for reads in (lambda: weight.sum().item(), weight.tolist, weight.numpy, lambda: weight.to("cpu"), lambda: model(X).tolist()):
        with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
            reads()
    seen = []
    for part in model:
        part.register_forward_hook(lambda part, _, __: seen.extend(each.device.type for each in part.parameters()))
    loss = nn.functional.cross_entropy(engine(X), Y)
    assert seen == ["cpu"] * 4
    for when in (lambda: None, loss.backward):  # after the forward; after the backward
        when()
        with pytest.raises((RuntimeError, NotImplementedError)):
            model[0].weight.sum().item()
    engine.close()


def test_the_module_holds_trained_values_on_request() -> None:
    model = train_gpt.Gpt(dropout=0)
    engine = engine_of(model, 1, example=train_gpt.example())
    engine.backward(engine(torch.zeros(2, 12, dtype=torch.long), torch.zeros(2, 12, dtype=torch.long))["loss"])
    engine.close(values=True)
    assert model.head.weight is model.token.weight
    assert all(torch.equal(values, model.state_dict()[name]) for name, values in engine.state_dict().items())
    engine = engine_of(copy.deepcopy(model), 1, example=train_gpt.example())  # and trains once more
    engine.backward(engine(torch.zeros(2, 12, dtype=torch.long), torch.zeros(2, 12, dtype=torch.long))["loss"])
    engine.close()


def test_losses_and_values_are_those_of_plain_loops() -> None:
    assert train(net())["losses"] == pytest.approx(plain(net()), rel=1e-6)


def test_a_list_is_a_sequential_and_functions_may_make_its_layers() -> None:
    wanted = train(net())
    assert equal(train(list(net())), wanted)
    torch.manual_seed(7)
    made = train([lambda: nn.Linear(6, 5), nn.Tanh, lambda: nn.Linear(5, 3)])
    assert made.keys() == wanted.keys()
    assert equal(made, train([lambda: nn.Linear(6, 5), nn.Tanh, lambda: nn.Linear(5, 3)]))  # keyed by the configuration's seed
    same = nn.Linear(6, 6)
    for wrong in ([lambda: same, lambda: same], [lambda: 7]):
        with pytest.raises(ringzero.InputError, match="one alone|found a int"):
            train(wrong)


class Outer(nn.Module):
    """Its last norm runs in the last part, whose own norm has the same name."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.layers = nn.ModuleList([Normed(), Normed()])
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 3)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)) * self.scale


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.norm(x)


def test_names_in_a_part_and_outside_of_it_may_be_equal_and_buffers_are_saved() -> None:
    wanted = plain(Outer())
    found = train(Outer())
    assert found.pop("losses") == pytest.approx(wanted, rel=1e-6)
    assert found.keys() == Outer().state_dict().keys() and found["scale"] == 2


class Shared(nn.Module):
    """Recurrent modules in two parts with the same weights; a table in both; a head that is older than what it is tied to."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.head, self.layers = nn.Linear(6, 6), nn.ModuleList([nn.RNN(6, 6), nn.RNN(6, 6)])
        self.layers[1].weight_ih_l0 = self.layers[0].weight_ih_l0
        self.layers[0].weight_hh_l0 = self.head.weight
        for layer in self.layers:
            layer.register_buffer("table", self.layers[0].table if layer is self.layers[1] else torch.ones(6) * 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x, _ = layer(x * layer.table)
        return self.head(x)


def test_what_modules_share_may_be_in_several_parts() -> None:
    model = Shared()
    wanted, shared = plain(copy.deepcopy(model)), model.head.weight
    engine = engine_of(model)
    for _ in range(3):
        engine.backward(nn.functional.cross_entropy(engine(X), Y))
    engine.close(values=True)
    assert engine.losses == pytest.approx(wanted, rel=1e-6)
    assert model.head.weight is model.layers[0].weight_hh_l0 is shared
    assert model.layers[0].weight_ih_l0 is model.layers[1].weight_ih_l0
    assert engine.state_dict().keys() == model.state_dict().keys()
    copied = copy.deepcopy(model)
    assert torch.equal(model(X), copied(X))


class Twice(nn.Module):
    """The head has two names, and the embedding's weight; layers of one part share a mask."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.token, self.layers = nn.Embedding(6, 6), nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)])
        self.head, self.decoder = nn.Linear(6, 6, bias=False), nn.Module()
        self.head.weight, self.decoder.head = self.token.weight, self.head
        mask = torch.ones(6)
        for layer in self.layers:
            layer.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.token(x.long().clamp(0, 5))[:, 0]
        for layer in self.layers:
            x = layer(x) * layer.mask
        return self.decoder.head(x)


def test_all_names_of_what_modules_share_are_in_the_state() -> None:
    found = train(Twice(), cut=["layers.1", "head"])
    assert found.pop("losses") == pytest.approx(plain(Twice()), rel=1e-6)
    assert found.keys() == Twice().state_dict().keys()
    assert torch.equal(found["decoder.head.weight"], found["token.weight"])


def test_an_evaluation_that_is_not_due_is_refused_and_the_run_goes_on() -> None:
    engine = engine_of(net(), 2, {**CONFIG, "evaluation": {"every": 2}}, evaluation_data=list(zip(X, Y)))
    for _ in range(2):
        with pytest.raises(ringzero.InputError, match="before an evaluation is due"):
            engine.evaluate(lambda batch: nn.functional.cross_entropy(engine(batch[0]), batch[1]))
        engine.backward(nn.functional.cross_entropy(engine(X), Y))
        engine.step()
    with pytest.raises(ringzero.InputError, match=r"call evaluate\(\)"):
        engine(X)
    engine.evaluate(lambda batch: nn.functional.cross_entropy(engine(batch[0]), batch[1]))
    engine.close()
    assert len(engine.evaluations) == 1


def test_a_run_that_is_stopped_and_looked_at_has_the_bits_of_shorter_ones() -> None:
    engine = engine_of(net(), 100, state_dicts=True)
    shown, shown_at, end = {}, None, None
    while not engine.over:
        if engine.state_dict_due:
            shown = engine.state_dict()
            continue
        engine.backward(nn.functional.cross_entropy(engine(X), Y))
        engine.step()
        if engine.global_steps == 2:
            shown_at = engine.request_state_dict()
        if engine.global_steps == 5:
            end = engine.stop()
    state = engine.state_dict()
    engine.close()
    assert shown_at == 6 and engine.iterations == engine.global_steps == end == 9
    assert equal({"losses": engine.losses, **state}, train(net(), end))
    assert equal({"losses": engine.losses[:shown_at], **shown}, train(net(), shown_at))


def test_what_cannot_be_asked_for_is_refused_and_the_run_goes_on() -> None:
    engine = engine_of(net(), 2)
    for ask, words in ((engine.request_evaluation, "evaluation_data="), (engine.request_state_dict, "state_dicts=True")):
        with pytest.raises(ringzero.InputError, match=words):
            ask()
    assert engine.stop() == 2
    for _ in range(2):
        engine.backward(nn.functional.cross_entropy(engine(X), Y))
        engine.step()
    engine.close()
    assert engine.iterations == 2


def test_a_loader_with_processes_ends_with_a_run_that_is_stopped() -> None:
    engine, _, loader, _ = ringzero.initialize(model=net(), config=CONFIG, training_data=list(zip(X, Y)) * 40, num_workers=2,
                                               iterations=100)
    for x, y in loader:
        engine.backward(nn.functional.cross_entropy(engine(x), y))
        engine.step()
        if engine.global_steps == 1:
            engine.stop()
    engine.close()
    assert engine.global_steps == 5


def test_a_pass_with_nothing_left_but_an_evaluation_is_an_error() -> None:
    data = list(zip(X, Y))
    engine, _, loader, _ = ringzero.initialize(model=net(), config=CONFIG, training_data=data * 2, evaluation_data=data, iterations=2)
    for x, y in loader:
        engine.backward(nn.functional.cross_entropy(engine(x), y))
        engine.step()
    assert not engine.over
    with pytest.raises(ringzero.InputError, match="an evaluation is due"):
        next(iter(loader))
    engine.evaluate(lambda batch: nn.functional.cross_entropy(engine(batch[0]), batch[1]))
    assert engine.over
    engine.close()


def test_a_loader_with_processes_does_not_hold_up_the_end() -> None:
    engine, _, loader, _ = ringzero.initialize(model=net(), config=CONFIG, training_data=list(zip(X, Y)) * 4, num_workers=2,
                                               iterations=3)
    batches = iter(loader)
    for _ in range(3):
        x, y = next(batches)
        engine.backward(nn.functional.cross_entropy(engine(x), y))
    engine.close()  # its processes live
    assert len(engine.losses) == 3


def test_frozen_and_unused_parameters_stay() -> None:
    model = net(inner())
    model[2].requires_grad_(False)
    model[3].unused = nn.Parameter(torch.ones(3))
    wanted, before = plain(copy.deepcopy(model)), model[2].weight.clone()
    found = train(model)
    assert found["losses"] == pytest.approx(wanted, rel=1e-6)
    assert torch.equal(found["2.weight"], before) and torch.equal(found["3.unused"], torch.ones(3))


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


def test_checkpointed_and_compiled_layers_have_the_same_bits() -> None:
    wanted = train(net(inner()))["losses"]
    assert train(net(Checkpointed(inner())))["losses"] == wanted
    model = net(inner())
    model[2] = torch.compile(model[2], backend="eager")
    assert train(model)["losses"] == wanted


def test_bf16_computes_in_bf16_and_keeps_the_module_fp32_masters() -> None:
    seen = []

    class Seen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.dtype)
            return x
    found = train(net(Seen()), config={**CONFIG, "bf16": {"enabled": True}})
    assert seen[-1] == torch.bfloat16 and found["0.weight"].dtype == torch.float32
    assert found["losses"] == pytest.approx(plain(net()), rel=0.02)


@pytest.mark.parametrize("wrong,words", [
    (lambda: net(nn.InstanceNorm1d(1, track_running_stats=True)), "a InstanceNorm1d has running statistics"),
    (lambda: [nn.Linear(6, 5), nn.SyncBatchNorm(5)], "a SyncBatchNorm has running statistics"),
])
def test_statistics_that_cannot_travel_are_refused_by_name(wrong, words: str) -> None:
    with pytest.raises(ringzero.InputError, match=words):
        train(wrong())


def test_loops_of_plain_torch_and_of_accelerate() -> None:
    wanted = train(net())["losses"]
    engine, optimizer, _, scheduler = ringzero.initialize(model=net(), config=CONFIG, iterations=3, example=X[:1])
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(engine(X), Y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == scheduler.get_last_lr()[0] == 0.1
    with pytest.raises(ringzero.InputError, match="after the last of 3 iterations"):
        engine(X)
    # K = 2, and step at the second alone: the next forward ends what is open.
    engine = engine_of(net(), 3, {**CONFIG, "gradient_accumulation_steps": 2})
    for _ in range(3):
        for _ in range(2):
            engine.backward(nn.functional.cross_entropy(engine(X), Y))
        engine.step()
    engine.close()
    assert engine.losses == wanted and engine.global_steps == 3


def test_a_child_of_the_process_has_no_engine() -> None:
    engine = engine_of(net(), 1)
    if (child := os.fork()) == 0:
        try:
            engine(X)
        except ringzero.InputError:
            os._exit(42)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    engine.backward(nn.functional.cross_entropy(engine(X), Y))
    engine.close()


def test_what_is_not_finite_ends_the_run_if_it_is_to() -> None:
    engine = engine_of(net(), 9, {**CONFIG, "cyclic": {"on_nonfinite": "stop"}})
    with pytest.raises(ringzero.NotFinite, match="iteration [0-8]: the loss is not finite; cyclic.on_nonfinite is stop"):
        for _ in range(9):
            engine.backward(nn.functional.cross_entropy(engine(X * float("nan")), Y))
            engine.step()
        engine.close()


@pytest.mark.parametrize("key", ["tensorboard", "csv_monitor"])
def test_keys_that_do_nothing_here_are_refused(key: str) -> None:
    with pytest.raises(ringzero.InputError, match=f"{key}: not in Python"):
        train(net(), config={**CONFIG, key: {"enabled": True, "output_path": "x"}})


def test_updates_leave_no_memory_behind() -> None:
    updates = 5000
    engine = engine_of(net(), updates + 200)

    def go(count: int) -> tuple[int, int]:
        for _ in range(count):
            engine.backward(nn.functional.cross_entropy(engine(X), Y))
            engine.step()
            engine.losses.clear()
        gc.collect()
        objects = len(gc.get_objects())  # a list of 1 to 3 MB, before the memory is read
        return resident_kib(), objects
    before = go(200)
    after = go(updates)
    engine.close()
    assert after[0] - before[0] <= 600 and after[1] - before[1] <= 10, (before, after)


def resident_kib() -> int:
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def test_rule_auto_is_dp_for_a_model_that_nobody_has_studied(capfd: pytest.CaptureFixture) -> None:
    chosen = {**CONFIG, "cyclic": {"rule": "auto"}}
    assert equal(train(net(), config=chosen), train(net()))
    said = capfd.readouterr().err
    assert "ringzero: rule auto: dp, as no other is known to be faster" in said
    assert "not measured for custom, SGD, N = 1, K = 1, 2 samples an update" in said
