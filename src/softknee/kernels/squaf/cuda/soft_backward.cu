// ---- backward, for the gradients that are wanted: BY_X, BY_Q, BY_ALPHA and BY_Z are 0 or 1, defined before it ----

#define BY_SCALE (BY_Q || BY_ALPHA)    // sums for q and alpha, both from the same three numbers
#define BY_SLOPE (BY_X || BY_SCALE)    // anything but the gradient of z
#define Z_BINS (BY_Z ? POINTS : 0)
#define BINS (Z_BINS + (BY_SCALE ? 2 : 0))  // what a block adds up: z at each point, then q and alpha

// A thread's sums, with m = g Cov(z, j | x): the gradients of q and alpha are combinations of them.
struct Sums {
    float m_d, m_c, second;
};

__device__ __forceinline__ float careful_backward(float x, float g, const Group& s, float* bins, Sums& sums) {
    const Careful w = careful(x, s);
    const int centre = w.row + K;
    const float weights[5] = {w.down2, w.down, 1.0f, w.up, w.up2};
    const float share = reciprocal(w.sum()), z = s.value(centre);
    float phi = 0.0f, first = 0.0f, second = 0.0f, mean = 0.0f, square = 0.0f;
#pragma unroll
    for (int i = 0; i < 5; ++i) {
        const int at = centre + i - 2;
        if (!s.has(at)) continue;
        const float p = weights[i] * share;
#if BY_SLOPE
        const float j = (float)(i - 2), t = p * (s.value(at) - z);
        phi += t;
        first += t * j;
        second += t * (j * j);
        mean += p * j;
        square += p * (j * j);
#endif
#if BY_Z
        bins[at * THREADS] += g * p;
#endif
    }
    const float m = g * (first - phi * mean);
#if BY_SCALE
    sums.m_d += m * w.d;
    sums.m_c += m * w.c;
    sums.second += g * (second - phi * square);
#endif
    return 2.0f * (s.alpha * s.q) * m;
}

