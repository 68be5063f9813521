/* SQUAF on a CPU, after c_math.h and c_frame.h: phi and its gradients in one pass each, with the formulas of plain.py.

   x is flat, laid out as (outer, g1, middle, g2, inner), with a row of parameters for each of the g1 g2 groups. A task is a
   part of the elements of one group, so that its sums do not depend on the other groups. Of a window `half` points are
   kept on each side of the nearest one, all of them where it is -1. Arithmetic is float32. */

#define SPAN 256 /* elements that are computed at a time: what is kept of them fits into the nearest cache */
#define LIMIT 1.8446744073709552e19f /* infinities become this, so that no 0 * inf arises */
#define CEILING 41.5f /* exponents are at most 0 but for the rounding of x/q, which a huge alpha magnifies */
#define COPIES 4 /* of the sums of z: neighbours that add to one number would wait for each other */
#define MANY 256 /* numbers, of whose sums one copy will do */
#define ENDS 2 /* places before the first and behind the last number of z, for points beyond the grid */
#define FEW 64 /* numbers, with those beyond the grid, that four registers of AVX-512 hold */

enum { BY_X = 1, BY_Q = 2, BY_ALPHA = 4, BY_Z = 8 };

typedef struct {
    const void *g, *x;
    void *y;
    const float *q, *alpha, *z; /* of each group; z has n numbers */
    double *sums;               /* of each task: by q, by alpha, by the n numbers of z */
    int64_t outer, g1, middle, g2, inner, part, parts; /* elements of a part, parts of a group */
    int type, n, half, laplacian, wanted;
} Table;

/* A block of one group's elements: x and g, the number c of the nearest point and the distance d = x - c q from it; and
   what comes of it. */
typedef struct {
    int count;
    float q, alpha;
    const float *z, *x, *g;
    float in[SPAN], grad[SPAN], c[SPAN], d[SPAN];
    float value[SPAN], weight[SPAN], mean[SPAN], out[SPAN], by_q[SPAN], by_alpha[SPAN], terms[7][SPAN];
} Block;

/* The sums over the elements that are nearest to one point: of what they add to z there and at two points on each side,
   to q and to alpha; a vector. */
typedef double Sums[8] __attribute__((aligned(64)));
enum { OF_Q = 5, OF_ALPHA };

typedef struct { float left2, left1, right1, right2; } Weights; /* relative to the nearest point's */

/* Where element number e of a group lies, and how many of those that follow lie beside it. */
static int64_t place_in(const Table *t, int64_t group, int64_t e, int64_t *run) {
    int64_t inner = e, middle = 0, outer = 0;
    if (e >= t->inner) { /* three divisions, which are slow */
        int64_t rest = e / t->inner;
        inner = e % t->inner, middle = rest % t->middle, outer = rest / t->middle;
    }
    *run = t->inner - inner;
    return (((outer * t->g1 + group / t->g2) * t->middle + middle) * t->g2 + group % t->g2) * t->inner + inner;
}

/* Elements of a group as floats, filled up with zeros. */
static const float *load_run(const Table *t, const void *source, int64_t group, int64_t e, float *buffer, int count) {
    int64_t run, at = place_in(t, group, e, &run);
    if (run >= count) return load(t->type, source, at, buffer, count);
    for (int done = 0; done < count;) {
        at = place_in(t, group, e + done, &run);
        int some = run < count - done ? (int)run : count - done;
        if (t->type == FLOAT32) memcpy(buffer + done, (const float *)source + at, some * sizeof(float));
        else for (int i = 0; i < some; ++i) {
            uint16_t half = ((const uint16_t *)source)[at + i];
            buffer[done + i] = t->type == BFLOAT16 ? from_bfloat16(half) : from_float16(half);
        }
        done += some;
    }
    for (int i = count; i < whole(count); ++i) buffer[i] = 0.0f;
    return buffer;
}

static void store_run(const Table *t, int64_t group, int64_t e, const float *buffer, int count) {
    for (int done = 0; done < count && t->y;) {
        int64_t run, at = place_in(t, group, e + done, &run);
        int some = run < count - done ? (int)run : count - done;
        store(t->type, t->y, at, buffer + done, some);
        done += some;
    }
}

