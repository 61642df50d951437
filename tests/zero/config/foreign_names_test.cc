// Names of other programs: every entry of the table is answered, and a sample means what it should.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "zero/config/config.h"
#include "zero/config/keys.h"

namespace ringzero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// {"training": {"steps": 1}} for training.steps.
std::string Nested(absl::string_view path) {
  std::string text = "1";
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  for (size_t i = names.size(); i-- > 0;) text = absl::StrCat("{\"", names[i], "\": ", text, "}");
  return text;
}

std::string AnswerTo(const std::string& text) {
  const ConfigSource source{.file = "f"};
  return std::string(CheckConfig(text, source).status().message());
}

TEST(ForeignNames, EachIsAnsweredWithAKeyOrAdvice) {
  std::set<absl::string_view> names;
  for (const ForeignName& foreign : ForeignNames()) {
    SCOPED_TRACE(foreign.name);
    EXPECT_TRUE(names.insert(foreign.name).second) << "stands twice";
    const KeySpec* ours = FindKey(foreign.name);
    EXPECT_TRUE(ours == nullptr || ours->type == KeyType::kSection) << "is a key of ours";
    if (foreign.key.empty()) {
      EXPECT_FALSE(foreign.hint.empty());
    } else {
      const KeySpec* key = FindKey(foreign.key);
      ASSERT_NE(key, nullptr) << foreign.key;
      EXPECT_TRUE(key->state == KeyState::kWorks || key->is_idle());
    }
    const std::string answer = AnswerTo(Nested(foreign.name));
    EXPECT_THAT(answer, HasSubstr(absl::StrCat(": ", foreign.name, ": ")));
    EXPECT_THAT(answer, HasSubstr(ToString(foreign)));
  }
  EXPECT_GE(names.size(), 60u);
}

TEST(ForeignNames, AreWhatTheirProgramsMean) {
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"max_steps", "HuggingFace's max_steps is iterations here"},
      {"n_layer", "nanoGPT's n_layer is model.layers here"},
      {"n_embd", "nanoGPT's n_embd is model.dim here"},
      {"training.steps", "torchtitan's training.steps is iterations here"},
      {"logging_steps", "HuggingFace's logging_steps is steps_per_print here"},
      {"save_steps", "HuggingFace's save_steps has no key here: there are no checkpoints yet"},
      {"micro_batch_size", "Megatron's micro_batch_size is train_micro_batch_size_per_gpu here"},
      {"batch_size", "train_micro_batch_size_per_gpu here (train_batch_size is that of an update)"},
      {"lr-decay-iters", "is scheduler.params.total_num_steps here"},
      {"optimizer.name", "torchtitan's optimizer.name is optimizer.type here"},
      {"optimizer.beta2", "is optimizer.params.betas here (a list)"},
      {"model.n_head", "is model.heads here"},
      {"seq_length", "is model.seq here"},
      {"bf16", "wanted an object, found 1; HuggingFace's bf16 is bf16.enabled here"},
      {"learnig_rate", "the nearest known one is optimizer.params.lr"},
  };
  for (const auto& [name, answer] : expected) {
    EXPECT_THAT(AnswerTo(Nested(name)), HasSubstr(answer)) << name;
  }
  EXPECT_THAT(AnswerTo(R"({"training.steps": 1})"), HasSubstr("is iterations here"));
  EXPECT_THAT(AnswerTo(R"({"training": {"steps": 1, "max_norm": 1}})"),
              AllOf(HasSubstr("is iterations here"), HasSubstr("is gradient_clipping here")))
      << "each name of a section is answered";
  EXPECT_THAT(AnswerTo(R"({"training": {}})"), HasSubstr("training: unknown key"));
}

}  // namespace
}  // namespace ringzero
