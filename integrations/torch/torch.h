// What our sources need of LibTorch: tensors, autograd's functions, modules. Half as much to
// compile as <torch/torch.h>.
//
// The one place where integrations/torch includes LibTorch, and its precompiled header. Headers
// that few sources need (a kind of module, a generator) are included where they are used; a user's
// own loop includes <torch/torch.h> itself.
#ifndef RINGZERO_INTEGRATIONS_TORCH_TORCH_H_
#define RINGZERO_INTEGRATIONS_TORCH_TORCH_H_

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#endif  // RINGZERO_INTEGRATIONS_TORCH_TORCH_H_
