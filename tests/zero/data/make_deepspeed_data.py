"""Writes what DeepSpeed 0.19.8 itself answers: python3 tests/zero/data/make_deepspeed_data.py SOURCE

SOURCE is the unpacked source distribution (deepspeed_source.py says how to get it). Beside this script:
  rates.jsonl     learning rates of the five schedulers for 200 updates, and the betas where they change them;
                  [value, n] stands for n values that are alike
  scales.jsonl    the dynamic loss scale over 400 iterations, a character for each: "." nothing happens, "+" the scale
                  is doubled, "x" an overflow, "-" an overflow that halves the scale, "_" one that lowers it to the minimum
  batches.jsonl   the batch triple for every combination of some values, with 1, 2, 3 and 4 workers
  verdicts.jsonl  small configurations, and whether DeepSpeedConfig takes them: read, and written with the answers of today.
                  "ours" says why this project refuses what DeepSpeedConfig takes, "lax" why it takes what that refuses
"""

import itertools
import json
import pathlib
import random
import sys

import deepspeed_source

UPDATES = 200
HERE = pathlib.Path(__file__).parent
LINEAR = {'warmup_type': 'linear'}
CYCLE = {'cycle_min_lr': 1e-4, 'cycle_max_lr': 3e-3}

SCHEDULERS = [
    ('WarmupLR', {}),
    ('WarmupLR', {'warmup_num_steps': 50}),
    ('WarmupLR', {'warmup_num_steps': 1}),
    ('WarmupLR', {'warmup_num_steps': 2, **LINEAR}),
    ('WarmupLR', {'warmup_min_lr': 1e-5, 'warmup_max_lr': 2e-3, 'warmup_num_steps': 77, **LINEAR}),
    ('WarmupLR', {'warmup_min_lr': 1e-5, 'warmup_max_lr': [2e-3], 'warmup_num_steps': 77}),
    ('WarmupDecayLR', {'total_num_steps': 150}),
    ('WarmupDecayLR', {'total_num_steps': 150, 'warmup_num_steps': 20, 'warmup_min_lr': 1e-4, 'warmup_max_lr': 1e-2}),
    ('WarmupDecayLR', {'total_num_steps': 150, 'warmup_num_steps': 20, **LINEAR}),
    ('WarmupDecayLR', {'total_num_steps': 10, 'warmup_num_steps': 30, 'warmup_min_lr': 1e-4, **LINEAR}),
    ('WarmupCosineLR', {'total_num_steps': 180, 'warmup_num_steps': 20}),
    ('WarmupCosineLR', {'total_num_steps': 180, 'warmup_num_steps': 20, 'warmup_min_ratio': 0.1, 'cos_min_ratio': 0.2,
                        **LINEAR}),
    ('WarmupCosineLR', {'total_num_steps': 20, 'warmup_num_steps': 40}),
    ('OneCycle', {**CYCLE, 'cycle_first_step_size': 60}),
    ('OneCycle', {**CYCLE, 'cycle_first_step_size': 40, 'cycle_second_step_size': 55, 'decay_step_size': 7,
                  'decay_lr_rate': 0.3, 'decay_mom_rate': 0.01, 'cycle_min_mom': 0.7, 'cycle_max_mom': 0.95}),
    ('OneCycle', {**CYCLE, 'cycle_first_step_size': 33, 'cycle_first_stair_count': 5, 'cycle_momentum': False}),
    ('OneCycle', {**CYCLE, 'cycle_first_step_size': 33, 'cycle_second_step_size': 41, 'cycle_first_stair_count': 4,
                  'cycle_second_stair_count': 0}),
    ('OneCycle', {**CYCLE, 'cycle_first_step_size': 33, 'cycle_second_step_size': 41, 'cycle_second_stair_count': 3}),
    ('OneCycle', {**CYCLE, 'cycle_first_step_size': 12, 'cycle_second_step_size': 0}),
    ('LRRangeTest', {}),
    ('LRRangeTest', {'lr_range_test_min_lr': 1e-4, 'lr_range_test_step_size': 13, 'lr_range_test_step_rate': 2.5}),
    ('LRRangeTest', {'lr_range_test_step_size': 13, 'lr_range_test_staircase': True}),
]


LOSS_SCALES = [
    {},
    {'loss_scale_window': 10},
    {'loss_scale_window': 1, 'hysteresis': 1, 'initial_scale_power': 4},
    {'loss_scale_window': 7, 'hysteresis': 3, 'initial_scale_power': 12},
    {'loss_scale_window': 7, 'hysteresis': 3, 'consecutive_hysteresis': True, 'initial_scale_power': 12},
    {'loss_scale_window': 20, 'hysteresis': 2, 'min_loss_scale': 64, 'initial_scale_power': 8},
    {'loss_scale_window': 20, 'hysteresis': 1, 'min_loss_scale': 3, 'initial_scale_power': 10},
    {'loss_scale_window': 20, 'hysteresis': 0, 'initial_scale_power': 10},
    {'loss_scale_window': 20, 'hysteresis': -3, 'consecutive_hysteresis': True, 'initial_scale_power': 10},
]


