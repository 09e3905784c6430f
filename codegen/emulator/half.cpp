// Conversions between float and the sixteen bits of IEEE half precision, for hosts whose compiler has no such type.
#include <string.h>

#include "machine.cuh"

extern "C" float dplc_f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  float value;
  if (magnitude < 0x0400) {  // zero or subnormal: a multiple of 2^-24
    value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t exponent = magnitude >= 0x7c00 ? 0x7f800000 : (magnitude << 13 & 0x0f800000) + (112u << 23);
  const uint32_t word = sign | exponent | (magnitude & 0x03ff) << 13;
  memcpy(&value, &word, 4);
  return value;
}

extern "C" uint16_t dplc_float_to_f16(float value) {
  uint32_t word;
  memcpy(&word, &value, 4);
  const uint16_t sign = static_cast<uint16_t>(word >> 16 & 0x8000);
  const uint32_t magnitude = word & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7fff;   // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and above round to infinity
  if (magnitude < 0x38800000) {                       // below 2^-14: let float addition round to a multiple of 2^-24
    float positive;
    memcpy(&positive, &magnitude, 4);
    positive += 0.5f;
    memcpy(&word, &positive, 4);
    return static_cast<uint16_t>(sign | (word - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0x0fff + (magnitude >> 13 & 1);  // to nearest, ties to even
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}
