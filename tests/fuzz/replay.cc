// Without libFuzzer: runs a fuzz target on files, and for some seconds on damaged copies of them.
//
//   config_fuzz [-seconds=60] [-seed=1] FILE-OR-FOLDER ...
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kMaxBytes = 1 << 16;

void Run(const std::string& input) {
  // A copy of exactly this size, so that a sanitizer sees a read behind its end.
  std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

void Add(const std::filesystem::path& file, std::vector<std::string>& corpus) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  corpus.push_back(text.str());
}

std::string Damage(const std::vector<std::string>& corpus, std::mt19937_64& random) {
  constexpr char kBytes[] =
      "{}[]\",:'/*#\\ 0e-.\n\xff"
      "autonulltrue";
  std::string text = corpus[random() % corpus.size()];
  for (uint64_t edits = random() % 6 + 1; edits > 0; --edits) {
    const size_t at = text.empty() ? 0 : random() % text.size();
    const std::string& other = corpus[random() % corpus.size()];
    const size_t from = other.empty() ? 0 : random() % other.size();
    switch (random() % 6) {
      case 0: text.erase(at, random() % 16 + 1); break;
      case 1: text.insert(at, 1, kBytes[random() % (sizeof(kBytes) - 1)]); break;
      case 2: text.insert(at, other.substr(from, random() % 64)); break;
      case 3: text.insert(at, text.substr(at, random() % 256)); break;
      case 4: text.insert(at, std::string(random() % 200, "{[(\"'"[random() % 5])); break;
      case 5:
        if (!text.empty()) text[at] = static_cast<char>(random());
        break;
    }
  }
  return text.substr(0, kMaxBytes);
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0;
  uint64_t seed = 1;
  std::vector<std::string> corpus;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "-seconds=", 9) == 0) {
      seconds = std::atof(argv[i] + 9);
    } else if (std::strncmp(argv[i], "-seed=", 6) == 0) {
      seed = std::strtoull(argv[i] + 6, nullptr, 10);
    } else if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
        if (entry.is_regular_file()) Add(entry.path(), corpus);
      }
    } else {
      Add(argv[i], corpus);
    }
  }
  for (const std::string& input : corpus) Run(input);
  if (corpus.empty()) corpus.emplace_back();
  std::mt19937_64 random(seed);
  const std::string last_input = std::string(argv[0]) + ".last-input";  // targets run side by side
  uint64_t runs = 0;
  double slowest = 0;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - start).count() < seconds) {
    const std::string input = Damage(corpus, random);
    std::ofstream(last_input, std::ios::binary) << input;  // if this one ends the program
    const Clock::time_point begin = Clock::now();
    Run(input);
    slowest = std::max(slowest, std::chrono::duration<double>(Clock::now() - begin).count());
    ++runs;
  }
  std::remove(last_input.c_str());
  std::printf("%zu files, %llu damaged copies, the slowest %.1f ms\n", corpus.size(),
              static_cast<unsigned long long>(runs), 1e3 * slowest);
  return 0;
}
