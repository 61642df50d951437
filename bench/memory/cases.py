"""What is measured: three models of 11 to 26 million parameters, for `ringzero train`.

    configuration("gpt", rule="dp", workers=4, transport="shm", iterations=8)
"""

_ADAMW = {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}}

_MODELS = {
    "gpt": {"model": {"type": "gpt", "layers": 8, "dim": 512, "heads": 8, "vocab": 256, "seq": 128},
            "data": {"type": "random", "samples": 4096},
            "train_micro_batch_size_per_gpu": 4},
    "resnet": {"model": {"type": "resnet", "depth": 18},
               "data": {"type": "random", "samples": 4096, "input": [3, 32, 32], "classes": 10},
               "train_micro_batch_size_per_gpu": 8},
    "mlp": {"model": {"type": "mlp", "hidden": [1024] * 20},
            "data": {"type": "random", "samples": 4096, "input": [1, 28, 28], "classes": 10},
            "train_micro_batch_size_per_gpu": 64},
}
NAMES = {"gpt": "GPT, 8 layers of 512", "resnet": "ResNet-18", "mlp": "MLP, 20 layers of 1024"}
RULES = ("dp", "cdp_v1", "cdp_v2")


def configuration(model: str, *, rule: str, workers: int, transport: str, iterations: int,
                  zero_stage: int = 3) -> dict:
    return {**_MODELS[model], "gradient_accumulation_steps": 1, "gradient_clipping": 0,
            "optimizer": _ADAMW, "iterations": iterations, "evaluation": {"every": 0}, "seed": 1,
            "zero_optimization": {"stage": zero_stage},
            "cyclic": {"rule": rule, "workers": workers, "transport": transport, "threads": 1}}
