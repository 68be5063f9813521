/* What every compiled kernel is set into: types, threads, blocks. */

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

/* GOMP_parallel of the OpenMP that torch has loaded, or NULL. */
void (*parallel)(void (*)(void *), void *, unsigned, unsigned);

typedef struct {
    void (*task)(const void *work, int64_t index);
    const void *work;
    int64_t tasks, next;
} Queue;

static void take_tasks(void *argument) {
    Queue *queue = argument;
    int64_t index;
    while ((index = __atomic_fetch_add(&queue->next, 1, __ATOMIC_RELAXED)) < queue->tasks) queue->task(queue->work, index);
}

/* Each task once, by so many threads. */
static void run(void (*task)(const void *, int64_t), const void *work, int64_t tasks, unsigned threads) {
    Queue queue = {.task = task, .work = work, .tasks = tasks};
    if (threads > tasks) threads = (unsigned)tasks;
    if (threads > 1 && parallel) parallel(take_tasks, &queue, threads, 0);
    else take_tasks(&queue);
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
