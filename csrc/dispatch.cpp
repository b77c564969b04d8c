#include "dispatch.h"

#include <map>
#include <stdexcept>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace twostroke {

Kernels scalar_kernels();
#if defined(__x86_64__)
Kernels avx2_kernels();
Kernels avx512_kernels();
Kernels avx512_bf16_kernels();
Kernels amx_kernels();

namespace {

bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

bool has_avx512_bf16() {
    return has_avx512() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
}

// Linux hands out the tile registers on request (Documentation/arch/x86/xstate.rst).
bool has_amx() {
#if defined(__linux__)
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return has_avx512_bf16() && __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
           __builtin_cpu_supports("amx-int8") && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}

}  // namespace
#endif

namespace {

struct Table {
    std::vector<std::string> names;
    std::map<std::string, Kernels> kernels;

    void add(const Kernels& k) {
        names.emplace_back(k.name);
        kernels.emplace(k.name, k);
    }
};

Table& table() {
    static Table found = [] {
        Table t;
        t.add(scalar_kernels());
#if defined(__x86_64__)
        if (has_avx2()) t.add(avx2_kernels());
        if (has_avx512()) t.add(avx512_kernels());
        if (has_avx512_bf16()) t.add(avx512_bf16_kernels());
        if (has_amx()) t.add(amx_kernels());
#endif
        return t;
    }();
    return found;
}

}  // namespace

std::vector<std::string> available_isas() { return table().names; }

void emulate_amx() {
#if defined(__x86_64__)
    if (has_avx512_bf16()) {
        table().kernels.emplace("amx", amx_kernels());
        return;
    }
#endif
    throw std::invalid_argument("this machine lacks more of amx than its tiles");
}

const Kernels& kernels_for(const std::string& isa) {
    const auto found = table().kernels.find(isa);
    if (found == table().kernels.end()) throw std::invalid_argument("this machine has no instruction set " + isa);
    return found->second;
}

}  // namespace twostroke
