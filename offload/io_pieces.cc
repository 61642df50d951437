// What becomes of a system call's result.
#include "offload/io_pieces.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ringzero {
namespace {

constexpr int kMostRefusals = 1000;  // then it is an error

std::string Describe(IoRequest::Kind kind, size_t bytes, int64_t offset) {
  if (kind == IoRequest::Kind::kSync) return "sync";
  return absl::StrCat(kind == IoRequest::Kind::kRead ? "read" : "write", " of ", bytes,
                      " bytes at offset ", offset);
}

}  // namespace

void IoPieces::Add(const IoRequest& request) {
  const uint64_t number = next_++;
  Request& added = requests_[number];
  added = {.asked = request, .since = std::chrono::steady_clock::now()};
  const auto size = static_cast<int64_t>(request.memory.size());
  int64_t from = 0;
  do {  // a sync, and a request of nothing, is one piece without bytes
    const int64_t bytes = std::min(block_bytes_, size - from);
    waiting_.push_back({.kind = request.kind,
                        .file = request.file,
                        .offset = request.offset + from,
                        .memory = request.memory.data() + from,
                        .bytes = static_cast<size_t>(bytes),
                        .request = number});
    ++added.pieces;
    from += bytes;
  } while (from < size);
}

IoPiece* IoPieces::Begin() {
  if (waiting_.empty()) return nullptr;
  const auto piece = waiting_.begin();
  piece->self = piece;
  begun_.splice(begun_.end(), waiting_, piece);
  return &*piece;
}

void IoPieces::End(IoPiece* piece, int64_t result) {
  const auto again = [&] { waiting_.splice(waiting_.begin(), begun_, piece->self); };
  if (!requests_.at(piece->request).status.ok()) return Drop(piece);
  const bool refused = result == -EAGAIN && ++piece->refusals < kMostRefusals;
  if (result == -EINTR || refused) return again();
  if (result < 0) {
    const int error = static_cast<int>(-result);
    return Fail(piece,
                absl::ErrnoToStatus(error, Describe(piece->kind, piece->bytes, piece->offset)));
  }
  if (result == 0 && piece->bytes > 0) {
    return Fail(piece, absl::OutOfRangeError(absl::StrCat(
                           Describe(piece->kind, piece->bytes, piece->offset),
                           piece->kind == IoRequest::Kind::kRead ? ": the file ends there"
                                                                 : ": nothing was written")));
  }
  const size_t done = std::min(piece->bytes, static_cast<size_t>(result));
  if (done == piece->bytes) return Drop(piece);
  piece->offset += static_cast<int64_t>(done);
  piece->memory += done;
  piece->bytes -= done;
  again();
}

void IoPieces::Fail(IoPiece* piece, absl::Status status) {
  Request& request = requests_.at(piece->request);
  request.status = std::move(status);
  request.pieces -= std::erase_if(
      waiting_, [&](const IoPiece& other) { return other.request == piece->request; });
  Drop(piece);
}

void IoPieces::Drop(IoPiece* piece) {
  const auto request = requests_.find(piece->request);
  begun_.erase(piece->self);
  if (--request->second.pieces > 0) return;
  results_.push_back({request->second.asked.tag, std::move(request->second.status)});
  requests_.erase(request);
}

std::vector<IoResult> IoPieces::TakeResults() { return std::exchange(results_, {}); }

absl::Status IoPieces::TooLate() const {
  const Request& oldest = requests_.begin()->second;
  const IoRequest& asked = oldest.asked;
  const std::chrono::duration<double> age = std::chrono::steady_clock::now() - oldest.since;
  return absl::DeadlineExceededError(
      absl::StrFormat("%s: not done after %.3g s",
                      Describe(asked.kind, asked.memory.size(), asked.offset), age.count()));
}

}  // namespace ringzero
