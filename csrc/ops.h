// The kernel API: one args struct an op, and the table of kernels one instruction set fills in.
// All matrices are row-major float32 unless said otherwise. A kernel works on the part it is given; who divides the
// work, and the stages it runs in, are the executor's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "blocks.h"

namespace twostroke {

enum class KvType : int { F32 = 0, F16 = 1, BF16 = 2, Q8_0 = 3 };

constexpr int kBlockTokens = 16;  // tokens of one KV block
constexpr int kKeyRange = 256;  // keys of one attention range: absolute multiples, so that sums have one order
constexpr int kMaxQueries = 8;  // query rows attended together

// Activations in 16 bits: blocks of 32 columns with one scale each, x = scale * q, |q| <= 32639.
struct QuantRows {
    uint8_t* quads;  // (rows, 2 * cols) bytes, in the instruction set's own quad order
    float* scales;  // (rows, cols / 32)
    float* sums;  // (rows, cols / 16): of 16 q, exact
    int64_t cols;
};

// Activations in bfloat16, for prompt rows where an instruction set multiplies those. Rows end in zeros up to whole 32
// columns, and `kBrainRest` rows that anything may be in follow the last one.
struct BrainRows {
    uint16_t* values;  // (rows, stride)
    int64_t stride;
};
constexpr int64_t kBrainRest = 32;
constexpr int64_t brain_stride(int64_t cols) { return ((cols + 31) / 32 | 1) * 32; }  // odd lines: rows differ in cache sets

struct PackedMatrix {
    TensorType type;
    int64_t rows, cols;
    const uint8_t* data;  // ceil(rows / 16) groups of group_bytes
    size_t group_bytes;
    const int8_t* codebook;  // entries of its type, or null
};

// Root mean square normalisation, or with `layer` LayerNorm: (x - mean) / sqrt(variance + eps) * weight + bias.
struct NormSpec {
    const float* weight;  // (dim), or null for no norm at all
    const float* bias;  // (dim), or null
    float eps;
    bool layer;
};

// What an elementwise op does to a value, or to a value and another.
enum class Elementwise : int {
    Add, GateSilu, GateGelu, GateGeluTanh, GateSwigluOai,  // of two values
    Silu, Gelu, GeluTanh, SquaredRelu, Scale, SoftCap,  // of one; Scale and SoftCap with a constant
    SigmoidGate  // of a row and one number
};

// Reads x, optionally normalises it, and writes what linears read: 16-bit blocks, and float32 where `plain`.
struct QuantizeArgs {
    const float* x;  // (rows, cols) at x_stride
    int64_t x_stride, cols;
    NormSpec norm;
    QuantRows quant;  // quads null where no matrix wants them
    float* plain;  // (rows, cols), or null
    int64_t row_begin, row_end;
};

// Reads x, optionally normalises it, and rounds it to bfloat16.
struct RoundArgs {
    const float* x;  // (rows, cols) at x_stride
    int64_t x_stride, cols;
    NormSpec norm;
    BrainRows out;
    int64_t row_begin, row_end;
};

// Prompt rows at most in one call of linear_prefill, and the bytes that it works in.
constexpr int64_t kPrefillRows = 512;
constexpr int kPrefillGroups = 4;  // groups of matrix rows worked on together
constexpr int kPrefillColumns = 512;
constexpr size_t kPrefillScratch = kPrefillGroups * kLanes * (sizeof(float) * (kPrefillRows + kBrainRest) + 2 * kPrefillColumns);

// out = x @ matrix.T + bias + residual; with `up`, out = gate(x @ matrix.T + bias, x @ up.T + up_bias).
struct LinearArgs {
    const PackedMatrix* matrix;
    const PackedMatrix* up;  // null without gate
    QuantRows quant;
    const float* plain;  // (num_rows, cols), read by F32 matrices
    BrainRows brain;  // read by linear_prefill, as is
    uint8_t* scratch;  // (kPrefillScratch)
    Elementwise gate;
    const float* bias;  // (rows), or null
    const float* up_bias;
    const float* residual;  // (num_rows, rows) at residual_stride, or null
    int64_t residual_stride;
    float* out;  // (num_rows, rows) at out_stride
    int64_t out_stride, num_rows;
    int64_t group_begin, group_end;  // groups of 16 matrix rows
};

// The arguments for some of the rows alone.
static inline LinearArgs of_rows(LinearArgs a, int64_t row, int64_t num_rows) {
    const int64_t cols = a.matrix->cols;
    if (a.quant.quads) {
        a.quant.quads += row * cols * 2;
        a.quant.scales += row * cols / 32;
        a.quant.sums += row * cols / 16;
    }
    if (a.plain) a.plain += row * cols;
    if (a.brain.values) a.brain.values += row * a.brain.stride;
    if (a.residual) a.residual += row * a.residual_stride;
    a.out += row * a.out_stride;
    a.num_rows = num_rows;
    return a;
}

struct NormalizeArgs {
    const float* x;
    float* out;  // (rows, dim), as x
    int64_t dim;
    NormSpec norm;
    int64_t row_begin, row_end;
};

struct ElementwiseArgs {
    Elementwise kind;
    const float* a;
    const float* b;  // the other value, where there is one; of SigmoidGate one number a row
    float* out;
    float constant;
    int64_t dim, row_begin, row_end;
};

struct RopeArgs {
    const float* x;  // (num_heads, head_dim) of one row
    float* out;
    const float* cos;  // (dim / 2) of the row's position
    const float* sin;
    int num_heads, head_dim, dim;
    bool interleaved;
};

constexpr int kKvGroup = 32;  // elements of a key or value that share a scale in Q8_0

// Layout of one KV head in one block: keys (head_dim, 16), then values (16, padded_dim). In Q8_0 each is followed by the
// float16 scales of its groups, (ceil(dim / 32), 16).
struct KvLayout {
    KvType type;
    int head_dim, padded_dim;  // padded_dim: head_dim rounded up to 16
    int num_kv_heads;

