// Safetensors: what is written is read; everything that can be wrong with a file is one clear
// error.
#include "integrations/data/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "tests/data/files.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using namespace ringzero::testing;  // NOLINT(google-build-using-namespace): the tests' own helpers
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file from its header and its values.
Bytes File(const std::string& header, const Bytes& values) {
  Bytes length(8);
  for (int i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(header.size() >> (8 * i));
  return length + ToBytes(header) + values;
}

const std::vector<TensorSpec> kSpecs = {{.name = "a.weight", .shape = {2, 3}},
                                        {.name = "a.count", .type = TensorType::kI64, .shape = {}},
                                        {.name = "empty", .shape = {0, 4}},
                                        {.name = "b \"quoted\" ü", .shape = {1}}};
const std::vector<float> kWeight = {1,    -2, 0.5f, 3e-40f, std::numeric_limits<float>::infinity(),
                                    -0.0f};

template <typename Value>
Bytes BytesOf(const std::vector<Value>& values) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(values.data());
  return Bytes(begin, begin + values.size() * sizeof(Value));
}

void WriteSmall(const std::string& path) {
  RZ_ASSIGN(const std::string head, SafetensorsHead(kSpecs, {{"format", "pt"}}));
  WriteFile(path, ToBytes(head) + BytesOf(kWeight) + BytesOf(std::vector<int64_t>{1LL << 40}) +
                      BytesOf(std::vector<float>{7}));
}

TEST(Safetensors, ReadsWhatWasWritten) {
  TemporaryFolder folder;
  const std::string path = folder / "m.safetensors";
  ASSERT_NO_FATAL_FAILURE(WriteSmall(path));
  RZ_ASSIGN(const auto files, TensorFiles::Open(path));
  EXPECT_EQ(files.tensors().size(), 4u);
  RZ_ASSIGN(const std::string file, ReadWholeFile(path));
  EXPECT_THAT(file, HasSubstr(R"("__metadata__":{"format":"pt"})"));
  std::vector<float> weight(6);
  ASSERT_TRUE(files.Read("a.weight", {2, 3}, std::span(weight)).ok());
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(weight[i]), std::bit_cast<uint32_t>(kWeight[i]));
  }
  std::vector<int64_t> count(1);
  ASSERT_TRUE(files.Read("a.count", {}, std::span(count)).ok());
  EXPECT_EQ(count[0], 1LL << 40);
  std::vector<float> none;
  EXPECT_TRUE(files.Read("empty", {0, 4}, std::span(none)).ok());
  EXPECT_TRUE(files.tensors().contains("b \"quoted\" ü"));
}

