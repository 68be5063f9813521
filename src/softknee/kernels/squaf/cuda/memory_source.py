"""The CUDA C++ by which the kernels read and write their elements, as text; a part of `source.py`."""

MEMORY = r"""
// ---- eight elements at a time ----

__device__ __forceinline__ void unpack(u32 word, float* pair) {
#if KIND == 1
    pair[0] = __uint_as_float(word << 16);
    pair[1] = __uint_as_float(word & 0xFFFF0000u);
#elif KIND == 2
    asm("{.reg .b16 lo, hi; mov.b32 {lo, hi}, %2; cvt.f32.f16 %0, lo; cvt.f32.f16 %1, hi;}"
        : "=f"(pair[0]), "=f"(pair[1]) : "r"(word));
#endif
}

__device__ __forceinline__ u32 pack(const float* pair) {
    u32 word = 0;
#if KIND == 1
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(pair[0]), "f"(pair[1]));
#elif KIND == 2
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(pair[0]), "f"(pair[1]));
#endif
    return word;
}

// A vector as it lies in memory. The backward kernel fetches the next one while it works on this one.
#if KIND == 0
struct Raw { float4 a, b; };
#else
struct Raw { uint4 a; };
#endif

__device__ __forceinline__ Raw fetch(const void* base, u64 vector) {
    Raw raw;
#if KIND == 0
    const float4* at = (const float4*)base + 2 * vector;
    raw.a = at[0];
    raw.b = at[1];
#else
    raw.a = ((const uint4*)base)[vector];
#endif
    return raw;
}

__device__ __forceinline__ void open(const Raw& raw, float* x) {
#if KIND == 0
    x[0] = raw.a.x; x[1] = raw.a.y; x[2] = raw.a.z; x[3] = raw.a.w;
    x[4] = raw.b.x; x[5] = raw.b.y; x[6] = raw.b.z; x[7] = raw.b.w;
#else
    unpack(raw.a.x, x); unpack(raw.a.y, x + 2); unpack(raw.a.z, x + 4); unpack(raw.a.w, x + 6);
#endif
}

__device__ __forceinline__ void store_vector(void* base, u64 vector, const float* y) {
#if KIND == 0
    float4* at = (float4*)base + 2 * vector;
    at[0] = make_float4(y[0], y[1], y[2], y[3]);
    at[1] = make_float4(y[4], y[5], y[6], y[7]);
#else
    ((uint4*)base)[vector] = make_uint4(pack(y), pack(y + 2), pack(y + 4), pack(y + 6));
#endif
}

__device__ __forceinline__ float load_one(const void* base, u64 at) {
#if KIND == 0
    return ((const float*)base)[at];
#else
    float pair[2];
    unpack(((const unsigned short*)base)[at], pair);
    return pair[0];
#endif
}

__device__ __forceinline__ void store_one(void* base, u64 at, float y) {
#if KIND == 0
    ((float*)base)[at] = y;
#else
    const float pair[2] = {y, 0.0f};
    ((unsigned short*)base)[at] = (unsigned short)(pack(pair) & 0xFFFFu);
#endif
}

// ---- where the elements of a group lie: (outer, g1, middle, g2, inner), inner counted in vectors ----

struct Rows {
    u32 g1, middle, g2, inner, group;
};

__device__ __forceinline__ u64 vector_at(const Rows& rows, u32 v) {
#if SHARED
    return v;
#else
    const u32 above = v / rows.inner, i = v - above * rows.inner;
    const u32 outer = above / rows.middle, m = above - outer * rows.middle;
    const u64 run = ((u64)outer * rows.g1 + rows.group / rows.g2) * rows.middle + m;
    return (run * rows.g2 + rows.group % rows.g2) * rows.inner + i;
#endif
}

// ---- where the eight elements of a thread lie, for the kernels that add nothing up ----

// They come in pieces of 16 bytes: one piece, or two of four floats. If the two lay side by side, every instruction of
// a warp would touch half of each sector of 32 bytes, and each sector would be written in two parts. So up to 32
// vectors of one run share their pieces: the first ones lie side by side, and behind them, `gap` pieces on, the second.
#define PIECE (KIND == 0 ? 4 : 8)

struct Place {
    u64 piece;
    u32 gap;

    __device__ __forceinline__ u64 first() const { return piece * PIECE; }
    __device__ __forceinline__ u64 second() const { return (piece + gap) * PIECE; }
    __device__ __forceinline__ u64 element(int i) const {
        return i < PIECE ? first() + i : second() + (i - PIECE);
    }
};

__device__ __forceinline__ Place place_at(const Rows& rows, u32 v, u32 vectors) {
    Place place;
#if KIND != 0
    place.piece = vector_at(rows, v);
    place.gap = 0;
#else
#if SHARED
    const u32 run = vectors, i = v;
#else
    const u32 run = rows.inner, i = v % rows.inner;
#endif
    const u32 among = i % 32;
    place.piece = 2 * vector_at(rows, v) - among;
    place.gap = min(32u, run - (i - among));
#endif
    return place;
}

__device__ __forceinline__ Raw fetch(const void* base, const Place& place) {
    Raw raw;
#if KIND == 0
    const float4* at = (const float4*)base + place.piece;
    raw.a = at[0];
    raw.b = at[place.gap];
#else
    raw.a = ((const uint4*)base)[place.piece];
#endif
    return raw;
}

__device__ __forceinline__ void store_vector(void* base, const Place& place, const float* y) {
#if KIND == 0
    float4* at = (float4*)base + place.piece;
    at[0] = make_float4(y[0], y[1], y[2], y[3]);
    at[place.gap] = make_float4(y[4], y[5], y[6], y[7]);
#else
    store_vector(base, place.piece, y);
#endif
}
"""