    constexpr size_t element_bytes() const { return type == KvType::F32 ? 4 : type == KvType::Q8_0 ? 1 : 2; }
    constexpr size_t bytes_of(int dim) const {
        const int groups = type == KvType::Q8_0 ? (dim + kKvGroup - 1) / kKvGroup : 0;
        return (element_bytes() * static_cast<size_t>(dim) + 2 * static_cast<size_t>(groups)) * kBlockTokens;
    }
    constexpr size_t key_bytes() const { return bytes_of(head_dim); }
    constexpr size_t head_bytes() const { return key_bytes() + bytes_of(padded_dim); }
    constexpr size_t block_bytes() const { return head_bytes() * static_cast<size_t>(num_kv_heads); }
};

struct StoreKvArgs {
    const float* k;  // (head_dim) of one head
    const float* v;
    uint8_t* head;  // the head's place in the block
    int slot;  // 0..15
    KvLayout layout;
};

// Attention state of one query over some keys: {max, sum, 14 unused, acc[padded_dim]}.
constexpr int kStateHeader = 16;

// Up to 8 queries of one request against one KV head, keys [key_begin, key_end) of one range.
struct AttentionArgs {
    const float* q[kMaxQueries];  // (head_dim)
    int first[kMaxQueries], visible[kMaxQueries];  // keys first <= key < visible count
    float* state[kMaxQueries];
    int num_queries;
    const int32_t* blocks;  // the request's block table
    const uint8_t* pool;  // at the layer and head of block 0
    size_t block_stride;
    KvLayout layout;
    float scale, soft_cap;  // soft_cap 0: none
    int key_begin, key_end;
    int next_begin, next_end;  // the range attended after this one, empty where there is none
    float* scores;  // (kMaxQueries, kKeyRange)
};

struct Kernels {
    const char* name;
    void (*quantize_rows)(const QuantizeArgs&);
    void (*linear)(const LinearArgs&);
    // As linear, of prompt rows and of types that `has_prefill`: in bfloat16. Null where the instruction set lacks it, and
    // then so is round_rows.
    void (*linear_prefill)(const LinearArgs&);
    void (*round_rows)(const RoundArgs&);
    void (*unpack_row)(const PackedMatrix&, int64_t row, float* out);  // (cols), the file's exact values
    void (*normalize)(const NormalizeArgs&);
    void (*rope)(const RopeArgs&);
    void (*store_kv)(const StoreKvArgs&);
    void (*attend)(const AttentionArgs&);  // one range into state
    void (*merge)(float* total, const float* part, int padded_dim);  // total, then part
    void (*finish)(float* out, const float* total, int head_dim);  // out = acc / sum
    void (*elementwise)(const ElementwiseArgs&);
    void (*accumulate)(float* out, const float* x, float share, int64_t n);  // out += share * x
    void (*quantize_blocks)(TensorType, const float* values, int64_t blocks, uint8_t* out);  // a file's blocks
    int64_t (*argmax)(const float* x, int64_t n);  // the lowest index of the largest; -1 of NaN or +infinity
    float (*sum_exp)(const float* x, int64_t n, float offset, float scale);  // sum of exp((x - offset) * scale)
    // Probes: bytes read (the sum is returned so that reads are kept), and FLOPs done in `rounds` of register work.
    float (*probe_read)(const uint8_t* data, size_t bytes, size_t prefetch_bytes);
    double (*probe_f32)(int64_t rounds, float* sink);
    double (*probe_16bit)(int64_t rounds, float* sink);
};

}  // namespace twostroke
