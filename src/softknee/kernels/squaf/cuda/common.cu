// Five-point Gaussian SQUAF, forward and backward. Compiled at run time, with these defined before it:
//   KIND     storage type: 0 float, 1 bfloat16, 2 half
//   POINTS   grid points, 2k+1
//   THREADS  threads of a block
//   PARAMETERS  storage type of q, alpha and z, numbered like KIND
//   SHARED   1 where all of x shares one row of parameters, else 0
//
// Inside the grid one exponential does: with E = 2^(2 alpha q log2(e) d), d the distance from the nearest
// grid point, and g_j = e^(-h j^2), the weights are g_j E^j. Times E^2 they are a polynomial with the
// coefficients of one row of a table in shared memory, z[c+j] g_j. Each row is kept once per lane that can
// ask for it in the same cycle, so no two lanes meet in a bank. An element near an end of the grid, NaN, or h
// above FAST_H takes the careful way, with two exponentials. On a SMALL grid most elements are near an end: there
// all go that way, and none is set aside.
//
// The gradient of z: every thread owns one private bin per grid point, laid out [bin][thread], so that
// neither an atomic nor a bank conflict can occur; a block adds its threads' bins up in a fixed order at the
// end.

typedef unsigned int u32;
typedef unsigned long long u64;

#define K ((POINTS - 1) / 2)
#define VECTOR 8
#define ROW_BYTES 256         // of the table of values (forward)
#define DIFFERENCE_BYTES 128  // of the table of differences (backward)
#define ROUNDER 12582912.0f  // 1.5 * 2^23: adding it rounds to the nearest integer, found in the low bits
#define ROUNDER_BITS 0x4B400000
#define LOG2_E 1.4426950408889634f
#define LIMIT 1.8446742974197924e19f
#define FAST_H 16.0f  // E^4 = e^(4h) must stay a float32
#define SMALL (POINTS <= 9)

__device__ __forceinline__ float power_of_two(float a) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}

__device__ __forceinline__ float reciprocal(float a) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}

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

// ---- one group's constants, and its table ----

__device__ __forceinline__ float parameter(const void* base, u64 at) {
#if PARAMETERS == 0
    return ((const float*)base)[at];
#elif PARAMETERS == 1
    return __uint_as_float((u32)((const unsigned short*)base)[at] << 16);
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(((const unsigned short*)base)[at]));
    return value;
#endif
}

struct Group {
    float q, inverse_q, alpha, scale;  // scale = 2 alpha q log2(e)
    float g1, g2, fall;                // e^(-h), e^(-4h), e^(-2h)
    float inside;                      // |x| up to here has five neighbours on the grid; negative: never
    const void* z;
    u64 first;  // where this group's z begins

    __device__ __forceinline__ float value(int i) const { return parameter(z, first + i); }
    __device__ __forceinline__ bool has(int i) const { return i >= 0 && i < POINTS; }
};

// A learned q or alpha is kept as a raw number and an anchor: anchor * softplus(raw), held inside the range of
// spec/constraints.py; without an anchor (a null pointer) it is what it is.
#define NARROWEST 9.094947017729282e-13f  // 2^-40
#define WIDEST 1.099511627776e12f         // 2^40

__device__ __forceinline__ float lifted(const void* raw, const void* anchor, u32 group) {
    const float value = parameter(raw, group);
    if (anchor == 0) return value;
    const float grown = parameter(anchor, group) * (value > 20.0f ? value : log1pf(expf(value)));
    return fminf(fmaxf(grown, NARROWEST), WIDEST);
}

__device__ __forceinline__ Group read_group(const void* q, const void* q_anchor, const void* alpha,
                                            const void* alpha_anchor, const void* z, u32 group) {
    Group s;
    s.q = lifted(q, q_anchor, group);
    s.alpha = lifted(alpha, alpha_anchor, group);
    s.inverse_q = 1.0f / s.q;
    s.scale = 2.0f * (s.alpha * s.q) * LOG2_E;
    const float h = s.alpha * s.q * s.q;
    s.g1 = power_of_two(-h * LOG2_E);
    s.g2 = power_of_two(-4.0f * h * LOG2_E);
    s.fall = power_of_two(-2.0f * h * LOG2_E);
    s.inside = h <= FAST_H ? ((float)(K - 2) + 0.499f) * s.q : -1.0f;
    s.z = z;
    s.first = (u64)group * POINTS;
    return s;
}