TEST(Safetensors, HeadIsTheFormats) {
  for (const size_t multiple : {8, 4096}) {
    RZ_ASSIGN(const std::string head, SafetensorsHead({{.name = "x", .shape = {2}}}, {}, multiple));
    EXPECT_EQ(head.size() % multiple, 0u);
    uint64_t length = 0;
    std::memcpy(&length, head.data(), 8);
    EXPECT_EQ(length, head.size() - 8);
    EXPECT_THAT(head, HasSubstr(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"));
  }
}

TEST(Safetensors, HeadsThatCannotBeWritten) {
  EXPECT_THAT(SafetensorsHead({{.name = "a"}, {.name = "a"}}, {}), Says("'a' stands twice"));
  EXPECT_THAT(SafetensorsHead({{.name = "__metadata__"}}, {}), Says("__metadata__"));
  EXPECT_THAT(SafetensorsHead({{.name = "a", .type = TensorType::kOther}}, {}),
              Says("cannot be written"));
  EXPECT_THAT(SafetensorsHead({{.name = "a", .shape = {-1}}}, {}), Says("extent -1"));
}

TEST(Safetensors, ReadsHalvesExactly) {
  TemporaryFolder folder;
  const std::string header = R"({"h":{"dtype":"F16","shape":[7],"data_offsets":[0,14]},)"
                             R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[14,18]}})";
  // 1, -2, the largest 65504, the smallest subnormal, infinity, a NaN, -0; then 1 and -3.
  const Bytes values = {0x00, 0x3c, 0x00, 0xc0, 0xff, 0x7b, 0x01, 0x00, 0x00,
                        0x7c, 0x01, 0x7e, 0x00, 0x80, 0x80, 0x3f, 0x40, 0xc0};
  WriteFile(folder / "f", File(header, values));
  RZ_ASSIGN(const auto files, TensorFiles::Open(folder / "f"));
  std::vector<float> h(7), b(2);
  ASSERT_TRUE(files.Read("h", {7}, std::span(h)).ok());
  EXPECT_EQ(h[0], 1);
  EXPECT_EQ(h[1], -2);
  EXPECT_EQ(h[2], 65504);
  EXPECT_EQ(h[3], 0x1p-24f);
  EXPECT_TRUE(std::isinf(h[4]));
  EXPECT_TRUE(std::isnan(h[5]));
  EXPECT_EQ(std::bit_cast<uint32_t>(h[6]), 0x80000000u);
  ASSERT_TRUE(files.Read("b", {2}, std::span(b)).ok());
  EXPECT_THAT(b, ElementsAre(1, -3));
}

TEST(Safetensors, EveryTruncationIsAnErrorThatNamesTheFile) {
  TemporaryFolder folder;
  const std::string path = folder / "m.safetensors";
  ASSERT_NO_FATAL_FAILURE(WriteSmall(path));
  const Bytes whole = ReadFile(path);
  for (const Bytes& shorter : Truncated(whole)) {
    WriteFile(path, shorter);
    ASSERT_THAT(SafetensorsReader::Open(path), Says(path)) << shorter.size();
  }
  WriteFile(path, whole + Bytes{0});
  EXPECT_THAT(SafetensorsReader::Open(path), Says("1 bytes follow"));
}

TEST(Safetensors, ChangedBitsNeverCrash) {
  TemporaryFolder folder;
  const std::string path = folder / "m.safetensors";
  ASSERT_NO_FATAL_FAILURE(WriteSmall(path));
  for (const Bytes& changed : WithABitChanged(ReadFile(path))) {
    WriteFile(path, changed);
    const auto reader = SafetensorsReader::Open(path);
    if (!reader.ok()) continue;
    for (const auto& entry : (*reader)->entries()) {  // whatever it now says must be readable
      size_t values = 1;
      for (int64_t extent : entry.spec.shape) values *= static_cast<size_t>(extent);
      std::vector<float> floats(values);
      (void)(*reader)->Read(entry, entry.spec.shape, std::span(floats));
    }
  }
}

struct BadHeader {
  const char* name;
  std::string header;
  std::vector<std::string> words;
};

std::string TensorA(const std::string& type, const std::string& shape, const std::string& offsets) {
  return absl::StrCat(R"({"a":{"dtype":")", type, R"(","shape":)", shape, R"(,"data_offsets":)",
                      offsets, "}}");
}

class SafetensorsErrors : public ::testing::TestWithParam<BadHeader> {};

TEST_P(SafetensorsErrors, AreClear) {
  TemporaryFolder folder;
  WriteFile(folder / "f", File(GetParam().header, Bytes(8)));
  const auto reader = SafetensorsReader::Open(folder / "f");
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(reader, Says(folder / "f"));
  for (const std::string& word : GetParam().words) EXPECT_THAT(reader, Says(word));
}

