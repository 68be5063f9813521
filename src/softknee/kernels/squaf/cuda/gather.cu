// How the effective value moves with the raw one.
__device__ __forceinline__ float rate(const void* raw, const void* anchor) {
    if (anchor == 0) return 1.0f;
    const float value = parameter(raw, 0), scale = parameter(anchor, 0), e = expf(value);
    const float grown = scale * (value > 20.0f ? value : log1pf(e));
    if (grown < NARROWEST || grown > WIDEST) return 0.0f;
    return value > 20.0f ? scale : scale * (e / (e + 1.0f));
}

// One block for each sum of the backward kernel's parts, added up in an order that does not change.
extern "C" __global__ void __launch_bounds__(THREADS)
squaf_gather(const float* partial, const void* q, const void* q_anchor, const void* alpha, const void* alpha_anchor,
             void* dq, void* dalpha, void* dz, u32 count, u32 bins) {
    __shared__ float warps[THREADS / 32];
    const u32 bin = blockIdx.x;
    float sum = 0.0f;
    for (u32 at = threadIdx.x; at < count; at += THREADS) sum += partial[(u64)at * bins + bin];
#pragma unroll
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, other);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < THREADS / 32; ++warp) sum += warps[warp];
    const u32 first = dz == 0 ? 0 : POINTS;
    if (bin < first) {
        store_one(dz, bin, sum);
    } else if (bin == first) {
        if (dq != 0) store_one(dq, 0, sum * rate(q, q_anchor));
    } else if (dalpha != 0) {
        store_one(dalpha, 0, sum * rate(alpha, alpha_anchor));
    }
}