// Row c: four coefficients once for each of 8 lanes (16-byte reads go out by quarter warps), the fifth for
// all 32.
__device__ void fill_table(char* table, const Group& s) {
    for (u32 at = threadIdx.x; at < POINTS * 8; at += THREADS) {
        const int row = at / 8;
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#if SMALL
        four = make_float4(s.has(row - 2) ? s.value(row - 2) : 0.0f, s.has(row - 1) ? s.value(row - 1) : 0.0f,
                           s.value(row), s.has(row + 1) ? s.value(row + 1) : 0.0f);
#else
        if (row >= 2 && row < POINTS - 2)
            four = make_float4(s.value(row - 2) * s.g2, s.value(row - 1) * s.g1, s.value(row), s.value(row + 1) * s.g1);
#endif
        *(float4*)(table + row * ROW_BYTES + (at % 8) * 16) = four;
    }
    for (u32 at = threadIdx.x; at < POINTS * 32; at += THREADS) {
        const int row = at / 32;
        const float last = row < POINTS - 2 ? s.value(row + 2) * (SMALL ? 1.0f : s.g2) : 0.0f;
        *(float*)(table + row * ROW_BYTES + 128 + (at % 32) * 4) = last;
    }
}

// For the gradients only differences from the nearest point's z count: four, and better rounded than the values.
__device__ void fill_differences(char* table, const Group& s) {
    for (u32 at = threadIdx.x; at < POINTS * 8; at += THREADS) {
        const int row = at / 8;
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const float z = s.value(row);
#if SMALL
        four = make_float4(s.has(row - 2) ? s.value(row - 2) - z : 0.0f, s.has(row - 1) ? s.value(row - 1) - z : 0.0f,
                           s.has(row + 1) ? s.value(row + 1) - z : 0.0f, s.has(row + 2) ? s.value(row + 2) - z : 0.0f);
#else
        if (row >= 2 && row < POINTS - 2) {
            four = make_float4((s.value(row - 2) - z) * s.g2, (s.value(row - 1) - z) * s.g1,
                               (s.value(row + 1) - z) * s.g1, (s.value(row + 2) - z) * s.g2);
        }
#endif
        *(float4*)(table + row * DIFFERENCE_BYTES + (at % 8) * 16) = four;
    }
}

// ---- the careful way: ends of the grid, any h, NaN ----

// Weights relative to the nearest point's, from two exponentials: w(+-2) = w(+-1)^2 e^(-2h). 0 outside the grid.
struct Careful {
    int row;  // of the nearest point, -K..K
    float c, d;
    float down2, down, up, up2;

    __device__ __forceinline__ float sum() const { return 1.0f + ((up + down) + (up2 + down2)); }
};

__device__ __forceinline__ Careful careful(float x, const Group& group) {
    Careful s;
    const float bounded = x == x ? fminf(fmaxf(x, -LIMIT), LIMIT) : x;
    // A NaN becomes -K here, which is on the grid; it reaches the result through d.
    const float rounded = fminf(fmaxf(bounded * group.inverse_q, -(float)K), (float)K) + ROUNDER;
    s.c = rounded - ROUNDER;
    s.row = __float_as_int(rounded) - ROUNDER_BITS;
    s.d = fmaf(-s.c, group.q, bounded);
    const float half = 0.5f * group.scale;
    // Exponents are at most 0 but for the rounding of x/q, which a huge alpha magnifies. Not fminf: it loses a NaN.
    const float above = half * fmaf(2.0f, s.d, -group.q), below = half * fmaf(-2.0f, s.d, -group.q);
    s.up = s.row < K ? power_of_two(above > 60.0f ? 60.0f : above) : 0.0f;
    s.down = s.row > -K ? power_of_two(below > 60.0f ? 60.0f : below) : 0.0f;
    s.up2 = s.row < K - 1 ? s.up * s.up * group.fall : 0.0f;
    s.down2 = s.row > 1 - K ? s.down * s.down * group.fall : 0.0f;
    return s;
}

__device__ __forceinline__ float careful_value(float x, const Group& s) {
    const Careful w = careful(x, s);
    const int at = w.row + K;
    float total = s.value(at);
    if (s.has(at - 2)) total += w.down2 * s.value(at - 2);
    if (s.has(at - 1)) total += w.down * s.value(at - 1);
    if (s.has(at + 1)) total += w.up * s.value(at + 1);
    if (s.has(at + 2)) total += w.up2 * s.value(at + 2);
    return total * reciprocal(w.sum());
}

