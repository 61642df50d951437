// What our sources need of LibTorch: tensors, autograd's functions, modules. Half of
// <torch/torch.h> to compile.
//
// The one place where integrations/torch includes LibTorch, and its precompiled header. What is
// rarer (a kind of module, a generator) is included where it is used; a loop of one's own includes
// <torch/torch.h> itself.
#ifndef RINGZERO_INTEGRATIONS_TORCH_TORCH_H_
#define RINGZERO_INTEGRATIONS_TORCH_TORCH_H_

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#endif  // RINGZERO_INTEGRATIONS_TORCH_TORCH_H_
