// Keys of ours: what is trained on what, and for how long.
#include "zero/config/registry/tables.h"

namespace ringzero::registry {
namespace {

constexpr KeySpec kRunKeys[] = {
    Section("model", "what is trained") | Reading::kOurs | KeyNeed::kTraining |
        Absent::kStaysAbsent,
    Text("model.type", "", "kind of model") | Choices("resnet|gpt|mlp") | KeyNeed::kRequired,
    Integer("model.depth", "20",
            "layers: 18, 34, 50 as for ImageNet; 6n + 2 (20, 32, 56) as for CIFAR-10") |
        KeyRange{.min = 8, .max = 2000} | For("resnet"),
    Integer("model.width", "",
            "channels of the first group; absent: 64 for depths 18, 34, 50, else 16") |
        kPositive | For("resnet"),
    Integer("model.channels", "", "channels of an image; absent: those of the data") |
        KeyRange{.min = 1, .max = 3} | For("resnet"),
    Integer("model.layers", "4", "transformer blocks") | kPositive | For("gpt"),
    Integer("model.dim", "128", "size of a token's vector") | kPositive | For("gpt"),
    Integer("model.heads", "4", "attention heads; divides dim") | kPositive | For("gpt"),
    Integer("model.vocab", "256", "tokens known; bytes: 256") | kPositive | For("gpt"),
    Integer("model.seq", "128", "tokens of one sample") | kPositive | For("gpt"),
    Bool("model.tied", "false", "the head's weight is the embedding's") | For("gpt"),
    Number("model.dropout", "0", "share of values dropped") | kBelowOne | For("gpt"),
    Key(KeyType::kIntegerList, "model.hidden", "[256, 128]", "sizes of the hidden layers") |
        kPositive | For("mlp"),

    Section("data", "what it is trained on") | Reading::kOurs | KeyNeed::kTraining |
        Absent::kStaysAbsent,
    Text("data.type", "", "format of the data") | Choices("idx|cifar10|text|random") |
        KeyNeed::kRequired,
    Text("data.path", "", "folder (idx, cifar10) or file (text)") | For("idx|cifar10|text"),
    Integer("data.samples", "4096", "random samples to train on") | kPositive | For("random"),
    Key(KeyType::kIntegerList, "data.input", "[1, 28, 28]",
        "shape of one random image or vector; tokens follow the model") |
        kPositive | kNotEmpty | For("random"),
    Integer("data.classes", "10", "classes of the random samples") |
        KeyRange{.min = 2, .max = 1e6} | For("random"),

    Integer("iterations", "", "updates; or give epochs") | kPositive | Reading::kOurs,
    Integer("epochs", "", "passes over the training samples; or give iterations") | kPositive |
        Reading::kOurs,
    Integer("seed", "1234", "of initial values, order of samples and dropout") |
        KeyRange{.min = 0, .max = 9007199254740992.0} | Reading::kOurs,
};

}  // namespace

std::span<const KeySpec> RunKeys() { return kRunKeys; }

}  // namespace ringzero::registry
