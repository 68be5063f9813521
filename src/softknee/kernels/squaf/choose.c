
/* The points that SQUAF-P draws and SQUAF-S takes, after soft.c: values or symbols in one pass. SQUAF-P draws one of five
   points with Gaussian weights by a number in [0, 1), which is hashed from a seed and the place of an element in memory,
   as in symbols.py. SQUAF-S takes the nearest point. */

typedef struct {
    Table table;
    int32_t *symbols;     /* NULL for values */
    const int64_t *seeds; /* NULL for the nearest point */
    int64_t each;         /* elements that share a seed */
} Choice;

INLINE uint32_t mix(uint32_t h) {
    h = (h ^ h >> 16) * 0x7FEB352Du;
    h = (h ^ h >> 15) * 0x846CA68Bu;
    return h ^ h >> 16;
}

/* The numbers that elements of a group are drawn by. */
static void draw(const Choice *w, int64_t group, int64_t e, int count, float *u) {
    for (int done = 0; done < count;) {
        int64_t run, place = place_in(&w->table, group, e + done, &run), seed = w->seeds[place / w->each];
        place %= w->each;
        int64_t alike = w->each - place, low = (int64_t)1 << 32; /* as long as neither the seed nor the upper half changes */
        if (alike > low - place % low) alike = low - place % low;
        if (alike > run) alike = run;
        int some = alike < count - done ? (int)alike : count - done;
        uint32_t first = (uint32_t)place + (uint32_t)seed, high = (uint32_t)(seed >> 32) ^ mix((uint32_t)(place >> 32));
        #pragma omp simd
        for (int i = 0; i < some; ++i) u[done + i] = (float)(mix(mix(first + (uint32_t)i) ^ high) >> 8) * 0x1p-24f;
        done += some;
    }
    for (int i = count; i < whole(count); ++i) u[i] = 0.0f;
}

static void choose_task(const void *work, int64_t index) {
    const Choice *w = work;
    const Table *t = &w->table;
    int64_t group = index / t->parts, start = index % t->parts * t->part, end = end_of(t, start);
    const float k = (float)(t->n / 2);
    float u[SPAN];
    int32_t symbols[SPAN];
    Block b;
    for (; start < end; start += SPAN) {
        load_block(t, group, start, end, &b);
        if (w->seeds) {
            const float q = b.q, scale = b.alpha * q, fall = exp_below(-2.0f * scale * q);
            draw(w, group, start, b.count, u);
            #pragma omp simd
            for (int i = 0; i < whole(b.count); ++i) {
                Weights v = weights_of(b.d[i], b.c[i], q, scale, fall, k);
                float one = v.left2 + v.left1, two = one + 1.0f, three = two + v.right1, at = u[i] * (three + v.right2);
                float steps = pick(v.left2 <= at, -1.0f, -2.0f) + pick(one <= at, 1.0f, 0.0f);
                b.c[i] += steps + pick(two <= at, 1.0f, 0.0f) + pick(three <= at, 1.0f, 0.0f);
            }
        }
        #pragma omp simd
        for (int i = 0; i < whole(b.count); ++i) symbols[i] = place_of(b.c[i], k, 0, t->n);
        for (int i = 0; w->symbols && i < b.count; ++i) if (b.x[i] != b.x[i]) symbols[i] = -1;
        for (int i = 0; !w->symbols && i < b.count; ++i) b.out[i] = b.x[i] == b.x[i] ? b.z[symbols[i]] : b.x[i];
        store_run(t, group, start, b.out, b.count);
        for (int done = 0; done < b.count && w->symbols;) {
            int64_t run, at = place_in(t, group, start + done, &run);
            int some = run < b.count - done ? (int)run : b.count - done;
            memcpy(w->symbols + at, symbols + done, some * sizeof(int32_t));
            done += some;
        }
    }
}

/* Of `numbers` the first two count; y or symbols is NULL. */
void squaf_choose(const void *x, void *y, int32_t *symbols, const float *q, const float *alpha, const float *z,
                  const int64_t *seeds, int64_t each, const int64_t *sizes, const int *numbers, unsigned threads) {
    Choice w = {.table = {.x = x, .y = y, .q = q, .alpha = alpha, .z = z}, .symbols = symbols, .seeds = seeds, .each = each};
    Table *t = &w.table;
    t->outer = sizes[0], t->g1 = sizes[1], t->middle = sizes[2], t->g2 = sizes[3], t->inner = sizes[4], t->part = sizes[5];
    t->type = numbers[0], t->n = numbers[1];
    t->parts = (t->outer * t->middle * t->inner + t->part - 1) / t->part;
    run(choose_task, &w, t->g1 * t->g2 * t->parts, threads);
}