extern "C" __global__ void __launch_bounds__(THREADS)
squaf_backward(const void* grad_in, const void* x_in, void* dx, float* partial,
               const void* q, const void* q_anchor, const void* alpha, const void* alpha_anchor, const void* z,
               u32 vectors, u32 tail, u32 g1, u32 middle, u32 g2, u32 inner) {
    extern __shared__ __align__(256) char shared[];
    float* bins = (float*)(shared + POINTS * DIFFERENCE_BYTES);  // [BINS][THREADS]
    const Rows rows = {g1, middle, g2, inner, blockIdx.y};
    const Group s = read_group(q, q_anchor, alpha, alpha_anchor, z, blockIdx.y);
#if BY_SLOPE
    fill_differences(shared, s);
#endif
    float* own = bins + threadIdx.x;
#if BY_Z
#pragma unroll 4
    for (int bin = 0; bin < POINTS; ++bin) own[bin * THREADS] = 0.0f;
#endif
    __syncthreads();
    const u32 lane = threadIdx.x % 32;
    const char* fours = shared + K * DIFFERENCE_BYTES + (lane % 8) * 16;
    float* nearest = own + K * THREADS;
    const float slope = 2.0f * (s.alpha * s.q);
    Sums sums = {0.0f, 0.0f, 0.0f};

    const u32 stride = gridDim.x * THREADS;
    u32 v = blockIdx.x * THREADS + threadIdx.x;
    u64 at = vector_at(rows, v);
    Raw next_x, next_g;
    if (v < vectors) {
        next_x = fetch(x_in, at);
        next_g = fetch(grad_in, at);
    }
#pragma unroll 1
    for (; v < vectors; v += stride) {
        const u64 here = at;
        float x[VECTOR], g[VECTOR];
        open(next_x, x);
        open(next_g, g);
        if (v + stride < vectors) {
            at = vector_at(rows, v + stride);
            next_x = fetch(x_in, at);
            next_g = fetch(grad_in, at);
        }
#if !SMALL
        u32 aside = set_aside(x, s.inside);
        if (aside != 0) {
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) g[i] = aside >> i & 1 ? 0.0f : g[i];
        }
#endif
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            // Weights from c-2 to c+2: w0 .. w4; and the same times z - z[c]: t0, t1, 0, t3, t4.
#if SMALL
            const Careful w = careful(x[i], s);
            const int row = w.row;
            const float c = w.c, d = w.d, w0 = w.down2, w1 = w.down, w2 = 1.0f, w3 = w.up, w4 = w.up2;
#else
            const float rounded = fmaf(x[i], s.inverse_q, ROUNDER);
            const float c = rounded - ROUNDER;
            const int row = __float_as_int(rounded) - ROUNDER_BITS;
            const float d = fmaf(-c, s.q, x[i]);
            const float e = power_of_two(d * s.scale);
            const float e2 = e * e, e3 = e2 * e, e4 = e2 * e2;
            // Here all are times E^2.
            const float w0 = s.g2, w1 = s.g1 * e, w2 = e2, w3 = s.g1 * e3, w4 = s.g2 * e4;
#endif
            const float w_near = w3 + w1, w_far = w4 + w0;
            const float share = reciprocal(w2 + (w_near + w_far));
            const float gs = g[i] * share;
#if BY_SLOPE
            const float4 a = *(const float4*)(fours + row * DIFFERENCE_BYTES);
#if SMALL
            const float t0 = a.x * w0, t1 = a.y * w1, t3 = a.z * w3, t4 = a.w * w4;
#else
            const float t0 = a.x, t1 = a.y * e, t3 = a.z * e3, t4 = a.w * e4;
#endif
            const float t_near = t3 + t1, t_far = t4 + t0;
            const float phi = (t_near + t_far) * share;
            const float first = fmaf(-phi, fmaf(2.0f, w4 - w0, w3 - w1), fmaf(2.0f, t4 - t0, t3 - t1));
            const float m = gs * first;
#if BY_SCALE
            const float second = fmaf(-phi, fmaf(4.0f, w_far, w_near), fmaf(4.0f, t_far, t_near));
            sums.m_d = fmaf(m, d, sums.m_d);
            sums.m_c = fmaf(m, c, sums.m_c);
            sums.second = fmaf(gs, second, sums.second);
#endif
            g[i] = m * slope;
#endif
#if BY_Z
            float* bin = nearest + row * THREADS;
#if SMALL
            if (row > 1 - K) bin[-2 * THREADS] = fmaf(gs, w0, bin[-2 * THREADS]);
            if (row > -K) bin[-THREADS] = fmaf(gs, w1, bin[-THREADS]);
            bin[0] += gs;
            if (row < K) bin[THREADS] = fmaf(gs, w3, bin[THREADS]);
            if (row < K - 1) bin[2 * THREADS] = fmaf(gs, w4, bin[2 * THREADS]);
#else
            const float b0 = bin[-2 * THREADS], b1 = bin[-THREADS], b2 = bin[0], b3 = bin[THREADS],
                        b4 = bin[2 * THREADS];
            bin[-2 * THREADS] = fmaf(gs, w0, b0);
            bin[-THREADS] = fmaf(gs, w1, b1);
            bin[0] = fmaf(gs, w2, b2);
            bin[THREADS] = fmaf(gs, w3, b3);
            bin[2 * THREADS] = fmaf(gs, w4, b4);
#endif
#endif
        }
#if !SMALL
#pragma unroll 1
        for (; aside != 0; aside &= aside - 1) {
            const int i = __ffs(aside) - 1;
            const u64 one = here * VECTOR + i;
            replace(g, i, careful_backward(load_one(x_in, one), load_one(grad_in, one), s, own, sums));
        }
#endif
#if BY_X
        store_vector(dx, here, g);
#endif
    }
    if (blockIdx.x == 0 && threadIdx.x < tail) {
        const u64 at = (u64)vectors * VECTOR + threadIdx.x;
        const float one = careful_backward(load_one(x_in, at), load_one(grad_in, at), s, own, sums);
#if BY_X
        store_one(dx, at, one);
#endif
    }

#if BINS > 0
#if BY_SCALE
    // This thread's share of the gradients of q and alpha.
    own[Z_BINS * THREADS] = slope * (sums.m_d / s.q - (sums.m_c + sums.second));
    own[(Z_BINS + 1) * THREADS] = s.q * (2.0f * sums.m_d - s.q * sums.second);
#endif
    __syncthreads();
    add_up(bins, BINS, partial + ((u64)blockIdx.y * gridDim.x + blockIdx.x) * BINS);
#endif
}
