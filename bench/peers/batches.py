"""RingZero's random tokens, drawn again: the same function of (seed, iteration, micro-batch).

    inputs, targets = tokens_of(case, iteration=0, micro_batch=2)     # lists of samples

Mirrors base/philox.h, EpochOrder and RandomSplit (integrations/data/dataset.cc), and Batches::Train
(integrations/torch/models/configured_run.cc). tests/bench/benches_test.py compares with a file
that RingZero's own code wrote; `./rz bench peers` compares losses before it times anything.
"""
import functools

from peers.cases import Case

_MASK32 = (1 << 32) - 1
_MASK64 = (1 << 64) - 1


def philox_at(key: int, stream: int, index: int) -> tuple[int, int, int, int]:
    """Philox4x32 with 10 rounds."""
    c0, c1, c2, c3 = index & _MASK32, index >> 32, stream & _MASK32, stream >> 32
    k0, k1 = key & _MASK32, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK32
        k0, k1 = (k0 + 0x9E3779B9) & _MASK32, (k1 + 0xBB67AE85) & _MASK32
    return c0, c1, c2, c3


def split_mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def hash_name(name: str) -> int:
    """64-bit FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & _MASK64
    return value


def mix_keys(*words: int) -> int:
    key = 0
    for word in words:
        key = split_mix(key ^ word)
    return key


@functools.lru_cache(maxsize=2)
def epoch_order(seed: int, epoch: int, size: int) -> tuple[int, ...]:
    """The order in which an epoch visits its samples."""
    order = list(range(size))
    key = mix_keys(seed, hash_name("epoch order"))
    for i in range(size - 1, 0, -1):
        block = philox_at(key, epoch, i)
        j = ((block[1] << 32 | block[0]) * (i + 1)) >> 64
        order[i], order[j] = order[j], order[i]
    return tuple(order)


def random_tokens(seed: int, sample: int, sequence: int, vocabulary: int) -> list[int]:
    """The sequence + 1 tokens of one training sample: inputs are all but the last, targets all but
    the first."""
    key = mix_keys(hash_name("random samples"), seed, hash_name("train"))
    words: list[int] = []
    for block in range(sequence // 4 + 1):
        words.extend(philox_at(key, sample, block))
    return [word * vocabulary >> 32 for word in words[:sequence + 1]]


Samples = list[list[int]]


def tokens_of(case: Case, iteration: int, micro_batch: int) -> tuple[Samples, Samples]:
    """Inputs and targets, {case.micro_batch, sequence} each."""
    per_epoch = case.samples // case.samples_per_step
    order = epoch_order(case.seed, iteration // per_epoch, case.samples)
    first = iteration % per_epoch * case.samples_per_step + micro_batch * case.micro_batch
    samples = [random_tokens(case.seed, index, case.shape.sequence, case.shape.vocabulary)
               for index in order[first:first + case.micro_batch]]
    return [tokens[:-1] for tokens in samples], [tokens[1:] for tokens in samples]