static void load_block(const Table *t, int64_t group, int64_t e, int64_t end, Block *b) {
    const float k = (float)(t->n / 2), q = t->q[group], leading = from_bfloat16(to_bfloat16(q));
    b->count = end - e < SPAN ? (int)(end - e) : SPAN;
    b->q = q, b->alpha = t->alpha[group], b->z = t->z + group * t->n;
    b->x = load_run(t, t->x, group, e, b->in, b->count);
    if (t->g) b->g = load_run(t, t->g, group, e, b->grad, b->count);
    #pragma omp simd
    for (int i = 0; i < whole(b->count); ++i) {
        float x = clip(b->x[i], -LIMIT, LIMIT), ratio = x / q;
        ratio = pick(ratio == ratio, ratio, 0.0f); /* a NaN must not become an index; it reaches the result through d */
        ratio = pick(ratio < -k, -k, pick(ratio > k, k, ratio));
        float c = (ratio + 12582912.0f) - 12582912.0f;
        b->c[i] = c;
        b->d[i] = (x - c * leading) - c * (q - leading); /* the products are exact */
    }
}

INLINE int place_of(float c, float k, int j, int n) {
    int place = (int)(c + k) + j;
    return place < 0 ? 0 : place < n ? place : n - 1;
}

/* -- five points with Gaussian weights, from two exponentials: w(+-2) = w(+-1)^2 e^(-2h) ---------------------- */

INLINE int room(int n) { return n + 2 * ENDS < FEW ? FEW : n + 2 * ENDS; }

static void fill_table(const Table *t, int64_t group, float *table) {
    memset(table, 0, room(t->n) * sizeof(float));
    memcpy(table + ENDS, t->z + group * t->n, t->n * sizeof(float));
}

/* The numbers of z at the five points of each element, from a table with ENDS zeros on either side. */
static void look_up_any(const float *table, float k, const Block *b, float (*z)[SPAN]) {
    #pragma omp simd
    for (int i = 0; i < whole(b->count); ++i) {
        const float *first = table + (int)(b->c[i] + k);
        z[0][i] = first[0], z[1][i] = first[1], z[2][i] = first[2], z[3][i] = first[3], z[4][i] = first[4];
    }
}

#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
/* The same for a small table: a permutation of registers is several times as quick as loads from 16 places. */
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Whole __attribute__((vector_size(64)));

static void look_up(const float *table, int size, float k, const Block *b, float (*z)[SPAN]) {
    if (size > FEW) { look_up_any(table, k, b, z); return; }
    Floats part[FEW / 16];
    memcpy(part, table, sizeof part);
    for (int i = 0; i < whole(b->count); i += 16) {
        Floats c;
        memcpy(&c, b->c + i, sizeof c);
        Whole place = __builtin_convertvector(c + k, Whole);
        for (int j = 0; j < 5; ++j) {
            Whole at = place + j, upper = (at & 32) != 0;
            Whole low = (Whole)__builtin_shuffle(part[0], part[1], at), high = (Whole)__builtin_shuffle(part[2], part[3], at);
            Whole chosen = (high & upper) | (low & ~upper);
            memcpy(z[j] + i, &chosen, sizeof chosen);
        }
    }
}
#else
static void look_up(const float *table, int size, float k, const Block *b, float (*z)[SPAN]) {
    look_up_any(table, k, b, z);
}
#endif

INLINE Weights weights_of(float d, float c, float q, float scale, float fall, float k) {
    float up = pick(c < k, exp_below(minimum(scale * (2.0f * d - q), CEILING)), 0.0f);
    float down = pick(c > -k, exp_below(minimum(scale * (-2.0f * d - q), CEILING)), 0.0f);
    float up2 = pick(c < k - 1.0f, up * up * fall, 0.0f), down2 = pick(c > 1.0f - k, down * down * fall, 0.0f);
    Weights w = {down2, down, up, up2};
    return w;
}

static void five_values(const Table *t, const Block *b, const float *table, float *out) {
    const float k = (float)(t->n / 2), q = b->q, scale = b->alpha * q, fall = exp_below(-2.0f * scale * q);
    float z[5][SPAN];
    look_up(table, t->n + 2 * ENDS, k, b, z);
    #pragma omp simd
    for (int i = 0; i < whole(b->count); ++i) {
        Weights w = weights_of(b->d[i], b->c[i], q, scale, fall, k);
        float total = z[2][i] + (w.right1 * z[3][i] + w.left1 * z[1][i]) + (w.right2 * z[4][i] + w.left2 * z[0][i]);
        out[i] = total / (1.0f + (w.right1 + w.left1) + (w.right2 + w.left2));
    }
}

