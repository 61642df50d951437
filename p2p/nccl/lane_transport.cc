// Puts words, lanes and a mailbox together.
#include "p2p/nccl/lane_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/mailbox_transport.h"
#include "p2p/nccl/lane_driver.h"
#include "p2p/nccl/lane_wire.h"

namespace ringzero {
namespace {

// The answers to what users ask; lanes' words have none.
class Answers {
 public:
  void Set(Answerer answerer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    answerer_ = std::move(answerer);
  }
  std::string Answer(WorkerId from, const std::string& question) {
    Answerer answerer;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      answerer = answerer_;
    }
    return answerer ? answerer(from, question) : std::string();
  }

 private:
  std::mutex mutex_;
  Answerer answerer_;
};

struct LaneMembers {
  std::string name;
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<LaneWire> wire;
  std::unique_ptr<Transport> words;
  std::shared_ptr<LaneNews> news;
  std::unique_ptr<LaneDriver> driver;
  Arenas arenas;
};

class LaneTransport final : public MailboxTransport {
 public:
  explicit LaneTransport(LaneMembers parts)
      : MailboxTransport(parts.mailbox, std::move(parts.arenas)),
        name_(std::move(parts.name)),
        answers_(std::make_shared<Answers>()),
        wire_(std::move(parts.wire)),
        news_(std::move(parts.news)),
        driver_(std::move(parts.driver)),
        words_(std::move(parts.words)) {
    words_->AnswerWith([wire = wire_, answers = answers_](WorkerId from, const std::string& text) {
      if (IsLaneWord(text)) return wire->OnWord(from, text);
      if (wire->SaidGoodbye(from)) return std::string(kLaneGone);
      return answers->Answer(from, text);
    });
    news_->ListenWith([wire = wire_](const absl::Status& why) { wire->OnWordsFailed(why); });
    wire_->SayHello();
  }

  ~LaneTransport() override {
    mailbox().Shutdown(kDrainLimit);
    if (mailbox().status().ok()) {  // closed
      wire_->Drain(kDrainLimit);
      words_->Close().IgnoreError();  // refused: it has ended, and nobody minds
    }
    wire_->Detach();
    driver_.reset();
    news_->ListenWith(nullptr);
    words_.reset();
    mailbox().RunCallbacks();
  }

  std::string name() const override { return name_; }
  std::string LinkTo(WorkerId to) const override {
    if (to == self()) return "self";
    return absl::StrCat(name_, " (words: ", words_->LinkTo(to), ")");
  }
  absl::Status Ask(WorkerId to, const std::string& question, AnswerArrival arrival) override {
    if (IsLaneWord(question)) return absl::InvalidArgumentError("a question like a lane's word");
    return MailboxTransport::Ask(to, question, std::move(arrival));
  }
  void AnswerWith(Answerer answerer) override { answers_->Set(std::move(answerer)); }

 private:
  const std::string name_;
  const std::shared_ptr<Answers> answers_;  // shared with words' answerer
  const std::shared_ptr<LaneWire> wire_;    // shared with the mailbox
  const std::shared_ptr<LaneNews> news_;
  std::unique_ptr<LaneDriver> driver_;
  std::unique_ptr<Transport> words_;
};

absl::Status CheckRoutes(const LaneParts& parts, int workers) {
  const int lanes = static_cast<int>(parts.lanes.size());
  for (const std::vector<int>* routes : {&parts.routes.to, &parts.routes.from}) {
    if (static_cast<int>(routes->size()) != workers) {
      return InvalidArgument("routes for ", routes->size(), " workers; there are ", workers);
    }
    for (const int lane : *routes) {
      if (lane >= kNoLane && lane < lanes) continue;
      return InvalidArgument("a route takes lane ", lane, "; there are ", lanes);
    }
  }
  if (parts.routes.long_hops == kNoLane || parts.routes.order != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError("a lane for long hops needs their order");
}

}  // namespace

void LaneNews::Tell(const absl::Status& why) {
  Listener listener;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    told_ = why;
    listener = listener_;
  }
  if (listener != nullptr) listener(why);
}

void LaneNews::ListenWith(const Listener& listener) {
  std::optional<absl::Status> told;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    listener_ = listener;
    told = told_;
  }
  if (listener != nullptr && told.has_value()) listener(*told);
}

TransportOptions LaneWordsOptions(const TransportOptions& options, std::shared_ptr<LaneNews> news) {
  TransportOptions words;
  words.parameter_bytes = 4096;
  words.sum_bytes = 4096;  // for wakes
  words.peer_timeout = options.peer_timeout;
  words.on_failure = [news = std::move(news)](const absl::Status& why) { news->Tell(why); };
  return words;
}

absl::StatusOr<std::unique_ptr<Transport>> CreateLaneTransport(LaneParts parts,
                                                               const TransportOptions& options) {
  const WorkerId self = parts.words->self();
  const int workers = parts.words->workers();
  RZ_RETURN_IF_ERROR(CheckPeerTimeout(options));
  RZ_RETURN_IF_ERROR(CheckRoutes(parts, workers));
  if (options.progress == ProgressMode::kCaller) {
    return InvalidArgument("progress: transport ", parts.name, " has threads of its own");
  }
  if (options.memory != parts.memory.kind) {
    return InvalidArgument("memory: transport ", parts.name, " carries payload in ",
                           parts.memory.kind == MemoryKind::kCuda ? "a GPU's" : "the host's",
                           " memory only");
  }
  LaneMembers members;
  RZ_ASSIGN_OR_RETURN(members.arenas, MakeArenas(self, parts.memory, options));
  members.wire = std::make_shared<LaneWire>(self, std::move(parts.routes), parts.word_kinds);
  members.mailbox = std::make_shared<Mailbox>(self, workers, options.on_failure, members.wire);
  members.driver = std::make_unique<LaneDriver>(
      std::move(parts.lanes),
      LaneDriverOptions{.stall_limit = parts.stall_limit,
                        .on_failure = [wire = members.wire](const absl::Status& why) {
                          wire->OnWordsFailed(why);
                        }});
  members.name = std::move(parts.name);
  members.words = std::move(parts.words);
  members.news = std::move(parts.news);
  RZ_RETURN_IF_ERROR(
      members.wire->Attach(members.mailbox, members.words.get(), members.driver.get()));
  return std::make_unique<LaneTransport>(std::move(members));
}

}  // namespace ringzero
