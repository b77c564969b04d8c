// A tile unit in software: runs code that uses Intel AMX on x86-64 Linux without it.
//
// A processor without tiles raises an invalid-opcode signal at each of their instructions. Here the signal's handler
// decodes the instruction, does to the thread's own tile registers what the Intel SDM's pseudocode says (volume 2A and
// 2B: LDTILECFG, STTILECFG, TILELOADD, TILELOADDT1, TILESTORED, TILEZERO, TILERELEASE, TDPBF16PS, TDPBSSD, TDPBSUD,
// TDPBUSD, TDPBUUD), and goes on behind it. Every other instruction runs on the processor. What the SDM answers with
// #UD or #GP is an error, and so is a start row other than 0, which only an operating system would set.
//
// Loading the library is all it takes; LD_PRELOAD does for a whole program. Where there is a tile unit nothing happens.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <immintrin.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

enum { kTiles = 8, kRows = 16, kBytes = 64 };

enum Operation {
    kLoadConfig, kStoreConfig, kLoad, kLoadOnce, kStore, kZero, kRelease, kDotBf16, kDotSS, kDotSU, kDotUS, kDotUU, kOperations
};

struct Instruction {
    enum Operation operation;
    int length;  // bytes
    int reg, rm, vvvv;
    uint8_t* memory;  // what the operand addresses
    int64_t stride;  // 0 without an index register
    bool has_sib;
};

static __thread struct {
    uint8_t config[kBytes];  // as LDTILECFG took it; palette 0: not configured
    uint32_t tiles[kTiles][kRows][kBytes / 4];  // beyond a tile's shape anything, which nothing can see
} unit;

// A guarded call: where it goes on after an error, and what went wrong.
static __thread struct {
    sigjmp_buf back;
    volatile sig_atomic_t active;
    const uint8_t* executing;  // the tile instruction at work, or null
    char message[512];
} guard;

static atomic_long counts[kOperations];
static struct sigaction previous;
static pthread_t guarded;

static int rows_of(int tile) { return unit.config[48 + tile]; }
static int bytes_of(int tile) { return unit.config[16 + 2 * tile] | unit.config[17 + 2 * tile] << 8; }

// --- decoding ---------------------------------------------------------------------------------------------------------

static int64_t register_of(const greg_t* registers, int number) {
    static const int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return registers[kOrder[number]];
}

static int64_t displacement(const uint8_t* p, int bytes) {
    int32_t wide;
    if (bytes == 1) return (int8_t)*p;
    memcpy(&wide, p, 4);
    return bytes == 4 ? wide : 0;
}

// The operand behind the ModRM byte at `p`; its length with the ModRM byte.
static int decode_memory(struct Instruction* i, const uint8_t* p, const greg_t* registers, int extend_index, int extend_base) {
    const uint8_t* const start = p;
    const int mod = *p >> 6, rm = *p & 7;
    int displaced = mod == 1 ? 1 : mod == 2 ? 4 : 0;
    int64_t address = 0;
    ++p;
    if (rm == 4) {
        const int scale = *p >> 6, index = (*p >> 3 & 7) + extend_index, base = *p & 7;
        ++p;
        i->has_sib = true;
        if (index != 4) i->stride = (int64_t)((uint64_t)register_of(registers, index) << scale);
        if (base == 5 && mod == 0) displaced = 4;
        else address = register_of(registers, base + extend_base);
    } else if (rm == 5 && mod == 0) {
        displaced = 4;
        address = (int64_t)(p + 4);  // relative to the next instruction
    } else {
        address = register_of(registers, rm + extend_base);
    }
    i->memory = (uint8_t*)(address + displacement(p, displaced));
    return (int)(p + displaced - start);
}

// Whether there is a tile instruction at `p`: VEX.128.map 2.W0 with opcodes 49, 4B, 5C, 5E.
static bool decode(const uint8_t* p, const greg_t* registers, struct Instruction* i) {
    if (p[0] != 0xC4 || (p[1] & 31) != 2 || (p[2] & 0x84) != 0) return false;
    static const enum Operation kDots[4] = {kDotUU, kDotUS, kDotSU, kDotSS};  // by the prefix: none, 66, F3, F2
    static const enum Operation kMoves[4] = {kOperations, kLoadOnce, kStore, kLoad};
    const int prefix = p[2] & 3, opcode = p[3], modrm = p[4];
    const bool in_memory = modrm >> 6 != 3;
    *i = (struct Instruction){.operation = kOperations, .reg = (modrm >> 3 & 7) + (p[1] & 0x80 ? 0 : 8)};
    if (opcode == 0x49 && in_memory && i->reg == 0 && prefix < 2) i->operation = prefix == 0 ? kLoadConfig : kStoreConfig;
    if (opcode == 0x49 && modrm == 0xC0 && prefix == 0) i->operation = kRelease;
    if (opcode == 0x49 && !in_memory && prefix == 3) i->operation = kZero;
    if (opcode == 0x4B && in_memory) i->operation = kMoves[prefix];
    if (opcode == 0x5C && !in_memory && prefix == 2) i->operation = kDotBf16;
    if (opcode == 0x5E && !in_memory) i->operation = kDots[prefix];
    if (i->operation == kOperations) return false;
    i->vvvv = ~p[2] >> 3 & 15;
    i->rm = (modrm & 7) + (p[1] & 0x20 ? 0 : 8);
    i->length = 5;
    if (in_memory)
        i->length = 4 + decode_memory(i, p + 4, registers, p[1] & 0x40 ? 0 : 8, p[1] & 0x20 ? 0 : 8);
    return true;
}

