// float16 and bfloat16 conversions in plain C++: bit-exact with the hardware's (round to nearest even).
// Internal linkage throughout, so that no ISA's copy can be chosen for another's.
#pragma once

#include <cstdint>
#include <cstring>

namespace twostroke {
namespace {

inline float bits_to_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint32_t float_to_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float f16_to_f32(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1fu;
    const uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0x1f) {
        return bits_to_float(sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u));  // NaNs quieten
    }
    if (exponent != 0) return bits_to_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
    const float subnormal = static_cast<float>(mantissa) * 0x1p-24f;
    return bits_to_float(sign | float_to_bits(subnormal));
}

// Beyond the largest finite float16 the value saturates there, so that a stored key or value is never infinite.
inline uint16_t f32_to_f16_saturated(float value) {
    const uint32_t bits = float_to_bits(value);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477fe000u) return static_cast<uint16_t>(sign | 0x7bffu);
    if (magnitude < 0x38800000u) {  // subnormal: the addition rounds
        const float shifted = bits_to_float(magnitude) + 0.5f;
        return static_cast<uint16_t>(sign | (float_to_bits(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// Beyond the largest finite float16 the value becomes infinite.
inline uint16_t f32_to_f16(float value) {
    const uint32_t bits = float_to_bits(value), magnitude = bits & 0x7fffffffu;
    if (magnitude >= 0x477ff000u && magnitude <= 0x7f800000u) return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | 0x7c00u);
    return f32_to_f16_saturated(value);
}

inline float bf16_to_f32(uint16_t value) { return bits_to_float(static_cast<uint32_t>(value) << 16); }

inline uint16_t f32_to_bf16(float value) {
    const uint32_t bits = float_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace
}  // namespace twostroke
