// optimizer: DeepSpeed's own in any case, torch.optim's by their exact names.
#include "zero/config/registry/tables.h"

namespace ringzero::registry {
namespace {

constexpr String kAdam = "Adam|AdamW";
constexpr String kOthers =
    "MuAdam|MuAdamW|MuSGD|Adadelta|Adafactor|Adamax|ASGD|LBFGS|NAdam|RAdam|RMSprop|Rprop|"
    "SparseAdam";

constexpr KeySpec kOptimizerKeys[] = {
    Section("optimizer", "the owner's update") | Reading::kRaw | KeyNeed::kTraining |
        Absent::kStaysAbsent | kNotNull |
        DeepSpeed("may be absent where a program brings its own; ignores unknown keys beside type, "
                  "params and legacy_fusion"),
    Text("optimizer.type", "", "Adam means AdamW") |
        Choices("AdamW|Adam|Lion|Adagrad|Lamb|Muon|MuAdam|MuAdamW|MuSGD") |
        Exact("SGD|Adadelta|Adafactor|Adamax|ASGD|LBFGS|NAdam|RAdam|RMSprop|Rprop|SparseAdam") |
        Only("SGD|AdamW|Adam|Lion|Adagrad|Lamb|Muon") | kNotAuto |
        Gone("OneBitAdam|OneBitLamb|ZeroOneAdam") |
        DeepSpeed("its own names in any case, torch.optim's exactly; OneBitAdam, OneBitLamb and "
                  "ZeroOneAdam are gone"),
    Bool("optimizer.legacy_fusion", "false", "an old path of fp16") |
        Quietly("there is one way to update"),
    Text("optimizer.decay", "\"all\"",
         "what weight_decay is for: all, or matrices (two dimensions and more: no norms and "
         "biases)") |
        Choices("all|matrices") | kNotNull | kNotAuto | DeepSpeed("has none: ignored"),
    Text("optimizer.form", "\"deepspeed\"",
         "deepspeed: Lamb corrects its rate for the moments' start at 0; Lion moves by -lr where "
         "its direction is +0, by +lr where it is -0. paper: Lamb corrects the moments; Lion does "
         "not move there") |
        Choices("deepspeed|paper") | For("Lamb|Lion") | kNotNull | kNotAuto |
        DeepSpeed("has none: ignored. Its Lion on a GPU moves by +lr where the direction is 0"),
    Any("optimizer.groups", "",
        "a list of {params, lr_factor, weight_decay, betas}: numbers of their own for parameters "
        "whose name matches params, as a shell's pattern does (\"*.bias\"); the first that matches "
        "counts") |
        kNotNull | DeepSpeed("has none: ignored"),
    Section("optimizer.params", "its numbers") | kOrNull |
        DeepSpeed("an unknown one is a TypeError when the engine is built"),

    Number("optimizer.params.lr", "0.001", "learning rate") | kNotNegative | kNotNull |
        For("SGD|Adam|AdamW|Lamb|Lion"),
    Number("optimizer.params.lr", "0.01", "learning rate") | kNotNegative | kNotNull |
        For("Adagrad"),
    Number("optimizer.params.lr", "0.02", "learning rate") | kNotNegative | kNotNull | For("Muon"),

    Number("optimizer.params.momentum", "0", "momentum") | kNotNegative | For("SGD"),
    Number("optimizer.params.momentum", "0.95", "momentum, Nesterov's") | kBelowOne | For("Muon"),
    Number("optimizer.params.dampening", "0", "share of the gradient that momentum leaves out") |
        For("SGD"),
    Bool("optimizer.params.nesterov", "false", "Nesterov momentum") | For("SGD"),

    Key(KeyType::kNumberList, "optimizer.params.betas", "[0.9, 0.999]",
        "decay of the two moments") |
        kBelowOne | Length(2) | kNotNull | For("Adam|AdamW|Lamb|Lion"),
    Key(KeyType::kNumberList, "optimizer.params.betas", "[0.9, 0.95]",
        "decay of the two moments of its Adam half") |
        kBelowOne | Length(2) | kNotNull | For("Muon"),
    Number("optimizer.params.eps", "1e-08", "added to the root of the second moment") |
        kNotNegative | For("Adam|AdamW|Lamb"),
    Number("optimizer.params.eps", "1e-10", "added to the root") | kNotNegative |
        For("Adagrad|Muon"),
    Number("optimizer.params.weight_decay", "0", "weight decay (decoupled in AdamW)") |
        kNotNegative | kNotNull | For("SGD|Adam|AdamW|Lamb|Lion|Adagrad|Muon") |
        DeepSpeed("0.01 with torch_adam true, but for Adam with adam_w_mode false; here, too"),
    Bool("optimizer.params.adam_w_mode", "true", "decoupled weight decay; AdamW ignores it") |
        For(kAdam),
    Bool("optimizer.params.bias_correction", "true", "moments corrected for their start at 0") |
        For("Adam|AdamW|Lamb") | Only("true") | DeepSpeed("an error with torch_adam true"),
    Bool("optimizer.params.amsgrad", "false", "AMSGrad") | For("Adam|AdamW|Lamb|Adagrad") |
        Only("false") |
        DeepSpeed("true is an error but with torch_adam, here, too; its own Adagrad ignores it"),
    Bool("optimizer.params.torch_adam", "false", "torch.optim's class instead of DeepSpeed's") |
        For(kAdam) | Quietly("both compute the same, and so does this engine"),
    Bool("optimizer.params.fp32_optimizer_states", "true", "moments are fp32") |
        For("Adam|AdamW|Lion|Adagrad") | Only("true"),
    Bool("optimizer.params.set_grad_none", "true", "drop gradients instead of zeroing them") |
        For("Adam|AdamW|Lion") | Quietly("gradients are moved into the sum, never kept"),

    Bool("optimizer.params.eps_inside_sqrt", "false", "eps is added inside of the root") |
        For("Lamb") | Only("false"),
    Number("optimizer.params.max_coeff", "10", "largest trust ratio") | kNotNegative | For("Lamb"),
    Number("optimizer.params.min_coeff", "0.01", "smallest trust ratio") | kNotNegative |
        For("Lamb"),
    Number("optimizer.params.lr_decay", "0", "decay of the rate") | kNotNegative | For("Adagrad"),
    Number("optimizer.params.initial_accumulator_value", "0", "where its sums begin") |
        kNotNegative | For("Adagrad"),
    Number("optimizer.params.muon_lr", "", "rate of the matrices, instead of lr") | kAboveZero |
        For("Muon"),
    Number("optimizer.params.adam_lr", "0.0003",
           "rate of the rest; absent: lr, where that is given") |
        kNotNegative | For("Muon"),
    Text("optimizer.params.ns_method", "", "how matrices are made orthogonal") |
        Exact("gram|standard") | For("Muon") | Quietly("both compute the same matrix") |
        DeepSpeed("silently drops other keys for Muon"),
    Key(KeyType::kStringList, "optimizer.params.adam_names",
        "[\"*embed*\", \"*lm_head*\", \"head.*\"]",
        "names of matrices that are of the rest, as patterns, in any case") |
        For("Muon") | DeepSpeed("has none: names with embed or lm_head are of the rest"),

    Bool("optimizer.params.maximize", "", "climb instead of descend") |
        For("SGD|Adam|AdamW|Adagrad") | Only("false") | DeepSpeed("only with torch_adam"),
    Bool("optimizer.params.foreach", "", "torch's way to loop") | kOrNull |
        For("SGD|Adam|AdamW|Adagrad") | Quietly("there is one way to update"),
    Bool("optimizer.params.fused", "", "torch's way to loop") | kOrNull |
        For("SGD|Adam|AdamW|Adagrad") | Quietly("there is one way to update"),
    Bool("optimizer.params.capturable", "", "for CUDA graphs") | For(kAdam) |
        Quietly("there is one way to update"),
    Bool("optimizer.params.differentiable", "", "autograd through the update") |
        For("SGD|Adam|AdamW|Adagrad") | Only("false"),

    Any("optimizer.params.max_grad_norm", "", "") | Removed("use gradient_clipping"),
    Any("optimizer.params.*", "", "what that class takes, unchecked") | For(kOthers),
};

}  // namespace

std::span<const KeySpec> OptimizerKeys() { return kOptimizerKeys; }

}  // namespace ringzero::registry
