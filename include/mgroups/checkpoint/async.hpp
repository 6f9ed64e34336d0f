// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The mgroups authors
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <mgroups/checkpoint/agreement.hpp>
#include <mgroups/checkpoint/background.hpp>
#include <mgroups/checkpoint/plan_cache.hpp>
#include <mgroups/checkpoint/save.hpp>
#include <mgroups/checkpoint/save_options.hpp>
#include <mgroups/checkpoint/staging.hpp>
#include <mgroups/comm/any_communicator.hpp>
#include <mgroups/core/error.hpp>
#include <mgroups/shard/state_dict.hpp>
#include <mgroups/shard/validate.hpp>
#include <mgroups/version.hpp>

MGROUPS_BEGIN_NAMESPACE

namespace detail {

/// One asynchronous save as both of its threads see it.
struct AsyncJob {
  std::string directory;
  SaveOptions options;
  std::uint64_t bytes_total = 0;
  std::atomic<std::uint64_t> bytes_done{0};

  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  bool asked = false;  // somebody has seen how it ended
  SaveReport report;
  std::exception_ptr error;
};

}  // namespace detail

/// A save in flight, or one that has ended. A cheap handle; copies are the same save. Nothing is saved, and no file that
/// says so may be written, before `wait` has returned on every rank.
class AsyncSave {
 public:
  /// True when the save has ended, well or not. Local, never blocks.
  [[nodiscard]] bool ready() const {
    const std::lock_guard lock(job_->mutex);
    return job_->done;
  }
  /// Blocks until the checkpoint is committed and durable, and returns what `save` would have; throws what it would have
  /// thrown, the same on every rank. Local; may be called again, and from any thread of the rank.
  SaveReport wait() const {
    std::unique_lock lock(job_->mutex);
    job_->changed.wait(lock, [&] { return job_->done; });
    job_->asked = true;
    if (job_->error) std::rethrow_exception(job_->error);
    return job_->report;
  }
  /// Bytes of elements that this rank has written of those that it holds. Replicas are written by one rank of several, so
  /// that it may end below `bytes_total`.
  [[nodiscard]] std::uint64_t bytes_done() const noexcept { return job_->bytes_done; }
  [[nodiscard]] std::uint64_t bytes_total() const noexcept { return job_->bytes_total; }

 private:
  friend class AsyncSaver;
  explicit AsyncSave(std::shared_ptr<detail::AsyncJob> job) : job_(std::move(job)) {}
  std::shared_ptr<detail::AsyncJob> job_;
};

/// How an AsyncSaver behaves.
struct AsyncOptions {
  /// What `save` does while the one before is in flight: wait for it, or throw on every rank.
  enum class Busy : bool { wait, refuse };
  Busy when_busy = Busy::wait;
  /// How much the thread that writes yields to others, where every core is busy: Linux's nice value, 0 to 19. At 10 it takes
  /// a tenth of a core from a thread that computes, and much more where there is room.
  int niceness = 10;
  /// Called by the next save, or the destructor, with the sentence of a failure that nobody has waited for. Empty: it
  /// goes to standard error.
  std::function<void(std::string_view)> on_unseen_failure = {};
};

