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