static void five_slopes(const Table *t, Block *b, const float *table) {
    const float k = (float)(t->n / 2), q = b->q, alpha = b->alpha, scale = alpha * q;
    const float fall = exp_below(-2.0f * scale * q);
    float z[5][SPAN];
    look_up(table, t->n + 2 * ENDS, k, b, z);
    #pragma omp simd
    for (int i = 0; i < whole(b->count); ++i) {
        float c = b->c[i], d = b->d[i], g = b->g[i];
        Weights w = weights_of(d, c, q, scale, fall, k);
        float p2 = 1.0f / (1.0f + (w.right1 + w.left1) + (w.right2 + w.left2));
        float p0 = w.left2 * p2, p1 = w.left1 * p2, p3 = w.right1 * p2, p4 = w.right2 * p2;
        float z0 = z[0][i], z1 = z[1][i], z2 = z[2][i], z3 = z[3][i], z4 = z[4][i];
        float phi = p2 * z2 + (p1 * z1 + p3 * z3) + (p0 * z0 + p4 * z4), mean = (p3 - p1) + 2.0f * (p4 - p0);
        float e0 = p0 * (z0 - phi), e1 = p1 * (z1 - phi), e2 = p2 * (z2 - phi), e3 = p3 * (z3 - phi), e4 = p4 * (z4 - phi);
        float first = (e3 * (1.0f - mean) - e1 * (1.0f + mean)) - e2 * mean;
        first += e4 * (2.0f - mean) - e0 * (2.0f + mean);
        float second = (e1 + e3) + 4.0f * (e0 + e4);
        b->out[i] = g * (2.0f * scale * first);
        b->terms[0][i] = g * p0, b->terms[1][i] = g * p1, b->terms[2][i] = g * p2;
        b->terms[3][i] = g * p3, b->terms[4][i] = g * p4;
        b->terms[OF_Q][i] = g * (2.0f * alpha * ((d - c * q) * first - q * second));
        b->terms[OF_ALPHA][i] = g * (q * (2.0f * d * first - q * second));
    }
}

