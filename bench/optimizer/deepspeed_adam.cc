// DeepSpeedCPUAdam's kernel behind a plain function, for optimizer_perf. Built by __main__.py with
// DeepSpeed's own flags, against its sources and LibTorch.
#include <cpu_adam_impl.cpp>

extern "C" void ringzero_deepspeed_adamw(float* theta, float* gradient, float* first, float* second,
                                         size_t count, size_t step) {
  static const auto optimizer =
      std::make_shared<Adam_Optimizer>(1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, /*adamw_mode=*/true);
  optimizer->IncrementStep(step, 0.9f, 0.999f);
  optimizer->update_state(1e-3f, 1e-8f, 0.01f, /*bias_correction=*/true);
  step_invoker<float, float>(optimizer, theta, gradient, first, second, count, /*parallel=*/true);
}