/// Saves in the background while training goes on. One per rank, made once and kept: it owns a thread, two duplicates of the
/// communicator, and memory for one copy of the rank's state, which is taken at the first save and used again by later
/// ones. A layout that has not changed since the last save is not planned again.
///
/// `save` returns when the state has been copied: from then on tensors, objects, the state dict and all that it refers to
/// may be overwritten or destroyed. A file system or deadline given in options must outlive the save. The checkpoint is
/// written as `save` writes it, and is there when the handle's `wait` has returned.
class AsyncSaver {
 public:
  /// Collective over `where`, a communicator or context, blocking. Throws UnsupportedError for a backend without
  /// `duplicate`.
  template <class Where>
  explicit AsyncSaver(Where&& where, AsyncOptions options = {}) : options_(std::move(options)) {
    any_communicator comm = detail::communicator_of(where);
    front_ = comm.duplicate();
    back_ = comm.duplicate();
    worker_ = std::thread([this] { work(); });
  }
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;
  /// Waits for a save in flight. A failure that nobody has asked for is reported: see AsyncOptions.
  ~AsyncSaver() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    worker_.join();
    report_unseen(last_);
  }

  /// Copies the state and starts a save of the copy. Collective over the saver's ranks; blocking until the copy is made.
  /// Throws the same error on every rank: InvalidArgument for tensors that cannot be read, CheckpointError where
  /// `when_busy` is `refuse` and a rank's last save is in flight. What goes wrong later is thrown by the handle's `wait`.
  /// `options.progress` and `plan_cache` are not used; handle and saver have their own.
  template <tensor_handle T>
  [[nodiscard]] AsyncSave save(const std::string& directory, const ShardedStateDict<T>& state,
                               const SaveOptions& options = {}) {
    detail::on_all_ranks(front_, "save", [&] {
      std::unique_lock lock(mutex_);
      if (writing_ && options_.when_busy == AsyncOptions::Busy::refuse) {
        throw CheckpointError(concat("cannot save to ", directory, " yet: the save to ", last_->directory,
                                     " is still in flight; wait for it, or let saves wait for each other"),
                              {.file = directory});
      }
      changed_.wait(lock, [&] { return !writing_; });
    });
    report_unseen(std::exchange(last_, nullptr));
    const LocalState source = state.local_state();
    auto job = std::make_shared<detail::AsyncJob>();
    job->directory = directory;
    job->options = options;
    job->options.progress = &job->bytes_done;
    job->options.plan_cache = &plan_;
    detail::on_all_ranks(front_, "save", [&] { copy(source, *job); });
    last_ = job;
    set_writing(true);
    return AsyncSave(std::move(job));
  }

 private:
  static constexpr std::uint64_t worth_a_thread = std::uint64_t{64} << 20;

  void copy(const LocalState& source, detail::AsyncJob& job) {
    detail::check_shards(source.tensors);
    staging_.prepare(source);
    job.bytes_total = staging_.bytes();
    // Not by the worker, whose priority may be low.
    if (job.bytes_total >= worth_a_thread) {
      std::thread second([this] { staging_.copy(); });
      staging_.copy();
      second.join();
    } else {
      staging_.copy();
    }
    staging_.check();
  }

  void set_writing(bool writing) {
    {
      const std::lock_guard lock(mutex_);
      writing_ = writing;
    }
    changed_.notify_all();
  }

  void work() {
    detail::lower_priority(options_.niceness);
    while (true) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return writing_ || stopping_; });
        if (!writing_) return;
      }
      write(*last_);
      set_writing(false);
    }
  }

  void write(detail::AsyncJob& job) {
    SaveReport report;
    std::exception_ptr error;
    try {
      report = detail::save_state(job.directory, staging_.state(), back_, job.options);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(job.mutex);
      job.report = report;
      job.error = error;
      job.done = true;
    }
    job.changed.notify_all();
  }

  void report_unseen(const std::shared_ptr<detail::AsyncJob>& job) const noexcept {
    if (!job) return;
    try {
      const std::lock_guard lock(job->mutex);
      if (job->asked || !job->error) return;
      std::string sentence;
      try {
        std::rethrow_exception(job->error);
      } catch (const std::exception& error) {
        sentence = error.what();
      } catch (...) {
        sentence = "it failed with an exception that is no std::exception";
      }
      sentence = concat("the save to ", job->directory, " has failed and nobody has waited for it: ", sentence);
      if (options_.on_unseen_failure) return options_.on_unseen_failure(sentence);
      std::fprintf(stderr, "mgroups: %s\n", sentence.c_str());
    } catch (...) {
    }
  }

  AsyncOptions options_;
  any_communicator front_;  // of the thread that calls `save`
  any_communicator back_;   // of the worker
  detail::Staging staging_;
  PlanCache plan_;  // the worker's
  std::shared_ptr<detail::AsyncJob> last_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool writing_ = false;
  bool stopping_ = false;
  std::thread worker_;
};

MGROUPS_END_NAMESPACE
