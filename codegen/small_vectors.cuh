// Vectors of floats of 16 and 8 bits, of every width of an access. A prelude says what one is: DPLC_GLOBAL_SMALL(bits, H)
// loads and stores vectors of H in global memory, DPLC_SHARED_SMALL(bits) those of any such float in shared memory.
#define DPLC_SMALL(bits)        \
  DPLC_SHARED_SMALL(bits)       \
  DPLC_GLOBAL_SMALL(bits, f16)  \
  DPLC_GLOBAL_SMALL(bits, bf16) \
  DPLC_GLOBAL_SMALL(bits, e4m3) \
  DPLC_GLOBAL_SMALL(bits, e5m2)
DPLC_SMALL(32)
DPLC_SMALL(64)
DPLC_SMALL(128)
#undef DPLC_SMALL
#undef DPLC_GLOBAL_SMALL
#undef DPLC_SHARED_SMALL
