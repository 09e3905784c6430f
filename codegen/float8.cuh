// Floats of 8 bits: sign, exponent, fraction. e4m3 has no infinity, and what is beyond 448 is 448 in it, as in PyTorch; e5m2
// is an f16 of eight bits. They are read and rounded by the same C++ on both sides; from sm_89 on by instructions.
#pragma once

struct e4m3 {
  uint8_t bits;
};
struct e5m2 {
  uint8_t bits;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define DPLC_HAS_FLOAT8 1
#else
#define DPLC_HAS_FLOAT8 0
#endif

// To nearest, ties to even. places: of the fraction; most: the largest code that is not NaN, which keeps what is beyond it.
template <int places, int bias, uint32_t most> DPLC_FN uint8_t dplc_float8(float x) {
  const uint32_t word = dplc_bits(x), sign = word >> 24 & 0x80u, size = word & 0x7fffffffu;
  if (size > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (size < (128u - bias) << 23)  // what has no leading 1: a number of the smallest steps
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(rintf(dplc_float(size) * (1 << (bias - 1 + places)))));
  const uint32_t near = size + (1u << (22 - places)) - 1 + (size >> (23 - places) & 1u);
  const uint32_t bits = (near >> (23 - places)) - ((127u - bias) << places);
  return static_cast<uint8_t>(sign | (bits < most ? bits : most));
}

DPLC_FN float to_float(e5m2 x) { return to_float(f16{static_cast<uint16_t>(x.bits << 8)}); }
DPLC_FN float to_float(e4m3 x) {
  const unsigned size = x.bits & 0x7fu;  // as an f16 it is 2^8 times smaller
  const float v = size == 0x7fu ? DPLC_NAN : to_float(f16{static_cast<uint16_t>(size << 7)}) * 256.0f;
  return x.bits & 0x80u ? -v : v;
}
DPLC_FN e5m2 to_e5m2(float x) { return {dplc_float8<2, 15, 0x7c>(x)}; }
DPLC_FN e4m3 to_e4m3(float x) {
#if DPLC_HAS_FLOAT8
  uint16_t both;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(0.0f), "f"(x));
  return {static_cast<uint8_t>(both)};
#else
  return {dplc_float8<3, 7, 0x7e>(x)};
#endif
}

// Four at once: the element at the lowest address is the lowest byte of a word.
#if DPLC_HAS_FLOAT8
#define DPLC_WIDEN(form)                                                                                           \
  asm("{ .reg .b16 a, b, p, q; .reg .b32 l, h; mov.b32 {a, b}, %4; cvt.rn.f16x2." form " l, a; cvt.rn.f16x2." form \
      " h, b; mov.b32 {p, q}, l; cvt.f32.f16 %0, p; cvt.f32.f16 %1, q; mov.b32 {p, q}, h; cvt.f32.f16 %2, p;"      \
      " cvt.f32.f16 %3, q; }"                                                                                      \
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                                             \
      : "r"(w))
DPLC_FN void widen_word(e4m3, float* d, uint32_t w) { DPLC_WIDEN("e4m3x2"); }
DPLC_FN void widen_word(e5m2, float* d, uint32_t w) { DPLC_WIDEN("e5m2x2"); }
#undef DPLC_WIDEN
DPLC_FN uint32_t narrow_word(e4m3, const float* v) {
  uint32_t w;
  asm("{ .reg .b16 a, b; cvt.rn.satfinite.e4m3x2.f32 a, %2, %1; cvt.rn.satfinite.e4m3x2.f32 b, %4, %3; mov.b32 %0, {a, b}; }"
      : "=r"(w) : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]));
  return w;
}
#else
DPLC_FN void widen_word(e4m3, float* d, uint32_t w) {
  for (int i = 0; i < 4; ++i) d[i] = to_float(e4m3{static_cast<uint8_t>(w >> 8 * i)});
}
DPLC_FN void widen_word(e5m2, float* d, uint32_t w) {
  for (int i = 0; i < 4; ++i) d[i] = to_float(e5m2{static_cast<uint8_t>(w >> 8 * i)});
}
DPLC_FN uint32_t narrow_word(e4m3, const float* v) {
  uint32_t w = 0;
  for (int i = 0; i < 4; ++i) w |= static_cast<uint32_t>(to_e4m3(v[i]).bits) << 8 * i;
  return w;
}
#endif
DPLC_FN uint32_t narrow_word(e5m2, const float* v) {  // the instruction knows no infinity
  uint32_t w = 0;
  for (int i = 0; i < 4; ++i) w |= static_cast<uint32_t>(to_e5m2(v[i]).bits) << 8 * i;
  return w;
}
