// Each but the one of memory keeps the requests that are under way, by tag.
#include "tests/offload/io_decorators.h"

#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringzero {
namespace {

class MemoryEngine : public IoEngine {
 public:
  using IoEngine::Submit;
  absl::Status Submit(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) results_.push_back({request.tag, Do(request)});
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<IoResult>> Wait(Deadline) override {
    return std::exchange(results_, {});
  }
  size_t under_way() const override { return results_.size(); }

 private:
  absl::Status Do(const IoRequest& request) {
    std::vector<std::byte>& file = files_[request.file];
    const size_t end = static_cast<size_t>(request.offset) + request.memory.size();
    if (request.memory.empty()) return absl::OkStatus();
    if (request.kind == IoRequest::Kind::kWrite && end > file.size()) file.resize(end);
    if (end > file.size()) {
      return absl::OutOfRangeError(absl::StrCat("read of ", request.memory.size(),
                                                " bytes at offset ", request.offset,
                                                ": the file ends at ", file.size()));
    }
    std::byte* const at = file.data() + request.offset;
    const bool reads = request.kind == IoRequest::Kind::kRead;
    std::memcpy(reads ? request.memory.data() : at, reads ? at : request.memory.data(),
                request.memory.size());
    return absl::OkStatus();
  }

  std::map<int, std::vector<std::byte>> files_;
  std::vector<IoResult> results_;
};

class Decorator : public IoEngine {
 public:
  explicit Decorator(std::unique_ptr<IoEngine> engine) : engine_(std::move(engine)) {}

  absl::Status Submit(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) {
      Begin(request);
      under_way_.emplace(request.tag, request);
    }
    return engine_->Submit(requests);
  }
  absl::StatusOr<std::vector<IoResult>> Wait(Deadline deadline) override {
    RZ_ASSIGN_OR_RETURN(std::vector<IoResult> results, engine_->Wait(deadline));
    for (IoResult& result : results) {
      const auto found = under_way_.find(result.tag);
      End(found->second, result);
      under_way_.erase(found);
    }
    return results;
  }
  size_t under_way() const override { return engine_->under_way(); }

 protected:
  virtual void Begin(const IoRequest&) {}
  virtual void End(const IoRequest&, IoResult&) {}
  const std::multimap<uint64_t, IoRequest>& requests() const { return under_way_; }

 private:
  std::unique_ptr<IoEngine> engine_;
  std::multimap<uint64_t, IoRequest> under_way_;
};

class FaultyIo final : public Decorator {
 public:
  FaultyIo(std::unique_ptr<IoEngine> engine, IoFault fault)
      : Decorator(std::move(engine)), fault_(std::move(fault)) {}

 private:
  void End(const IoRequest& request, IoResult& result) override {
    const absl::Status fault = fault_(request);
    if (!fault.ok()) result.status = fault;
  }
  const IoFault fault_;
};

size_t HashOf(const IoRequest& request) {
  return std::hash<std::string_view>()(
      {reinterpret_cast<const char*>(request.memory.data()), request.memory.size()});
}

class CheckedIo final : public Decorator {
 public:
  CheckedIo(std::unique_ptr<IoEngine> engine, std::vector<std::string>& misuses)
      : Decorator(std::move(engine)), misuses_(misuses) {}
  ~CheckedIo() override {
    if (under_way() > 0) misuses_.push_back("ended with requests under way");
  }

 private:
  void Begin(const IoRequest& request) override {
    for (const auto& [tag, other] : requests()) {
      if (tag == request.tag) misuses_.push_back(absl::StrCat("tag ", tag, " twice"));
      const bool apart = request.memory.data() + request.memory.size() <= other.memory.data() ||
                         other.memory.data() + other.memory.size() <= request.memory.data();
      const bool reads =
          request.kind == IoRequest::Kind::kRead || other.kind == IoRequest::Kind::kRead;
      if (!apart && reads)
        misuses_.push_back(absl::StrCat("tags ", tag, " and ", request.tag, " share memory"));
    }
    if (request.kind == IoRequest::Kind::kWrite) hashes_[request.tag] = HashOf(request);
  }
  void End(const IoRequest& request, IoResult&) override {
    if (request.kind != IoRequest::Kind::kWrite || hashes_[request.tag] == HashOf(request)) return;
    misuses_.push_back(
        absl::StrCat("the memory of tag ", request.tag, " was changed while it was written"));
  }
  std::vector<std::string>& misuses_;
  std::map<uint64_t, size_t> hashes_;
};

class TracedIo final : public Decorator {
 public:
  TracedIo(std::unique_ptr<IoEngine> engine, std::vector<std::string>& lines)
      : Decorator(std::move(engine)), lines_(lines) {}

 private:
  void Begin(const IoRequest& request) override {
    const bool reads = request.kind == IoRequest::Kind::kRead;
    lines_.push_back(
        request.kind == IoRequest::Kind::kSync
            ? "sync"
            : absl::StrCat(reads ? "read " : "write ", request.offset, "+", request.memory.size()));
  }
  std::vector<std::string>& lines_;
};

}  // namespace

std::unique_ptr<IoEngine> MakeMemoryEngine() { return std::make_unique<MemoryEngine>(); }

std::unique_ptr<IoEngine> MakeFaultyIo(std::unique_ptr<IoEngine> engine, IoFault fault) {
  return std::make_unique<FaultyIo>(std::move(engine), std::move(fault));
}

std::unique_ptr<IoEngine> MakeCheckedIo(std::unique_ptr<IoEngine> engine,
                                        std::vector<std::string>& misuses) {
  return std::make_unique<CheckedIo>(std::move(engine), misuses);
}

std::unique_ptr<IoEngine> MakeTracedIo(std::unique_ptr<IoEngine> engine,
                                       std::vector<std::string>& lines) {
  return std::make_unique<TracedIo>(std::move(engine), lines);
}

}  // namespace ringzero