// --- executing: each gives null, or what is wrong -----------------------------------------------------------------------

static const char* load_config(const uint8_t* config) {
    if (config[0] == 0) {
        memset(&unit, 0, sizeof unit);
        return NULL;
    }
    if (config[0] != 1) return "LDTILECFG: the palette is neither 0 nor 1";
    if (config[1] != 0) return "LDTILECFG: a start row other than 0 is not emulated";
    for (int i = 2; i < kBytes; ++i)
        if (config[i] && (i < 16 || (i >= 32 && i < 48) || i >= 56)) return "LDTILECFG: a reserved byte is not 0";
    for (int t = 0; t < kTiles; ++t) {
        const int bytes = config[16 + 2 * t] | config[17 + 2 * t] << 8, rows = config[48 + t];
        if (bytes > kBytes || rows > kRows) return "LDTILECFG: a tile of more than 16 rows or 64 bytes a row";
        if ((bytes == 0) != (rows == 0)) return "LDTILECFG: a tile with rows or columns only";
    }
    memset(&unit, 0, sizeof unit);
    memcpy(unit.config, config, kBytes);
    return NULL;
}

static const char* check(int tile) {
    if (unit.config[0] == 0) return "no tiles are configured";
    if (tile >= kTiles || rows_of(tile) == 0) return "a tile that is not configured";
    return bytes_of(tile) % 4 ? "a tile whose rows are no multiple of 4 bytes" : NULL;
}

static const char* load(const struct Instruction* i) {
    if (!i->has_sib) return "a tile load without an SIB byte";
    const int rows = rows_of(i->reg), bytes = bytes_of(i->reg);
    for (int r = 0; r < rows; ++r) memcpy(unit.tiles[i->reg][r], i->memory + r * i->stride, (size_t)bytes);
    return NULL;
}

static const char* store(const struct Instruction* i) {
    if (!i->has_sib) return "a tile store without an SIB byte";
    const int rows = rows_of(i->reg), bytes = bytes_of(i->reg);
    for (int r = 0; r < rows; ++r) memcpy(i->memory + r * i->stride, unit.tiles[i->reg][r], (size_t)bytes);
    return NULL;
}

// Products of pairs from even and odd places are summed apart, in the order of k, and added up last. Denormals are 0.
__attribute__((target("avx512f"))) static void dot_bf16(int out, int a, int b) {
    _mm_setcsr(0x9FC0);  // flush to zero, denormals are zero, to nearest even; the signal's return restores it
    const int depth = bytes_of(a) / 4;
    const __m512i high = _mm512_set1_epi32((int)0xFFFF0000u);
    for (int m = 0; m < rows_of(out); ++m) {
        __m512 even = _mm512_setzero_ps(), odd = even;
        for (int k = 0; k < depth; ++k) {
            const __m512i x = _mm512_set1_epi32((int)unit.tiles[a][m][k]), y = _mm512_loadu_si512(unit.tiles[b][k]);
            even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                                   _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), even);
            odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, high)),
                                  _mm512_castsi512_ps(_mm512_and_si512(y, high)), odd);
        }
        float* const sums = (float*)unit.tiles[out][m];
        _mm512_storeu_ps(sums, _mm512_add_ps(_mm512_loadu_ps(sums), _mm512_add_ps(even, odd)));
    }
}

static int32_t byte_of(uint32_t word, int place, bool is_signed) {
    const uint8_t byte = (uint8_t)(word >> 8 * place);
    return is_signed ? (int8_t)byte : byte;
}

static void dot_bytes(int out, int a, int b, bool a_signed, bool b_signed) {
    for (int m = 0; m < rows_of(out); ++m)
        for (int k = 0; k < bytes_of(a) / 4; ++k)
            for (int n = 0; n < bytes_of(out) / 4; ++n)
                for (int place = 0; place < 4; ++place)
                    unit.tiles[out][m][n] += (uint32_t)(byte_of(unit.tiles[a][m][k], place, a_signed) *
                                                        byte_of(unit.tiles[b][k][n], place, b_signed));
}

