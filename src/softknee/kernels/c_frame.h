/* What every kernel of `c_source.py` is set into: types, threads, blocks. CHUNK and PARAMS are defined before it. */

#define BLOCK 1024

/* As c_source.TYPES has them. */
enum { FLOAT32, BFLOAT16, FLOAT16 };

INLINE float from_bfloat16(uint16_t value) { return from_bits((uint32_t)value << 16); }

INLINE uint16_t to_bfloat16(float value) {
    uint32_t bits = to_bits(value), rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    return (uint16_t)(value != value ? 0x7FC0u : rounded);
}

INLINE float from_float16(uint16_t value) {
    /* The exponent is 112 too small; a product brings it there, subnormal numbers included. */
    uint32_t size = (uint32_t)(value & 0x7FFF) << 13;
    float scaled = from_bits(size) * 5.192296858534828e33f;
    uint32_t bits = size >= 0x0F800000u ? size | 0x7F800000u : to_bits(scaled);
    return from_bits(bits | (uint32_t)(value & 0x8000) << 16);
}

INLINE uint16_t to_float16(float value) {
    uint32_t size = to_bits(value) & 0x7FFFFFFF, sign = (to_bits(value) >> 16) & 0x8000;
    uint32_t normal = (size - 0x38000000u + 0xFFF + ((size >> 13) & 1)) >> 13;
    uint32_t subnormal = to_bits(from_bits(size) + 0.5f) - 0x3F000000u; /* the sum rounds at float16's last bit */
    uint32_t bits = size < 0x38800000u ? subnormal : normal;
    bits = size >= 0x477FF000u ? 0x7C00u : bits;
    return (uint16_t)((size > 0x7F800000u ? 0x7E00u : bits) | sign);
}

/* A tensor in the order of its storage is (outer, channels, inner): rows of `inner` elements, one after another, of which
   each has a channel. A piece is a part of a row, of CHUNK elements at most. */
typedef struct Work {
    const void *g, *x;
    void *y;
    double *sums; /* of each parameter, one per piece */
    int64_t rows, channels, inner, pieces, per_task, tasks, next; /* pieces of a row */
    int type;
    unsigned steps; /* a bit for each parameter: whether it has a number for each channel */
    const float *values[PARAMS + 1];
    void (*piece)(const struct Work *, int64_t index, int64_t start, int64_t end, const float *params);
} Work;

/* GOMP_parallel of the OpenMP that torch has loaded, or NULL. */
void (*parallel)(void (*)(void *), void *, unsigned, unsigned);

static void take_tasks(void *argument) {
    Work *work = argument;
    float params[PARAMS + 1];
    int64_t task, all = work->rows * work->pieces;
    while ((task = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->tasks) {
        int64_t last = (task + 1) * work->per_task < all ? (task + 1) * work->per_task : all;
        for (int64_t index = task * work->per_task; index < last; ++index) {
            int64_t row = index / work->pieces, channel = row % work->channels, part = index % work->pieces * CHUNK;
            int64_t start = row * work->inner, end = work->inner - part < CHUNK ? work->inner : part + CHUNK;
            for (int i = 0; i < PARAMS; ++i) params[i] = work->values[i][work->steps >> i & 1 ? channel : 0];
            work->piece(work, index, start + part, start + end, params);
        }
    }
}

static void run(Work *work, unsigned threads) {
    work->pieces = (work->inner + CHUNK - 1) / CHUNK;
    work->per_task = work->inner < CHUNK ? CHUNK / work->inner : 1;
    work->tasks = (work->rows * work->pieces + work->per_task - 1) / work->per_task;
    if (threads > work->tasks) threads = (unsigned)work->tasks;
    if (threads > 1 && parallel) parallel(take_tasks, work, threads, 0);
    else take_tasks(work);
}

/* Add up the sums over the pieces of each channel, in their order: parameter by parameter, the totals of all channels
   then stand in the first places. */
static void add_up(Work *work, int sums) {
    int64_t all = work->rows * work->pieces, step = work->channels * work->pieces;
    for (int i = 0; i < sums; ++i)
        for (int64_t channel = 0; channel < work->channels; ++channel) {
            double total = 0;
            for (int64_t first = channel * work->pieces; first < all; first += step)
                for (int64_t part = 0; part < work->pieces; ++part) total += work->sums[i * all + first + part];
            work->sums[i * work->channels + channel] = total;
        }
}

/* The elements of a block that are computed: whole vectors. */
INLINE int whole(int count) { return (count + 15) & ~15; }

/* A block as floats: in place where it can be, else in the buffer, filled up with zeros. */
static const float *load(int type, const void *source, int64_t start, float *buffer, int count) {
    const uint16_t *halves = (const uint16_t *)source + start;
    const float *floats = (const float *)source + start;
    if (type == FLOAT32 && count == whole(count)) return floats;
    if (type == FLOAT32) memcpy(buffer, floats, count * sizeof(float));
    else if (type == BFLOAT16) for (int i = 0; i < count; ++i) buffer[i] = from_bfloat16(halves[i]);
    else for (int i = 0; i < count; ++i) buffer[i] = from_float16(halves[i]);
    for (int i = count; i < whole(count); ++i) buffer[i] = 0.0f;
    return buffer;
}

/* Where the results of a block can be written as floats. */
static float *place(int type, void *target, int64_t start, float *buffer, int count) {
    return type == FLOAT32 && count == whole(count) && target ? (float *)target + start : buffer;
}

static void store(int type, void *target, int64_t start, const float *buffer, int count) {
    uint16_t *halves = (uint16_t *)target + start;
    float *floats = (float *)target + start;
    if (!target || floats == buffer) return;
    if (type == FLOAT32) memcpy(floats, buffer, count * sizeof(float));
    else if (type == BFLOAT16) for (int i = 0; i < count; ++i) halves[i] = to_bfloat16(buffer[i]);
    else for (int i = 0; i < count; ++i) halves[i] = to_float16(buffer[i]);
}