/* Adds the terms of each element to the sums of its nearest point, in turns to some copies of them, 1, 2 or 4. */
#ifdef __AVX2__
typedef float Terms __attribute__((vector_size(32)));
typedef double Wide __attribute__((vector_size(64)));
#ifdef __clang__
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t Places __attribute__((vector_size(32)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (Places){__VA_ARGS__})
#endif

/* Columns into rows, in three steps: numbers, pairs and halves change places. */
INLINE void transpose(Terms *a) {
    Terms b[8], c[8];
    for (int i = 0; i < 8; i += 2) {
        b[i] = SHUFFLE(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[i + 1] = SHUFFLE(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; ++j) {
            c[i + 2 * j] = SHUFFLE(b[i + j], b[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            c[i + 2 * j + 1] = SHUFFLE(b[i + j], b[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; ++i) {
        a[i] = SHUFFLE(c[i], c[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        a[i + 4] = SHUFFLE(c[i], c[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

static void add_terms(const Table *t, const Block *b, Sums *sums, int copies) {
    const float k = (float)(t->n / 2);
    for (int i = 0; i < b->count; i += 8) { /* those behind the last add 0 */
        Terms rows[8];
        for (int j = 0; j < 7; ++j) memcpy(&rows[j], &b->terms[j][i], sizeof rows[j]);
        rows[7] = rows[6]; /* no one reads its sum */
        transpose(rows);
        #pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) {
            Wide *sum = (Wide *)sums[(j & (copies - 1)) * t->n + (int)(b->c[i + j] + k)];
            *sum += __builtin_convertvector(rows[j], Wide);
        }
    }
}
#else
static void add_terms(const Table *t, const Block *b, Sums *sums, int copies) {
    const float k = (float)(t->n / 2);
    for (int i = 0; i < b->count; ++i) {
        double *sum = sums[(i & (copies - 1)) * t->n + (int)(b->c[i] + k)];
        for (int j = 0; j <= OF_ALPHA; ++j) sum[j] += b->terms[j][i];
    }
}
#endif

/* -- any window, and all points, one after the other ------------------------------------------------------ */

/* The weight of the kept point number `number`, its place in the table, and how far it is from the nearest one. */
INLINE float kept(const Table *t, const Block *b, int i, int number, int laplacian, int *place, float *steps) {
    const float k = (float)(t->n / 2), q = b->q, alpha = b->alpha, c = b->c[i], d = b->d[i];
    float j = (float)number - (t->half < 0 ? k + c : (float)t->half), at = c + j, exponent;
    if (laplacian) {
        float reach = pick(j > 0.0f, d + absolute(d), pick(j < 0.0f, absolute(d) - d, 0.0f));
        exponent = alpha * (reach - absolute(j) * q);
    } else exponent = (alpha * q) * (j * (2.0f * d - j * q));
    *steps = j;
    *place = place_of(at, k, 0, t->n);
    return pick((at >= -k) & (at <= k), exp_below(minimum(exponent, CEILING)), 0.0f);
}

INLINE void any_values(const Table *t, Block *b, float *out, int laplacian) {
    const int points = t->half < 0 ? t->n : 2 * t->half + 1;
    for (int i = 0; i < whole(b->count); ++i) b->value[i] = b->weight[i] = b->mean[i] = 0.0f;
    for (int number = 0; number < points; ++number)
        #pragma omp simd
        for (int i = 0; i < whole(b->count); ++i) {
            int place;
            float j, w = kept(t, b, i, number, laplacian, &place, &j);
            b->value[i] += w * b->z[place], b->weight[i] += w, b->mean[i] += w * j;
        }
    for (int i = 0; i < whole(b->count); ++i) out[i] = b->value[i] / b->weight[i], b->mean[i] /= b->weight[i];
}

INLINE void any_slopes(const Table *t, Block *b, double *copies, int stride, int laplacian) {
    const float q = b->q, alpha = b->alpha;
    float *second = b->terms[0], *upper = b->terms[1], *off = b->terms[2], *terms = b->terms[3];
    int places[SPAN];
    any_values(t, b, b->value, laplacian);
    for (int i = 0; i < whole(b->count); ++i) second[i] = upper[i] = off[i] = 0.0f;
    for (int number = 0; number < (t->half < 0 ? t->n : 2 * t->half + 1); ++number) {
        double total = 0;
        #pragma omp simd
        for (int i = 0; i < whole(b->count); ++i) {
            float j, w = kept(t, b, i, number, laplacian, &places[i], &j), p = w / b->weight[i];
            float e = pick(w == 0.0f, 0.0f, p * (b->z[places[i]] - b->value[i]));
            float side = pick(j > 0.0f, 1.0f, pick(j < 0.0f, -1.0f, 0.0f));
            second[i] += e * (laplacian ? absolute(j) : j * j);
            upper[i] += e * (laplacian ? side : j - b->mean[i]);
            off[i] += e * absolute(side);
            terms[i] = pick(w == 0.0f, 0.0f, b->g[i] * p);
        }
        if (t->half >= 0 && t->wanted & BY_Z)
            for (int i = 0; i < b->count; ++i) copies[i % COPIES * stride + ENDS + places[i]] += terms[i];
        else if (t->wanted & BY_Z) { /* all add to one number */
            #pragma omp simd reduction(+:total)
            for (int i = 0; i < b->count; ++i) total += terms[i];
            copies[ENDS + number] += total;
        }
    }
    #pragma omp simd
    for (int i = 0; i < whole(b->count); ++i) {
        float c = b->c[i], d = b->d[i], g = b->g[i], first = upper[i], s = second[i];
        if (laplacian) {
            first += pick(d > 0.0f, 1.0f, pick(d < 0.0f, -1.0f, 0.0f)) * off[i]; /* exactly 0 beyond the grid */
            b->out[i] = g * (alpha * first);
            b->by_q[i] = g * (-c * (alpha * first) - alpha * s);
            b->by_alpha[i] = g * (d * first - q * s);
        } else {
            b->out[i] = g * (2.0f * (alpha * q) * first);
            b->by_q[i] = g * (2.0f * alpha * ((d - c * q) * first - q * s));
            b->by_alpha[i] = g * (q * (2.0f * d * first - q * s));
        }
    }
}

static void gaussian_values(const Table *t, Block *b, float *out) { any_values(t, b, out, 0); }
static void laplacian_values(const Table *t, Block *b, float *out) { any_values(t, b, out, 1); }
static void gaussian_slopes(const Table *t, Block *b, double *copies, int stride) { any_slopes(t, b, copies, stride, 0); }
static void laplacian_slopes(const Table *t, Block *b, double *copies, int stride) { any_slopes(t, b, copies, stride, 1); }

/* -- a part of a group ------------------------------------------------------------------------------------ */

static int64_t end_of(const Table *t, int64_t start) {
    int64_t all = t->outer * t->middle * t->inner;
    return start + t->part < all ? start + t->part : all;
}

static void forward_task(const void *work, int64_t index) {
    const Table *t = work;
    int64_t group = index / t->parts, start = index % t->parts * t->part, end = end_of(t, start);
    float table[room(t->n)];
    Block b;
    fill_table(t, group, table);
    for (; start < end; start += SPAN) {
        load_block(t, group, start, end, &b);
        if (t->laplacian) laplacian_values(t, &b, b.out);
        else if (t->half == 2) five_values(t, &b, table, b.out);
        else gaussian_values(t, &b, b.out);
        store_run(t, group, start, b.out, b.count);
    }
}

static void backward_task(const void *work, int64_t index) {
    const Table *t = work;
    int64_t group = index / t->parts, start = index % t->parts * t->part, end = end_of(t, start);
    const int five = t->half == 2 && !t->laplacian, stride = t->n + 2 * ENDS, copies = t->n > MANY ? 1 : COPIES;
    double of_z[COPIES * stride], *sums = t->sums + index * (t->n + 2), by_q = 0, by_alpha = 0;
    Sums near[five ? copies * t->n : 1];
    float table[room(t->n)];
    Block b;
    fill_table(t, group, table);
    memset(of_z, 0, sizeof of_z);
    memset(near, 0, sizeof near);
    for (; start < end; start += SPAN) {
        load_block(t, group, start, end, &b);
        if (five) five_slopes(t, &b, table);
        else if (t->laplacian) laplacian_slopes(t, &b, of_z, stride);
        else gaussian_slopes(t, &b, of_z, stride);
        store_run(t, group, start, b.out, b.count);
        if (five && t->wanted & ~BY_X) add_terms(t, &b, near, copies);
        if (five) continue;
        #pragma omp simd reduction(+:by_q, by_alpha)
        for (int i = 0; i < b.count; ++i) by_q += b.by_q[i], by_alpha += b.by_alpha[i];
    }
    for (int i = 0; five && i < copies * t->n; ++i) {
        for (int j = 0; j < 5; ++j) of_z[i % t->n + j] += near[i][j];
        by_q += near[i][OF_Q], by_alpha += near[i][OF_ALPHA];
    }
    sums[0] = by_q, sums[1] = by_alpha;
    for (int i = 0; i < t->n; ++i) {
        const double *sum = of_z + ENDS + i;
        sums[2 + i] = (sum[0] + sum[stride]) + (sum[2 * stride] + sum[3 * stride]);
    }
}

/* `sizes` are outer, g1, middle, g2, inner, and how many elements of a group make a task; `numbers` the type of x, the
   points of a table, the points kept on each side, whether weights are Laplacian, what is wanted. Without g values are
   computed, and with it gradients: `sums` has room for n + 2 numbers per task, and the totals of the groups stand in the
   first ones at the end. Of one group q and alpha may be raw: then they have an anchor. */
void squaf(const void *g, const void *x, void *y, const float *q, const float *q_anchor, const float *alpha,
           const float *alpha_anchor, const float *z, double *sums, const int64_t *sizes, const int *numbers,
           unsigned threads) {
    Table t = {.g = g, .x = x, .y = y, .q = q, .alpha = alpha, .z = z, .sums = sums};
    float lifted_q, lifted_alpha;
    if (q_anchor) lifted_q = lift_positive(*q, *q_anchor), t.q = &lifted_q;
    if (alpha_anchor) lifted_alpha = lift_positive(*alpha, *alpha_anchor), t.alpha = &lifted_alpha;
    t.outer = sizes[0], t.g1 = sizes[1], t.middle = sizes[2], t.g2 = sizes[3], t.inner = sizes[4], t.part = sizes[5];
    t.type = numbers[0], t.n = numbers[1], t.half = numbers[2], t.laplacian = numbers[3], t.wanted = numbers[4];
    int64_t groups = t.g1 * t.g2, row = t.n + 2;
    t.parts = (t.outer * t.middle * t.inner + t.part - 1) / t.part;
    run(g ? backward_task : forward_task, &t, groups * t.parts, threads);
    for (int64_t group = 0; g && group < groups; ++group)
        for (int64_t i = 0; i < row; ++i) {
            double total = 0;
            for (int64_t part = 0; part < t.parts; ++part) total += sums[(group * t.parts + part) * row + i];
            sums[group * row + i] = total;
        }
    if (g && q_anchor) sums[0] *= lift_slope_positive(*q, *q_anchor);
    if (g && alpha_anchor) sums[1] *= lift_slope_positive(*alpha, *alpha_anchor);
}
