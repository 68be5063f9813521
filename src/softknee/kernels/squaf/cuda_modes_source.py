"""The CUDA C++ of SQUAF-P and SQUAF-S, as text that follows `cuda_source`; `cuda_modes.py` compiles and launches it.

SAMPLED is 1 for SQUAF-P, SYMBOLS is 1 where the places in z are wanted instead of the values there.
"""

CHOOSE = r"""
// ---- which point an element takes ----

__device__ __forceinline__ u32 mix(u32 h) {
    h = (h ^ (h >> 16)) * 0x7FEB352Du;
    h = (h ^ (h >> 15)) * 0x846CA68Bu;
    return h ^ (h >> 16);
}

// The same bits as in random_bits.py; `high` is the upper half of the seed, mixed with the upper half of the position.
__device__ __forceinline__ float uniform(u32 position, u32 low, u32 high) {
    return (float)(mix(mix(position + low) ^ high) >> 8) * 5.9604644775390625e-08f;
}

// How many of the running sums of five weights u times their sum has passed: 0 for c-2 to 4 for c+2.
__device__ __forceinline__ int passed(float w0, float w1, float w2, float w3, float w4, float u) {
    const float s1 = w0 + w1, s2 = s1 + w2, s3 = s2 + w3;
    const float goal = u * (s3 + w4);
    return (w0 <= goal) + (s1 <= goal) + (s2 <= goal) + (s3 <= goal);
}

__device__ __forceinline__ int careful_symbol(float x, float u, const Group& s) {
    const Careful w = careful(x, s);
    const int symbol = (int)w.c + K - 2 + passed(w.p[0], w.p[1], w.p[2], w.p[3], w.p[4], u);
    return min(max(symbol, 0), POINTS - 1);
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

__device__ __forceinline__ void store_symbols(void* base, u64 vector, const int* symbol) {
    int4* at = (int4*)base + 2 * vector;
    at[0] = make_int4(symbol[0], symbol[1], symbol[2], symbol[3]);
    at[1] = make_int4(symbol[4], symbol[5], symbol[6], symbol[7]);
}

__device__ __forceinline__ void give_one(void* out, u64 at, float x, int symbol, const float* table) {
#if SYMBOLS
    ((int*)out)[at] = x == x ? symbol : -1;
#else
    store_one(out, at, x == x ? table[symbol] : x);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
squaf_choose(const void* x_in, void* out, const u64* seed, const void* q, const void* q_anchor, const void* alpha,
             const void* alpha_anchor, const void* z, u32 vectors, u32 tail, u32 g1, u32 middle, u32 g2, u32 inner) {
    __shared__ float table[POINTS];
    const Rows rows = {g1, middle, g2, inner, blockIdx.y};
    const Group s = read_group(q, q_anchor, alpha, alpha_anchor, z, blockIdx.y);
#if !SYMBOLS
    for (u32 at = threadIdx.x; at < POINTS; at += THREADS) table[at] = s.value(at);
    __syncthreads();
#endif
#if SAMPLED
    const u32 low = (u32)*seed, top = (u32)(*seed >> 32);
#endif
#pragma unroll 1
    for (u32 v = blockIdx.x * THREADS + threadIdx.x; v < vectors; v += gridDim.x * THREADS) {
        const u64 here = vector_at(rows, v);
        float x[VECTOR];
        int symbol[VECTOR];
        open(fetch(x_in, here), x);
#if SAMPLED
        const u32 first = (u32)(here * VECTOR), high = top ^ mix((u32)((here * VECTOR) >> 32));
        u32 aside = set_aside(x, s.inside);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const float rounded = fmaf(x[i], s.inverse_q, ROUNDER);
            const float c = rounded - ROUNDER;
            const float e = power_of_two(fmaf(-c, s.q, x[i]) * s.scale);
            const float e2 = e * e;
            const int centre = __float_as_int(rounded) - ROUNDER_BITS + K;
            symbol[i] = centre - 2 + passed(s.g2, s.g1 * e, e2, s.g1 * (e2 * e), s.g2 * (e2 * e2),
                                            uniform(first + i, low, high));
        }
#pragma unroll 1
        for (; aside != 0; aside &= aside - 1) {
            const int i = __ffs(aside) - 1;
            const float one = load_one(x_in, here * VECTOR + i);
            const int found = careful_symbol(one, uniform(first + i, low, high), s);
            // By comparison: a running index would move the arrays out of registers.
#pragma unroll
            for (int t = 0; t < VECTOR; ++t) {
                symbol[t] = i == t ? found : symbol[t];
                x[t] = i == t ? one : x[t];
            }
        }
#else
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) symbol[i] = nearest_symbol(x[i], s);
#endif
#if SYMBOLS
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) symbol[i] = x[i] == x[i] ? symbol[i] : -1;
        store_symbols(out, here, symbol);
#else
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const float value = table[symbol[i]];
            x[i] = x[i] == x[i] ? value : x[i];
        }
        store_vector(out, here, x);
#endif
    }
    if (blockIdx.x == 0 && threadIdx.x < tail) {
        const u64 at = (u64)vectors * VECTOR + threadIdx.x;
        const float x = load_one(x_in, at);
#if SAMPLED
        const int symbol = careful_symbol(x, uniform((u32)at, low, top ^ mix((u32)(at >> 32))), s);
#else
        const int symbol = nearest_symbol(x, s);
#endif
        give_one(out, at, x, symbol, table);
    }
}
"""

STEP_BACKWARD = r"""
// The gradient of z for the staircase: every thread adds into bins of its own, as in the backward kernel of SQUAF.

extern "C" __global__ void __launch_bounds__(THREADS)
squaf_step_backward(const void* grad_in, const void* x_in, float* partial, const void* q, const void* q_anchor,
                    u32 vectors, u32 tail, u32 g1, u32 middle, u32 g2, u32 inner) {
    extern __shared__ __align__(256) char shared[];
    float* bins = (float*)shared;  // [POINTS][THREADS]
    const Rows rows = {g1, middle, g2, inner, blockIdx.y};
    const Group s = read_group(q, q_anchor, q, q_anchor, q, blockIdx.y);  // of which q alone is used
    float* own = bins + threadIdx.x;
#pragma unroll 4
    for (int bin = 0; bin < POINTS; ++bin) own[bin * THREADS] = 0.0f;
#pragma unroll 1
    for (u32 v = blockIdx.x * THREADS + threadIdx.x; v < vectors; v += gridDim.x * THREADS) {
        const u64 here = vector_at(rows, v);
        float x[VECTOR], g[VECTOR];
        open(fetch(x_in, here), x);
        open(fetch(grad_in, here), g);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            // A NaN belongs to the middle, and does not stay hidden.
            const bool real = x[i] == x[i];
            own[(real ? nearest_symbol(x[i], s) : K) * THREADS] += real ? g[i] : x[i];
        }
    }
    if (blockIdx.x == 0 && threadIdx.x < tail) {
        const u64 at = (u64)vectors * VECTOR + threadIdx.x;
        const float x = load_one(x_in, at);
        const bool real = x == x;
        own[(real ? nearest_symbol(x, s) : K) * THREADS] += real ? load_one(grad_in, at) : x;
    }
    __syncthreads();
    add_up(bins, POINTS, partial + ((u64)blockIdx.y * gridDim.x + blockIdx.x) * POINTS);
}
"""
