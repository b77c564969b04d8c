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

    // Runs work(thread) on the caller and on those workers that come in time; all that it does must be in stages, the
    // same ones in the same order on every thread, at most `num_stages`. One caller at a time.
    void run_stages(int num_stages, const std::function<void(int)>& work);

    // Inside run_stages(): task(i) for 0 <= i < count, each once on some thread; returns when all are done. `cursor`
    // counts this thread's stages, from 0. `idle()` is called over and over while this thread waits for others.
    template <class Task, class Idle>
    void stage(int& cursor, int64_t count, Task&& task, Idle&& idle) {
        Stage& s = stages_[static_cast<size_t>(cursor++)];
        while (s.next.load(std::memory_order_relaxed) < count) {
            const int64_t i = s.next.fetch_add(1, std::memory_order_relaxed);
            if (i >= count) break;
            task(i);
            s.done.fetch_add(1, std::memory_order_release);
        }
        finish(s, count, idle);
    }
    template <class Task>
    void stage(int& cursor, int64_t count, Task&& task) {
        stage(cursor, count, task, [] {});
    }

    // As stage(), but thread t takes tasks `first_of[t]` .. `first_of[t + 1]` in order, and then what others have left of
    // theirs: so that, step after step, a thread reads what its own caches hold. `first_of` (threads + 1).
    template <class Task, class Idle>
    void stage_of_own(int& cursor, int thread, const int64_t* first_of, Task&& task, Idle&& idle) {
        std::atomic<int64_t>* taken = &taken_[static_cast<size_t>(cursor) * static_cast<size_t>(num_threads_)];
        Stage& s = stages_[static_cast<size_t>(cursor++)];
        for (int i = 0; i < num_threads_; ++i) {
            const int owner = (thread + i) % num_threads_;
            const int64_t count = first_of[owner + 1] - first_of[owner];
            while (taken[owner].load(std::memory_order_relaxed) < count) {
                const int64_t next = taken[owner].fetch_add(1, std::memory_order_relaxed);
                if (next >= count) break;
                task(first_of[owner] + next);
                s.done.fetch_add(1, std::memory_order_release);
            }
        }
        for (int i = 0; i < 32; ++i) idle();  // even if nobody is waited for: what comes next starts with memory in flight
        finish(s, first_of[num_threads_], idle);
    }

  private:
    struct alignas(64) Stage {
        std::atomic<int64_t> next{0}, done{0};
    };

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
    template <class Idle>
    static void finish(const Stage& s, int64_t count, Idle&& idle) {
        spin_until([&] {
            if (s.done.load(std::memory_order_acquire) >= count) return true;
            idle();
            return false;
        });
    }
    static void pause_cpu();

    const int num_threads_;
    std::vector<std::thread> threads_;
    const std::function<void(int)>* work_ = nullptr;
    const std::function<void(int)>* stage_work_ = nullptr;
    std::vector<Stage> stages_;
    std::vector<std::atomic<int64_t>> taken_;  // (stages, threads): of each thread's own tasks in stage_of_own()
    alignas(64) std::atomic<uint32_t> round_{0};  // of run()
    alignas(64) std::atomic<uint32_t> stage_round_{0};  // of run_stages()
    alignas(64) std::atomic<int> inside_{0};  // workers in run_stages()
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
