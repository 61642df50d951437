"""GPT-2 or LLaMA of transformers as they are. Arguments: gpt2 or llama; dropout; accumulation steps. Prints what came out."""
import json
import sys
import tempfile

import torch
import transformers

import ringzero
import workers

ITERATIONS, VOCABULARY, LENGTH = 3, 50, 12
EXAMPLE = {"input_ids": torch.zeros(1, LENGTH, dtype=torch.long), "labels": torch.zeros(1, LENGTH, dtype=torch.long)}
CUTS = {"gpt2": "transformer.h.*", "llama": "model.layers.*"}


def model_of(family: str, dropout: float) -> transformers.PreTrainedModel:
    torch.manual_seed(3)
    if family == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            n_embd=64, n_layer=4, n_head=4, vocab_size=VOCABULARY, n_positions=LENGTH,
            resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH, attention_dropout=dropout))


def samples() -> list:
    generator = torch.Generator().manual_seed(9)
    return [torch.randint(0, VOCABULARY, (LENGTH,), generator=generator) for _ in range(64)]


def main() -> None:
    family, dropout, laps = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    model = model_of(family, dropout)
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": laps, "seed": 5, "gradient_clipping": 0,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}}}
    engine, _, loader, _ = ringzero.initialize(model=model, config=config, training_data=samples(), iterations=ITERATIONS,
                                               cut=CUTS[family], example=EXAMPLE)
    for ids in loader:
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()
    state = engine.state_dict()
    with tempfile.TemporaryDirectory() as folder:
        engine.save_pretrained(folder)
        engine.close()
        if engine.global_rank == 0:
            read = type(model).from_pretrained(folder).state_dict()
            assert all(torch.equal(read[name], values) for name, values in state.items())
            print(json.dumps({"sha": workers.digest(state), "losses": engine.losses}))


if __name__ == "__main__":
    main()