template <typename T>
__device__ __forceinline__ void replace(T* y, int i, T value) {
    // By comparison: a running index would move the array out of registers.
#pragma unroll
    for (int t = 0; t < VECTOR; ++t) y[t] = i == t ? value : y[t];
}

// Which of the eight need the careful way, as bits. They become 0 here, which is on every grid, and go the
// quick way with the others; their results are replaced afterwards.
__device__ __forceinline__ u32 set_aside(float* x, float inside) {
    bool easy = true;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) easy = easy && fabsf(x[i]) <= inside;
    u32 bits = 0;
    if (!easy) {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const bool aside = !(fabsf(x[i]) <= inside);
            bits |= aside ? 1u << i : 0u;
            x[i] = aside ? 0.0f : x[i];
        }
    }
    return bits;
}

// ---- sums of a block ----

// Every thread has bins of its own, [bin][thread]; a warp adds one bin at a time up, in an order that does not change.
__device__ __forceinline__ void add_up(const float* bins, u32 count, float* into) {
    const u32 lane = threadIdx.x % 32;
    for (u32 bin = threadIdx.x / 32; bin < count; bin += THREADS / 32) {
        float sum = 0.0f;
#pragma unroll
        for (u32 t = 0; t < THREADS; t += 32) sum += bins[bin * THREADS + t + lane];
#pragma unroll
        for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, other);
        if (lane == 0) into[bin] = sum;
    }
}

// ---- forward ----

extern "C" __global__ void __launch_bounds__(THREADS, 6)
squaf_forward(const void* x_in, void* out, const void* q, const void* q_anchor, const void* alpha,
              const void* alpha_anchor, const void* z, u32 vectors, u32 tail, u32 g1, u32 middle, u32 g2, u32 inner) {
    extern __shared__ __align__(256) char shared[];
    const Rows rows = {g1, middle, g2, inner, blockIdx.y};
    const Group s = read_group(q, q_anchor, alpha, alpha_anchor, z, blockIdx.y);
    fill_table(shared, s);
    __syncthreads();
    const u32 lane = threadIdx.x % 32;
    const char* fours = shared + K * ROW_BYTES + (lane % 8) * 16;
    const char* fifths = shared + K * ROW_BYTES + 128 + lane * 4;

#pragma unroll 1
    for (u32 v = blockIdx.x * THREADS + threadIdx.x; v < vectors; v += gridDim.x * THREADS) {
        const Place here = place_at(rows, v, vectors);
        float x[VECTOR], y[VECTOR];
        open(fetch(x_in, here), x);
#if SMALL
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const Careful w = careful(x[i], s);
            const float4 a = *(const float4*)(fours + w.row * ROW_BYTES);
            const float last = *(const float*)(fifths + w.row * ROW_BYTES);
            const float above = fmaf(last, w.up2, fmaf(a.w, w.up, fmaf(a.y, w.down, fmaf(a.x, w.down2, a.z))));
            y[i] = above * reciprocal(w.sum());
        }
#else
        u32 aside = set_aside(x, s.inside);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const float rounded = fmaf(x[i], s.inverse_q, ROUNDER);
            const float c = rounded - ROUNDER;
            const int offset = (__float_as_int(rounded) - ROUNDER_BITS) * ROW_BYTES;
            const float e = power_of_two(fmaf(-c, s.q, x[i]) * s.scale);
            const float4 a = *(const float4*)(fours + offset);
            const float last = *(const float*)(fifths + offset);
            const float above = fmaf(fmaf(fmaf(fmaf(last, e, a.w), e, a.z), e, a.y), e, a.x);
            const float below = fmaf(fmaf(fmaf(fmaf(s.g2, e, s.g1), e, 1.0f), e, s.g1), e, s.g2);
            y[i] = above * reciprocal(below);
        }
#pragma unroll 1
        for (; aside != 0; aside &= aside - 1) {
            const int i = __ffs(aside) - 1;
            replace(y, i, careful_value(load_one(x_in, here.element(i)), s));
        }
#endif
        store_vector(out, here, y);
    }
    if (blockIdx.x == 0 && threadIdx.x < tail) {
        const u64 at = (u64)vectors * VECTOR + threadIdx.x;
        store_one(out, at, careful_value(load_one(x_in, at), s));
    }
}