class ScalerOfStage0:
    """The loss scale without ZeRO: FP16_Optimizer's. FP16_UnfusedOptimizer, for all but Adam, has the same lines."""

    def __init__(self, scaler, fused, settings):
        self.loss_scale_config = scaler.LossScaleConfig(scaler.torch.float16, True, 0, settings)
        self.verbose = False
        self.update = fused.FP16_Optimizer._update_scale

    @property
    def loss_scale(self):
        return self.loss_scale_config.cur_scale

    def update_scale(self, overflow):
        self.update(self, overflow)


def happened(before, after, overflow, minimum):
    changes = {before: 'x'} if overflow else {before: '.', 2 * before: '+'}
    if overflow and after != before:
        changes = {minimum: '_', before / 2: '-'}
    return changes[after]


def scales(scaler, fused):
    """The last overflow of a row may be the one at which the scaler gives up."""
    for stage, fp16, share in itertools.product((1, 0), LOSS_SCALES, (0.0, 0.02, 0.1, 0.4)):
        settings = {'init_scale': 2**fp16.get('initial_scale_power', 16),
                    'scale_window': fp16.get('loss_scale_window', 1000),
                    'min_scale': fp16.get('min_loss_scale', 1),
                    'delayed_shift': fp16.get('hysteresis', 2),
                    'consecutive_hysteresis': fp16.get('consecutive_hysteresis', False)}
        made = ScalerOfStage0(scaler, fused, settings) if stage == 0 else scaler.DynamicLossScaler(**settings)
        draw = random.Random(f'{fp16} {share}')
        row = {'stage': stage, 'fp16': {'enabled': True, **fp16}, 'begins_at': made.loss_scale, 'iterations': '',
               'gives_up': False}
        for _ in range(400):
            overflow, before = draw.random() < share, made.loss_scale
            try:
                made.update_scale(overflow)
            except Exception:
                row['gives_up'] = True
            row['iterations'] += happened(before, made.loss_scale, overflow, settings['min_scale'])
            if row['gives_up']:
                break
        yield row


def packed(values):
    runs = [(value, len(list(run))) for value, run in itertools.groupby(values)]
    return [value if n == 1 else [value, n] for value, n in runs]


def rates(schedules):
    for name, params in SCHEDULERS:
        optimizer = deepspeed_source.Optimizer(rate=2.5e-3, betas=(0.9, 0.95))
        scheduler = getattr(schedules, name)(optimizer, **params)
        row = {'lr': 2.5e-3, 'scheduler': {'type': name, 'params': params}, 'rates': [], 'beta1': []}
        for _ in range(UPDATES):
            group = optimizer.param_groups[0]
            row['rates'].append(group['lr'])
            if group['betas'] != (0.9, 0.95):
                assert group['betas'][1] == 0.99
                row['beta1'].append(group['betas'][0])
            scheduler.step()
        yield {**row, 'rates': packed(row['rates']), 'beta1': packed(row['beta1'])}


def batches(config, set_workers):
    names = ('train_batch_size', 'train_micro_batch_size_per_gpu', 'gradient_accumulation_steps')
    for triple in itertools.product((None, 1, 2, 6, 7, 8, 16, 32), (None, 1, 2, 3, 8), (None, 1, 2, 4)):
        given = {name: value for name, value in zip(names, triple) if value is not None}
        answers = []
        for workers in (1, 2, 3, 4):
            set_workers(workers)
            try:
                made = config.DeepSpeedConfig(given)
                answers.append([getattr(made, name) for name in names])
            except AssertionError:
                answers.append(None)
        yield {'given': [value or 0 for value in triple], 'answers': answers}
    set_workers(1)


def verdicts(config):
    for line in (HERE / 'verdicts.jsonl').read_text().splitlines():
        case = json.loads(line)
        try:
            made = json.loads(json.dumps(case['config']))
            made.setdefault('train_batch_size', 8)
            config.DeepSpeedConfig(made)
            error = None
        except Exception as caught:  # any: that is the answer
            error = type(caught).__name__
        yield {**case, 'deepspeed': error}


def write(name, rows):
    with open(HERE / name, 'w') as out:
        for row in rows:
            out.write(json.dumps(row) + '\n')


def main():
    config, schedules, scaler, fused, set_workers = deepspeed_source.load(sys.argv[1])
    write('scales.jsonl', scales(scaler, fused))
    write('rates.jsonl', rates(schedules))
    write('batches.jsonl', batches(config, set_workers))
    write('verdicts.jsonl', list(verdicts(config)))


if __name__ == '__main__':
    main()
