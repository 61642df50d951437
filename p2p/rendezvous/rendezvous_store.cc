// CheckedStore: a digest in front of each value, and a lock.
#include "p2p/rendezvous/rendezvous_store.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/digest.h"
#include "base/status.h"

namespace ringzero {
namespace {

constexpr absl::string_view kMagic = "ringzero 1 ";

std::string WithDigest(absl::string_view key, absl::string_view value) {
  const std::string digest = Sha256Hex(absl::StrCat(key.size(), ":", key, value));
  return absl::StrCat(kMagic, digest, "\n", value);
}

// Nothing for what no worker of ours has written.
std::optional<std::string> WithoutDigest(absl::string_view key, absl::string_view stored) {
  constexpr size_t kStart = kMagic.size() + 64 + 1;
  if (stored.size() < kStart) return std::nullopt;
  const absl::string_view value = stored.substr(kStart);
  return stored == WithDigest(key, value) ? std::optional<std::string>(value) : std::nullopt;
}

absl::Status Foreign(const RendezvousStore& store, const std::string& key, size_t bytes) {
  // The start's name in front of a key means nothing to a reader.
  const std::string shown = key.substr(key.find('/') + 1);
  return absl::InvalidArgumentError(
      absl::StrCat("rendezvous ", store.name(), ": '", shown, "' holds ", bytes,
                   " bytes that no worker of this version has written"));
}

}  // namespace

absl::Status CheckedStore::Write(const std::string& key, const std::string& value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return store_->Write(key, WithDigest(key, value));
}

absl::Status CheckedStore::WriteOnce(const std::string& key, const std::string& value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::string mine = WithDigest(key, value);
  RZ_ASSIGN_OR_RETURN(const std::string there, store_->WriteOnce(key, mine));
  if (there == mine) return absl::OkStatus();
  if (!WithoutDigest(key, there).has_value()) return Foreign(*store_, key, there.size());
  return absl::AlreadyExistsError(absl::StrCat("rendezvous ", name(), ": '",
                                               key.substr(key.find('/') + 1), "' was put before"));
}

absl::StatusOr<std::optional<std::string>> CheckedStore::Read(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RZ_ASSIGN_OR_RETURN(const std::optional<std::string> stored, store_->Read(key));
  if (!stored.has_value()) return std::nullopt;
  std::optional<std::string> value = WithoutDigest(key, *stored);
  if (!value.has_value()) return Foreign(*store_, key, stored->size());
  return value;
}

absl::StatusOr<std::string> CheckedStore::ReadOrEmpty(const std::string& key) {
  const absl::StatusOr<std::optional<std::string>> value = Read(key);
  if (absl::IsInvalidArgument(value.status())) return std::string();
  RZ_RETURN_IF_ERROR(value.status());
  return value->value_or("");
}

void CheckedStore::Clear(const std::string& prefix) {
  const std::lock_guard<std::mutex> lock(mutex_);
  store_->Clear(prefix);
}

void CheckedStore::Gathered() {
  const std::lock_guard<std::mutex> lock(mutex_);
  store_->Gathered();
}

}  // namespace ringzero