static const char* dot(const struct Instruction* i) {
    const int out = i->reg, a = i->rm, b = i->vvvv;
    const char* wrong = check(a);
    if (!wrong) wrong = check(b);
    if (wrong) return wrong;
    if (out == a || out == b || a == b) return "a tile product needs three different tiles";
    if (rows_of(out) != rows_of(a) || bytes_of(out) != bytes_of(b) || bytes_of(a) / 4 != rows_of(b))
        return "a tile product of shapes that do not fit";
    if (i->operation == kDotBf16) dot_bf16(out, a, b);
    else dot_bytes(out, a, b, i->operation <= kDotSU, i->operation == kDotSS || i->operation == kDotUS);
    return NULL;
}

static const char* execute(const struct Instruction* i) {
    switch (i->operation) {
        case kLoadConfig: return load_config(i->memory);
        case kStoreConfig: memcpy(i->memory, unit.config, kBytes); return NULL;
        case kRelease: memset(&unit, 0, sizeof unit); return NULL;
        default: break;
    }
    const char* wrong = check(i->reg);
    if (wrong) return wrong;
    switch (i->operation) {
        case kLoad: case kLoadOnce: return load(i);
        case kStore: return store(i);
        case kZero: memset(unit.tiles[i->reg], 0, sizeof unit.tiles[0]); return NULL;
        default: return dot(i);
    }
}

// --- signals --------------------------------------------------------------------------------------------------------------

// Leaves the guarded call with one line; without one it says so, and the signal, met again, goes to whom it went before.
static void give_up(const char* what, const uint8_t* instruction, int signal, const struct sigaction* then) {
    Dl_info place = {0};
    dladdr(instruction, &place);
    const char* file = place.dli_fname ? strrchr(place.dli_fname, '/') : NULL;
    const void* symbol = place.dli_saddr ? place.dli_saddr : place.dli_fbase;
    snprintf(guard.message, sizeof guard.message, "%s at rip %p: %s+%#tx in %s", what, (const void*)instruction,
             place.dli_sname ? place.dli_sname : "its file", instruction - (const uint8_t*)symbol, file ? file + 1 : "?");
    if (guard.active) siglongjmp(guard.back, 1);
    fprintf(stderr, "tile unit: %s\n", guard.message);
    sigaction(signal, then, NULL);
}

static void on_illegal(int signal, siginfo_t* info, void* context) {
    greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
    const uint8_t* p = (const uint8_t*)registers[REG_RIP];
    struct Instruction i;
    (void)info;
    if (!decode(p, registers, &i)) return give_up("an instruction this machine lacks", p, signal, &previous);
    do {  // and those right behind it, which would only be signals again
        guard.executing = p;
        const char* wrong = execute(&i);
        guard.executing = NULL;
        if (wrong) return give_up(wrong, p, signal, &previous);
        atomic_fetch_add_explicit(&counts[i.operation], 1, memory_order_relaxed);
        registers[REG_RIP] = (greg_t)(p += i.length);
    } while (decode(p, registers, &i));
}

static void on_fault(int signal, siginfo_t* info, void* context) {
    static const struct sigaction kDefault = {.sa_handler = SIG_DFL};
    const uint8_t* rip = (const uint8_t*)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
    char what[64] = "still running after its time";
    if (signal != SIGPROF) snprintf(what, sizeof what, "a fault at address %p", info->si_addr);
    else if (!guard.active) return (void)pthread_kill(guarded, SIGPROF);  // the timer is the process's
    give_up(what, guard.executing ? guard.executing : rip, signal, &kDefault);
}

__attribute__((constructor)) static void install(void) {
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, &previous);
}

// --- what tests call ----------------------------------------------------------------------------------------------------

// Tile instructions emulated so far in this process, of each of Operation's kinds.
void tile_unit_counts(long* out) {
    for (int i = 0; i < kOperations; ++i) out[i] = atomic_load_explicit(&counts[i], memory_order_relaxed);
}

// Calls a function of up to 12 integers. Gives null, or one line on why it had to be left: a tile instruction's error,
// an instruction this machine lacks, a fault in memory, or more than `seconds` of processor time. A function that is
// left must hold nothing that wants destroying.
const char* tile_unit_call(long (*function)(), const long* a, double seconds, long* result) {
    const int kSignals[3] = {SIGSEGV, SIGBUS, SIGPROF};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before[3];
    const struct itimerval limit = {.it_value = {(long)seconds, (long)((seconds - (double)(long)seconds) * 1e6)}};
    for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &action, &before[i]);
    const bool left = sigsetjmp(guard.back, 1) != 0;
    if (!left) {
        guarded = pthread_self();
        guard.active = 1;
        setitimer(ITIMER_PROF, &limit, NULL);
        *result = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    }
    setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
    guard.active = 0;
    guard.executing = NULL;
    for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &before[i], NULL);
    return left ? guard.message : NULL;
}
