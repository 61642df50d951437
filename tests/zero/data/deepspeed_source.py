"""Loads configuration and schedulers of DeepSpeed's source distribution without torch and without building anything.

    pip download --no-deps --no-binary :all: deepspeed==0.19.8 && tar xf deepspeed-0.19.8.tar.gz
    pip install hjson pydantic

Only what those modules import and never call is replaced by stubs; every line that decides anything is DeepSpeed's own.
"""

import importlib
import logging
import pathlib
import sys
import types

VERSION = '0.19.8'


class Anything:
    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return self

    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return Anything()


class Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return Anything()


class Optimizer:
    """As much of torch.optim.Optimizer as the schedulers look at."""

    def __init__(self, rate, betas):
        self.param_groups = [{'lr': rate, 'betas': betas}]
        self.defaults = {'lr': rate, 'betas': betas}


def stub(name, path=None, **members):
    module = Stub(name)
    if path is not None:
        module.__path__ = [str(path)]
    for member, value in members.items():
        setattr(module, member, value)
    sys.modules[name] = module
    return module


def stub_torch():
    torch = stub('torch', path='/nonexistent', is_tensor=lambda value: False)
    torch.dtype = type('dtype', (), {})
    for name in ('float16', 'float32', 'bfloat16', 'int8', 'float64'):
        setattr(torch, name, type(name, (torch.dtype,), {})())
    torch.half = torch.float16
    stub('torch._utils')
    torch.optim = stub('torch.optim', Optimizer=Optimizer)


def load(root):
    """Returns (runtime.config, runtime.lr_schedules, runtime.fp16.loss_scaler, runtime.fp16.fused_optimizer) and a function
    that sets the number of workers."""
    root = pathlib.Path(root)
    found = (root / 'version.txt').read_text().strip()
    assert found == VERSION, f'{root} is DeepSpeed {found}, wanted {VERSION}'
    source = root / 'deepspeed'
    world = [1]
    stub_torch()
    logger = logging.getLogger('deepspeed')
    logger.setLevel(logging.CRITICAL)
    package = stub('deepspeed', path=source)
    package.comm = stub('deepspeed.comm', path=source / 'comm', get_rank=lambda *a: 0, get_world_size=lambda *a: world[0])
    accelerator = types.SimpleNamespace(device_name=lambda *a: 'cuda', communication_backend_version=lambda: (2, 28))
    stub('deepspeed.accelerator', get_accelerator=lambda: accelerator)
    package.utils = stub('deepspeed.utils', path=source / 'utils', logger=logger, log_dist=lambda *a, **k: None)
    package.runtime = stub('deepspeed.runtime', path=source / 'runtime')
    stub('deepspeed.runtime.utils', has_inf_or_nan=None)
    for name in ('runtime/zero', 'runtime/swap_tensor', 'runtime/model_checkpointing', 'runtime/fp16', 'runtime/zenflow',
                 'runtime/data_pipeline', 'monitor', 'profiling', 'autotuning', 'datastates', 'inference', 'module_inject',
                 'compile', 'moe', 'checkpoint'):
        stub('deepspeed.' + name.replace('/', '.'), path=source / name)
    tensor_parallel = types.ModuleType('deepspeed.runtime.tensor_parallel')
    tensor_parallel.__path__ = [str(source / 'runtime/tensor_parallel')]
    sys.modules[tensor_parallel.__name__] = tensor_parallel
    inner = importlib.import_module('deepspeed.runtime.tensor_parallel.config')
    for name in ('TPTrainingConfig', 'get_tensor_parallel_config', 'TPConfig'):
        setattr(tensor_parallel, name, getattr(inner, name))
    stub('deepspeed.module_inject.auto_ep_config', AutoEPConfig=lambda: None, parse_autoep_config=lambda section: None)
    config = importlib.import_module('deepspeed.runtime.config')
    schedules = importlib.import_module('deepspeed.runtime.lr_schedules')
    scaler = importlib.import_module('deepspeed.runtime.fp16.loss_scaler')
    stub('deepspeed.runtime.base_optimizer', DeepSpeedOptimizer=object)
    stub('deepspeed.moe.utils')
    fused = importlib.import_module('deepspeed.runtime.fp16.fused_optimizer')

    def set_workers(count):
        world[0] = count

    return config, schedules, scaler, fused, set_workers
