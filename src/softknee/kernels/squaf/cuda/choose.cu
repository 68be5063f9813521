// SAMPLED is 1 for SQUAF-P, SYMBOLS is 1 where the places in z are wanted instead of the values there.

// ---- which point an element takes ----

__device__ __forceinline__ u32 mix(u32 h) {
    h = (h ^ (h >> 16)) * 0x7FEB352Du;
    h = (h ^ (h >> 15)) * 0x846CA68Bu;
    return h ^ (h >> 16);
}

// The same bits as in choice.py, mix(mix(position + low) ^ high), where `high` is the upper half of the seed xor
// the mixed upper half of the position. The first mix ends as the second begins, with h ^ (h >> 16), which undoes
// itself: both are left out, and `key` = high ^ (high >> 16) stands for high.
#define TO_UNIT 2.3283064365386963e-10f  // 2^-32

struct Key {
    u32 low, key;

    // 2^32 times a number in [0, 1).
    __device__ __forceinline__ float draw(u32 position) const {
        u32 h = position + low;
        h = (h ^ (h >> 16)) * 0x7FEB352Du;
        h = (h ^ (h >> 15)) * 0x846CA68Bu;
        h = (h ^ key) * 0x7FEB352Du;
        h = (h ^ (h >> 15)) * 0x846CA68Bu;
        // 24 bits, left where they are: a float32 holds them without rounding.
        return (float)((h ^ (h >> 16)) & 0xFFFFFF00u);
    }
};

__device__ __forceinline__ Key key_at(u64 seed, u64 position) {
    const u32 high = (u32)(seed >> 32) ^ mix((u32)(position >> 32));
    Key key;
    key.low = (u32)seed;
    key.key = high ^ (high >> 16);
    return key;
}

// The point c-2 to c+2 is the first at which the running sum of the weights is above u times the sum of all five. Here
// for the ends of the grid and any h, where some of the weights may be 0.
__device__ __forceinline__ int careful_symbol(float x, float drawn, const Group& s) {
    const Careful w = careful(x, s);
    const float s1 = w.down2 + w.down, s2 = s1 + 1.0f, s3 = s2 + w.up;
    const float goal = (drawn * TO_UNIT) * (s3 + w.up2);
    const int passed = (w.down2 <= goal) + (s1 <= goal) + (s2 <= goal) + (s3 <= goal);
    return min(max(w.row + K - 2 + passed, 0), POINTS - 1);
}

// The same inside the grid, from the bits of ROUNDER + c and E. Signs of differences are counted, which costs half of
// what comparisons do. The last sum is not below s3, and u not above 1 - 2^-24: no rounding makes a point pass s3 where
// the fifth weight is lost in the sum.
__device__ __forceinline__ int quick_symbol(int rounded, float e, float drawn, const Group& s) {
    const float e2 = e * e;
    const float s1 = fmaf(s.g1, e, s.g2), s2 = s1 + e2, s3 = fmaf(s.g1, e2 * e, s2);
    const float unit = fmaf(s.g2, e2 * e2, s3) * -TO_UNIT;
    u32 symbol = rounded - ROUNDER_BITS + (K - 2);
    symbol += (u32)__float_as_int(fmaf(drawn, unit, s.g2)) >> 31;
    symbol += (u32)__float_as_int(fmaf(drawn, unit, s1)) >> 31;
    symbol += (u32)__float_as_int(fmaf(drawn, unit, s2)) >> 31;
    symbol += (u32)__float_as_int(fmaf(drawn, unit, s3)) >> 31;
    return symbol;
}

// round(x / q) on the grid, the quotient rounded as a division rounds it: `inverse_q` is the nearest float to 1/q, and
// one step with the exact remainder then gives the nearest float to x/q (Markstein).
__device__ __forceinline__ int nearest_symbol(float x, const Group& s) {
    const float guess = x * s.inverse_q;
    const float better = fmaf(fmaf(-s.q, guess, x), s.inverse_q, guess);
    const float ratio = fabsf(guess) <= (float)(K + 1) ? better : guess;
    const float rounded = fminf(fmaxf(ratio, -(float)K), (float)K) + ROUNDER;
    return __float_as_int(rounded) - ROUNDER_BITS + K;
}