INSTANTIATE_TEST_SUITE_P(
    All, SafetensorsErrors,
    ::testing::Values(
        BadHeader{"NotJson", "{\"a\":", {"not valid JSON"}},
        BadHeader{"NotUtf8", "{\"\xff\":1}", {"not valid JSON"}},
        BadHeader{"NotObject", "[1]", {"not a JSON object"}},
        BadHeader{"EntryNotObject", R"({"a":1})", {"tensor 'a'", "not a JSON object"}},
        BadHeader{"UnknownKey",
                  R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"z":1}})",
                  {"tensor 'a'", "'z'"}},
        BadHeader{"NoType", R"({"a":{"shape":[2],"data_offsets":[0,8]}})", {"'a'", "no dtype"}},
        BadHeader{"UnknownType", TensorA("F31", "[2]", "[0,8]"), {"'a'", "'F31'"}},
        BadHeader{"NegativeShape", TensorA("F32", "[-2]", "[0,8]"), {"'a'", "list of sizes"}},
        BadHeader{"RealShape", TensorA("F32", "[2.0]", "[0,8]"), {"'a'", "list of sizes"}},
        BadHeader{"HugeShape",
                  TensorA("F32", "[4294967296,4294967296,0]", "[0,0]"),
                  {"'a'", "too large"}},
        BadHeader{"ThreeOffsets", TensorA("F32", "[2]", "[0,8,9]"), {"'a'", "two sizes"}},
        BadHeader{
            "HugeOffsets", TensorA("F32", "[2]", "[0,18446744073709551615]"), {"'a'", "two sizes"}},
        BadHeader{"OutOfRange",
                  TensorA("F32", "[3]", "[0,12]"),
                  {"'a'", "bytes 0 to 12", "8 bytes of values"}},
        BadHeader{"Backwards", TensorA("F32", "[0]", "[8,0]"), {"'a'", "bytes 8 to 0"}},
        BadHeader{"WrongSize", TensorA("F32", "[1]", "[0,8]"), {"'a'", "have 8 bytes", "wants 4"}},
        BadHeader{"Overlap",
                  R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                  R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                  {"'b'", "begin at byte 4", "end at 8"}},
        BadHeader{"Gap", TensorA("F32", "[1]", "[4,8]"), {"'a'", "begin at byte 4", "end at 0"}},
        BadHeader{"Twice",
                  R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                  R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                  {"'a' stands twice"}},
        BadHeader{
            "Metadata",
            R"({"__metadata__":{"k":1},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
            {"__metadata__.k"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Safetensors, HeaderTooLarge) {
  TemporaryFolder folder;
  WriteFile(folder / "f", Bytes(64, 0x7f));
  EXPECT_THAT(SafetensorsReader::Open(folder / "f"),
              Says(AllOf(HasSubstr(folder / "f"), HasSubstr("the most is 100000000"))));
  WriteFile(folder / "g", Bytes{200, 0, 0, 0, 0, 0, 0, 0, '{', '}'});
  EXPECT_THAT(SafetensorsReader::Open(folder / "g"), Says("truncated"));
  EXPECT_EQ(SafetensorsReader::Open(folder / "none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(SafetensorsReader::Open(folder.path()), Says("regular file"));
}

TEST(Safetensors, ReadingAsSomethingElseIsAnError) {
  TemporaryFolder folder;
  const std::string path = folder / "m.safetensors";
  ASSERT_NO_FATAL_FAILURE(WriteSmall(path));
  const auto files = TensorFiles::Open(path);
  std::vector<float> six(6), one(1);
  std::vector<int64_t> count(6);
  EXPECT_THAT(files->Read("a.weight", {3, 2}, std::span(six)),
              Says(AllOf(HasSubstr("'a.weight'"), HasSubstr("{2, 3}"), HasSubstr("{3, 2}"))));
  EXPECT_THAT(files->Read("a.weight", {2, 3}, std::span(one)), Says("1 values"));
  EXPECT_THAT(files->Read("a.weight", {2, 3}, std::span(count)), Says("wanted I64"));
  EXPECT_THAT(files->Read("a.count", {}, std::span(one)), Says("is I64"));
  EXPECT_EQ(files->Read("c", {}, std::span(one)).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ringzero
