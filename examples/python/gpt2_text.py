"""GPT-2 of transformers, unmodified, on bytes of text: fine-tuning in ordinary PyTorch.

    pip install transformers
    torchrun --nproc-per-node 2 examples/python/gpt2_text.py docs/*.md --out /tmp/gpt2
"""
import argparse
import pathlib

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import ringzero

LENGTH = 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", help="text")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--out", help="a folder for from_pretrained")
    options = parser.parse_args()
    text = b"".join(pathlib.Path(name).read_bytes() for name in options.files)
    pieces = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()[:len(text) // LENGTH * LENGTH].view(-1, LENGTH)
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=LENGTH, n_embd=128, n_layer=4, n_head=4,
                                       bos_token_id=0, eos_token_id=0))
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "cyclic": {"rule": "dp"},
    }
    engine, _, loader, _ = ringzero.initialize(
        model=model, config=config, training_data=pieces, iterations=options.iterations, cut="transformer.h.*",
        example={"input_ids": pieces[:1], "labels": pieces[:1]})
    while engine.global_steps < options.iterations:
        for ids in loader:
            engine.backward(engine(input_ids=ids, labels=ids).loss)
            engine.step()
    if options.out:
        engine.save_pretrained(options.out)
    engine.close()
    if engine.global_rank == 0:
        print(f"loss {engine.losses[0]:.3f} at first, {engine.losses[-1]:.3f} at last")


if __name__ == "__main__":
    main()
