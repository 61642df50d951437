// The thread that empties the rings into a file.
#include "zero/trace_stream.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringzero {
namespace {

// At 30,000 events a second, which is many, a ring of kTraceEvents lasts a second.
constexpr std::chrono::milliseconds kPause(50);

}  // namespace

absl::StatusOr<std::unique_ptr<TraceStream>> TraceStream::Create(TraceStreamOptions options) {
  std::unique_ptr<TraceStream> stream(new TraceStream(std::move(options)));
  const std::string& folder = stream->options_.folder;
  const std::string path = FlightPath(folder, stream->options_.head.worker);
  std::error_code made;  // what it says, the file does, too
  std::filesystem::create_directories(folder, made);
  stream->file_ = std::fopen(path.c_str(), "wbe");
  if (stream->file_ == nullptr) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": cannot write it: ", std::strerror(errno)));
  }
  const std::string head = FlightHead(stream->options_.head);
  if (std::fwrite(head.data(), 1, head.size(), stream->file_) != head.size()) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": cannot write it: ", std::strerror(errno)));
  }
  stream->thread_ = std::thread([raw = stream.get()] { raw->Run(); });
  return stream;
}

TraceStream::TraceStream(TraceStreamOptions options) : options_(std::move(options)) {}

TraceStream::~TraceStream() {
  Stop();
  if (file_ != nullptr) std::fclose(file_);
}

void TraceStream::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void TraceStream::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_changed_.wait_for(lock, kPause, [this] { return stop_; })) {
    lock.unlock();
    Drain();
    lock.lock();
  }
}

void TraceStream::Drain() {
  std::lock_guard lock(drain_mutex_);
  batch_.clear();
  options_.recorder->ReadNew(cursor_,
                             [this](const PackedEvent& event) { batch_.push_back(event); });
  const size_t written = std::fwrite(batch_.data(), sizeof(PackedEvent), batch_.size(), file_);
  // Whole events, and the head: what a worker that is killed leaves can be read.
  const bool flushed = std::fflush(file_) == 0;
  if ((written != batch_.size() || !flushed) && error_.ok()) {
    error_ =
        absl::ResourceExhaustedError(absl::StrCat(FlightPath(options_.folder, options_.head.worker),
                                                  ": cannot write it: ", std::strerror(errno)));
  }
}

absl::Status TraceStream::Finish() {
  Stop();
  Drain();
  options_.head.lost = cursor_.lost;
  const std::string head = FlightHead(options_.head);  // as long as before
  std::rewind(file_);
  const bool written = std::fwrite(head.data(), 1, head.size(), file_) == head.size();
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (error_.ok() && (!written || !closed)) {
    error_ =
        absl::ResourceExhaustedError(absl::StrCat(FlightPath(options_.folder, options_.head.worker),
                                                  ": cannot write it: ", std::strerror(errno)));
  }
  return error_;
}

}  // namespace ringzero
