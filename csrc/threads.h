// Persistent workers: they spin briefly between steps and where they wait, then park or yield.
//
// Work that must not depend on the system's scheduler runs in stages. A stage is a number of tasks which whoever comes
// takes; it ends when all are done, not when all threads have been there. So a thread that the system has taken off its
// CPU, or a slower core, holds up at most the one task it was at.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace twostroke {

class ThreadPool {
  public:
    explicit ThreadPool(int num_threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return num_threads_; }

    // Runs work(thread) on every thread, the caller being thread 0; returns when all are done. One caller at a time.
    // Throws where the workers are in a process that this one was forked from.
    void run(const std::function<void(int)>& work);

    // Inside run(): waits until every thread is here.
    void barrier();

    // Runs work(thread) on those workers that come in time and, from finish_stages() on, on the caller: what workers have
    // done by then need not be done again. All that work does must be in stages, the same ones in the same order on
    // every thread, at most `num_stages`. `work` must stay until finish_stages() returns, which is when all is done. One
    // caller at a time; both throw as run() does.
    void begin_stages(int num_stages, const std::function<void(int)>& work);
    void finish_stages();
    void run_stages(int num_stages, const std::function<void(int)>& work) {
        begin_stages(num_stages, work);
        finish_stages();
    }

    // The workers are in this process, not in the one that it was forked from.
    bool has_workers() const;

    // Where a thread is in the stages: its own number, and how many it has been through.
    struct Place {
        int thread, stage = 0;
    };

    // In work of stages: task(i) for 0 <= i < count, each once on some thread; returns when all are done. `idle()` is
    // called over and over while this thread waits for others.
    template <class Task, class Idle>
    void stage(Place& place, int64_t count, Task&& task, Idle&& idle) {
        run_share(place, 0, 0, count, task);
        spin_until([&] {
            if (is_done(place.stage, count)) return true;
            idle();
            return false;
        });
        ++place.stage;
    }
    template <class Task>
    void stage(Place& place, int64_t count, Task&& task) {
        stage(place, count, task, [] {});
    }

    // As stage(), but thread t takes tasks `first_of[t]` .. `first_of[t + 1]` in order, and what others have left of theirs
    // when it has waited for them: so that, step after step, a thread reads what its own caches hold. `first_of`
    // (threads + 1).
    template <class Task, class Idle>
    void stage_of_own(Place& place, const int64_t* first_of, Task&& task, Idle&& idle) {
        run_share(place, place.thread, first_of[place.thread], first_of[place.thread + 1], task);
        for (int i = 0; i < 32; ++i) idle();  // even if nobody is waited for: what comes next starts with memory in flight
        int waited = 0;
        spin_until([&] {
            if (is_done(place.stage, first_of[num_threads_])) return true;
            if (++waited == kPatience)
                for (int i = 1; i < num_threads_; ++i) {
                    const int owner = (place.thread + i) % num_threads_;
                    run_share(place, owner, first_of[owner], first_of[owner + 1], task);
                }
            idle();
            return false;
        });
        ++place.stage;
    }

  private:
    static constexpr int kPatience = 32;  // looks at what others do before their work is taken from them: about 1 us

    // What threads tell each other in a stage: a row of counters each. To write where another thread writes, or looks
    // again and again, takes as long as some tasks do; so a thread counts in a row of its own, once a share.
    class Counters {
      public:
        explicit Counters(int num_threads = 0, int num_stages = 0)
            : stride_((static_cast<size_t>(num_stages) + 15) / 8 * 8),  // no cache line of two rows
              counts_(static_cast<size_t>(num_threads) * stride_) {}
        std::atomic<int64_t>& at(int thread, int stage) {
            return counts_[static_cast<size_t>(thread) * stride_ + static_cast<size_t>(stage)];
        }
        void clear() {
            for (auto& count : counts_) count.store(0, std::memory_order_relaxed);
        }

      private:
        size_t stride_;
        std::vector<std::atomic<int64_t>> counts_;
    };

    // Takes tasks of `owner`'s share, `first` .. `end`, until none is left.
    template <class Task>
    void run_share(const Place& place, int owner, int64_t first, int64_t end, Task&& task) {
        std::atomic<int64_t>& taken = taken_.at(owner, place.stage);
        int64_t ran = 0;
        while (taken.load(std::memory_order_relaxed) < end - first) {
            const int64_t next = first + taken.fetch_add(1, std::memory_order_relaxed);
            if (next >= end) break;
            task(next);
            ++ran;
        }
        if (ran == 0) return;
        std::atomic<int64_t>& done = done_.at(place.thread, place.stage);
        done.store(done.load(std::memory_order_relaxed) + ran, std::memory_order_release);
    }

    bool is_done(int stage, int64_t count) {
        for (int thread = 0; thread < num_threads_ && count > 0; ++thread)
            count -= done_.at(thread, stage).load(std::memory_order_acquire);
        return count <= 0;
    }

    void require_workers() const;
    void worker(int thread);
    void end_workers();
    void wake();

    // Spins, yielding the CPU once waiting is long: another process may hold the thread waited for.
    template <class Ready>
    static void spin_until(Ready ready) {
        for (int spins = 0; !ready(); ++spins) {
            if (spins < 20000) {
                pause_cpu();
            } else {
                std::this_thread::yield();
            }
        }
    }
    static void pause_cpu();

    const int num_threads_;
    std::vector<std::thread> threads_;
    const std::function<void(int)>* work_ = nullptr;
    const std::function<void(int)>* stage_work_ = nullptr;
    int num_stages_ = 0;  // that there is room for
    Counters taken_;  // of a thread's share of a stage: tasks that someone has begun
    Counters done_;  // by a thread in a stage: tasks, of its own share or of others
    alignas(64) std::atomic<uint32_t> round_{0};  // of run()
    alignas(64) std::atomic<uint32_t> stage_round_{0};  // of begin_stages()
    alignas(64) std::atomic<int> inside_{0};  // workers in stages
    std::atomic<bool> closed_{true};  // to workers that come late
    alignas(64) std::atomic<int> running_{0};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<uint32_t> generation_{0};
    std::atomic<bool> stop_{false};
    std::atomic<int> parked_{0};
    struct Parking {
        std::mutex mutex;
        std::condition_variable wake;
    };
    std::unique_ptr<Parking> parking_ = std::make_unique<Parking>();
    const int process_;  // workers do not come along when it forks
};

// Part `index` of `count` nearly equal parts of 0..total.
struct Part {
    int64_t begin, end;
};
inline Part part_of(int64_t total, int index, int count) {
    return {total * index / count, total * (index + 1) / count};
}

}  // namespace twostroke
