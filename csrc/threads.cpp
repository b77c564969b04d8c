#include "threads.h"

#include <unistd.h>

#include <chrono>
#include <stdexcept>

namespace twostroke {

void ThreadPool::pause_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

namespace {
constexpr auto kSpinBetweenSteps = std::chrono::microseconds(1000);  // what Python needs between steps, and more
}

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads), process_(getpid()) {
    try {
        for (int thread = 1; thread < num_threads; ++thread) threads_.emplace_back([this, thread] { worker(thread); });
    } catch (...) {  // the system gives no more: those that run must end before the pool is gone
        end_workers();
        throw;
    }
}

ThreadPool::~ThreadPool() {
    if (getpid() == process_) {
        end_workers();
        return;
    }
    // Forked: there are no threads to join, and what they parked on may be locked for ever.
    for (auto& thread : threads_) thread.detach();
    static_cast<void>(parking_.release());
}

bool ThreadPool::has_workers() const { return num_threads_ == 1 || getpid() == process_; }

void ThreadPool::require_workers() const {
    if (!has_workers())
        throw std::runtime_error("the threads of this executor are in the process that made it, not in a fork of it");
}

void ThreadPool::end_workers() {
    {
        std::lock_guard lock(parking_->mutex);
        stop_ = true;
    }
    parking_->wake.notify_all();
    for (auto& thread : threads_) thread.join();
}

void ThreadPool::wake() {
    if (parked_.load(std::memory_order_seq_cst) == 0) return;
    { std::lock_guard lock(parking_->mutex); }  // a worker about to park has seen the round, or will be notified
    parking_->wake.notify_all();
}

void ThreadPool::run(const std::function<void(int)>& work) {
    require_workers();
    if (num_threads_ > 1) {
        work_ = &work;
        running_.store(num_threads_ - 1, std::memory_order_relaxed);
        round_.fetch_add(1, std::memory_order_seq_cst);
        wake();
    }
    work(0);
    spin_until([this] { return running_.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::begin_stages(int num_stages, const std::function<void(int)>& work) {
    require_workers();
    if (num_stages_ < num_stages) {
        num_stages_ = num_stages;
        taken_ = Counters(num_threads_, num_stages);
        done_ = Counters(num_threads_, num_stages);
    }
    taken_.clear();
    done_.clear();
    stage_work_ = &work;
    if (num_threads_ > 1) {
        closed_.store(false, std::memory_order_seq_cst);
        stage_round_.fetch_add(1, std::memory_order_seq_cst);
        wake();
    }
}

void ThreadPool::finish_stages() {
    require_workers();
    (*stage_work_)(0);
    closed_.store(true, std::memory_order_seq_cst);
    spin_until([this] { return inside_.load(std::memory_order_seq_cst) == 0; });
}

void ThreadPool::barrier() {
    if (num_threads_ == 1) return;
    const uint32_t generation = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
        arrived_.store(0, std::memory_order_relaxed);
        generation_.store(generation + 1, std::memory_order_release);
        return;
    }
    spin_until([&] { return generation_.load(std::memory_order_acquire) != generation; });
}

void ThreadPool::worker(int thread) {
    uint32_t seen = 0, stage_seen = 0;
    const auto called = [&] { return stop_.load() || round_.load() != seen || stage_round_.load() != stage_seen; };
    while (true) {
        const auto start = std::chrono::steady_clock::now();
        for (int spins = 0; !called(); ++spins) {
            pause_cpu();
            if (spins % 64 == 63 && std::chrono::steady_clock::now() - start > kSpinBetweenSteps) break;
        }
        if (!called()) {
            std::unique_lock lock(parking_->mutex);
            parked_.fetch_add(1, std::memory_order_seq_cst);
            parking_->wake.wait(lock, called);
            parked_.fetch_sub(1, std::memory_order_seq_cst);
        }
        if (stop_.load()) return;
        if (round_.load(std::memory_order_seq_cst) != seen) {  // run() waits for every worker, so none misses a round
            ++seen;
            (*work_)(thread);
            running_.fetch_sub(1, std::memory_order_acq_rel);
            continue;
        }
        stage_seen = stage_round_.load(std::memory_order_seq_cst);
        inside_.fetch_add(1, std::memory_order_seq_cst);
        if (!closed_.load(std::memory_order_seq_cst)) (*stage_work_)(thread);
        inside_.fetch_sub(1, std::memory_order_seq_cst);
    }
}

}  // namespace twostroke