// What is given for a symbol: itself, or z there; and NaN, or -1, for a NaN.
#if SYMBOLS
typedef int Given;
__device__ __forceinline__ int given(float x, int symbol, const float* table) { return x == x ? symbol : -1; }

__device__ __forceinline__ void store_given(void* base, const Place& place, const int* symbol) {
    int4* at = (int4*)base + place.first() / 4;
    at[0] = make_int4(symbol[0], symbol[1], symbol[2], symbol[3]);
    at[KIND == 0 ? place.gap : 1] = make_int4(symbol[4], symbol[5], symbol[6], symbol[7]);
}

__device__ __forceinline__ void store_given(void* base, u64 at, int symbol) { ((int*)base)[at] = symbol; }
#else
typedef float Given;
__device__ __forceinline__ float given(float x, int symbol, const float* table) {
    const float value = table[symbol];
    return x == x ? value : x;
}

__device__ __forceinline__ void store_given(void* base, const Place& place, const float* y) {
    store_vector(base, place, y);
}

__device__ __forceinline__ void store_given(void* base, u64 at, float y) { store_one(base, at, y); }
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
squaf_choose(const void* x_in, void* out, const u64* seed, const void* q, const void* q_anchor, const void* alpha,
             const void* alpha_anchor, const void* z, u32 vectors, u32 tail, u32 g1, u32 middle, u32 g2, u32 inner) {
    __shared__ float table[POINTS];
    const Rows rows = {g1, middle, g2, inner, blockIdx.y};
    const u32 stride = gridDim.x * THREADS;
    u32 v = blockIdx.x * THREADS + threadIdx.x;
    Place here;
    Raw raw;
    // Asked for before anything else, so that no wait for the parameters comes before this one.
    if (v < vectors) {
        here = place_at(rows, v, vectors);
        raw = fetch(x_in, here);
    }
#if SAMPLED
    const u64 from = *seed;
#endif
#if !SYMBOLS
    const bool fills = threadIdx.x < POINTS;  // cuda.py has no grid of more points than threads
    const float own = fills ? parameter(z, (u64)blockIdx.y * POINTS + threadIdx.x) : 0.0f;
#endif
    const Group s = read_group(q, q_anchor, alpha, alpha_anchor, z, blockIdx.y);
#if !SYMBOLS
    if (fills) table[threadIdx.x] = own;
    __syncthreads();
#endif
#pragma unroll 1
    while (v < vectors) {
        float x[VECTOR];
        Given y[VECTOR];
        open(raw, x);
#if SAMPLED
        const Key key = key_at(from, here.first());
#if KIND == 0 && !SHARED
        const Key second_key = key_at(from, here.second());  // 2^32 may lie between
#else
        const Key second_key = key;
#endif
        const u32 first = (u32)here.first(), second = (u32)here.second();
        u32 aside = set_aside(x, s.inside);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const float rounded = fmaf(x[i], s.inverse_q, ROUNDER);
            const float c = rounded - ROUNDER;
            const float e = power_of_two(fmaf(-c, s.q, x[i]) * s.scale);
            const float drawn = i < PIECE ? key.draw(first + i) : second_key.draw(second + (i - PIECE));
            const int symbol = quick_symbol(__float_as_int(rounded), e, drawn, s);
            y[i] = given(0.0f, symbol, table);  // a NaN is set aside
        }
#pragma unroll 1
        for (; aside != 0; aside &= aside - 1) {
            const int i = __ffs(aside) - 1;
            const u64 at = here.element(i);
            const float one = load_one(x_in, at);
            const float drawn = (i < PIECE ? key : second_key).draw((u32)at);
            replace(y, i, given(one, careful_symbol(one, drawn, s), table));
        }
#else
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) y[i] = given(x[i], nearest_symbol(x[i], s), table);
#endif
        store_given(out, here, y);
        v += stride;
        if (v < vectors) {
            here = place_at(rows, v, vectors);
            raw = fetch(x_in, here);
        }
    }
    if (blockIdx.x == 0 && threadIdx.x < tail) {
        const u64 at = (u64)vectors * VECTOR + threadIdx.x;
        const float x = load_one(x_in, at);
#if SAMPLED
        const int symbol = careful_symbol(x, key_at(from, at).draw((u32)at), s);
#else
        const int symbol = nearest_symbol(x, s);
#endif
        store_given(out, at, given(x, symbol, table));
    }
}
