#define BY_SCALE (BY_Q || BY_ALPHA)
#define BY_SLOPE (BY_X || BY_SCALE)
#define Z_BINS (BY_Z ? POINTS : 0)
#define BINS (Z_BINS + (BY_SCALE ? 2 : 0))
#define ROWS_AT_ONCE (THREADS / TOGETHER)

// log2 of a point's weight relative to the nearest point's, j steps from it.
__device__ __forceinline__ float exponent(float j, float d, const Group& s) {
#if LAPLACIAN
    const float reach = j > 0.0f ? d + fabsf(d) : (j < 0.0f ? fabsf(d) - d : 0.0f);
    const float e = (s.alpha * LOG2_E) * (reach - fabsf(j) * s.q) + 0.0f * d;
#else
    const float e = (s.alpha * s.q * LOG2_E) * (j * (2.0f * d - j * s.q));
#endif
    // Not fminf: it would turn a NaN into a number.
    return e > 60.0f ? 60.0f : e;
}

extern "C" __global__ void __launch_bounds__(THREADS)
squaf_backward_any(const void* grad_in, const void* x_in, void* dx, float* partial, const void* q, const void* alpha,
                   const void* z, u32 elements, u32 groups, u32 g1, u32 middle, u32 g2, u32 inner) {
    extern __shared__ __align__(256) char shared[];
    float* table = (float*)shared;            // [POINTS][TOGETHER]
    float* bins = table + POINTS * TOGETHER;  // [BINS][THREADS]
    const u32 member = threadIdx.x % TOGETHER, row = threadIdx.x / TOGETHER;
    const u32 group = blockIdx.y * TOGETHER + member;
    const bool known = group < groups;
    const Group s = read_group(q, 0, alpha, 0, z, known ? group : 0);
    for (u32 at = threadIdx.x; at < POINTS * TOGETHER; at += THREADS) {
        const u32 of = blockIdx.y * TOGETHER + at % TOGETHER;
        table[at] = of < groups ? parameter(z, (u64)of * POINTS + at / TOGETHER) : 0.0f;
    }
    float* own = bins + threadIdx.x;
#if BY_Z
    for (int bin = 0; bin < POINTS; ++bin) own[bin * THREADS] = 0.0f;
#endif
    __syncthreads();
    const float* values = table + member;
    float sum_q = 0.0f, sum_alpha = 0.0f;
    const u32 stride = gridDim.x * ROWS_AT_ONCE;
#pragma unroll 1
    for (u32 element = blockIdx.x * ROWS_AT_ONCE + row; known && element < elements; element += stride) {
        const u32 above = element / inner, i = element - above * inner;
        const u32 outer = above / middle, m = above - outer * middle;
        const u64 at = ((((u64)outer * g1 + group / g2) * middle + m) * g2 + group % g2) * inner + i;
        const float x = load_one(x_in, at), g = load_one(grad_in, at);
        const bool nan = !(x == x);
        const float bounded = nan ? x : fminf(fmaxf(x, -LIMIT), LIMIT);
        const float ratio = nan ? 0.0f : fminf(fmaxf(bounded * s.inverse_q, -(float)K), (float)K);
        const float c = (ratio + ROUNDER) - ROUNDER;
        const float d = fmaf(-c, s.q, bounded);
        const int centre = (int)c + K;
#if HALF < 0
        const int first_point = 0, last_point = POINTS - 1;
#else
        const int first_point = max(centre - HALF, 0), last_point = min(centre + HALF, POINTS - 1);
#endif
        float total = 0.0f, sum_z = 0.0f, sum_j = 0.0f;
#pragma unroll 1
        for (int point = first_point; point <= last_point; ++point) {
            const float j = (float)(point - centre), w = power_of_two(exponent(j, d, s));
            total += w;
            sum_z = fmaf(w, values[point * TOGETHER], sum_z);
            sum_j = fmaf(w, j, sum_j);
        }
        const float share = 1.0f / total, phi = sum_z * share, mean = sum_j * share;
        float first = 0.0f, second = 0.0f, off_centre = 0.0f;
#pragma unroll 1
        for (int point = first_point; point <= last_point; ++point) {
            const float j = (float)(point - centre), p = power_of_two(exponent(j, d, s)) * share;
#if BY_Z
            own[point * THREADS] = fmaf(g, p, own[point * THREADS]);
#endif
#if BY_SLOPE
            const float centred = p * (values[point * TOGETHER] - phi);
#if LAPLACIAN
            first += j > 0.0f ? centred : (j < 0.0f ? -centred : 0.0f);
            off_centre += j != 0.0f ? centred : 0.0f;
            second = fmaf(centred, fabsf(j), second);
#else
            first = fmaf(centred, j - mean, first);
            second = fmaf(centred, j * j, second);
#endif
#endif
        }
#if BY_SLOPE
#if LAPLACIAN
        first += (d > 0.0f ? 1.0f : (d < 0.0f ? -1.0f : 0.0f)) * off_centre;
        const float by_x = s.alpha * first;
        const float by_q = -c * by_x - s.alpha * second;
        const float by_alpha = d * first - s.q * second;
#else
        const float by_x = 2.0f * (s.alpha * s.q) * first;
        const float by_q = 2.0f * s.alpha * ((d - c * s.q) * first - s.q * second);
        const float by_alpha = s.q * (2.0f * d * first - s.q * second);
#endif
        sum_q = fmaf(g, by_q, sum_q);
        sum_alpha = fmaf(g, by_alpha, sum_alpha);
#if BY_X
        store_one(dx, at, g * by_x);
#endif
#endif
    }
#if BINS > 0
#if BY_SCALE
    own[Z_BINS * THREADS] = sum_q;
    own[(Z_BINS + 1) * THREADS] = sum_alpha;
#endif
    __syncthreads();
#if TOGETHER == 1
    add_up(bins, BINS, partial + ((u64)blockIdx.y * gridDim.x + blockIdx.x) * BINS);
#else
    // A thread adds up the rows of one bin of its own member.
    for (u32 bin = row; bin < BINS && known; bin += ROWS_AT_ONCE) {
        float sum = 0.0f;
#pragma unroll
        for (u32 t = 0; t < ROWS_AT_ONCE; ++t) sum += bins[bin * THREADS + t * TOGETHER + member];
        partial[((u64)group * gridDim.x + blockIdx.x) * BINS + bin] = sum;
    }
#endif
#endif
}
