/* SQUAF on a CPU, after c_math.h and c_frame.h: phi and its gradients in one pass each, with the formulas of plain.py.

   x is flat, laid out as (outer, g1, middle, g2, inner), with a row of parameters for each of the g1 g2 groups. A task is a
   part of the elements of one group, so that its sums do not depend on the other groups. Of a window `half` points are
   kept on each side of the nearest one, all of them where it is -1. Arithmetic is float32. */

#define LIMIT 1.8446744073709552e19f /* infinities become this, so that no 0 * inf arises */
#define CEILING 41.5f /* exponents are at most 0 but for the rounding of x/q, which a huge alpha magnifies */
#define COPIES 4 /* of the sums of z: neighbours that add to one number would wait for each other */
#define ENDS 2 /* places before the first and behind the last of the sums of z, for points beyond the grid */

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
    float in[BLOCK], grad[BLOCK], c[BLOCK], d[BLOCK];
    float value[BLOCK], weight[BLOCK], mean[BLOCK], out[BLOCK], by_q[BLOCK], by_alpha[BLOCK], terms[5][BLOCK];
} Block;

typedef struct { float left2, left1, right1, right2; } Weights; /* relative to the nearest point's */

/* Where element number e of a group lies, and how many of those that follow lie beside it. */
static int64_t place_in(const Table *t, int64_t group, int64_t e, int64_t *run) {
    int64_t inner = e % t->inner, rest = e / t->inner, middle = rest % t->middle, outer = rest / t->middle;
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
    b->count = end - e < BLOCK ? (int)(end - e) : BLOCK;
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

INLINE Weights weights_of(float d, float c, float q, float scale, float fall, float k) {
    float up = pick(c < k, exp_below(minimum(scale * (2.0f * d - q), CEILING)), 0.0f);
    float down = pick(c > -k, exp_below(minimum(scale * (-2.0f * d - q), CEILING)), 0.0f);
    float up2 = pick(c < k - 1.0f, up * up * fall, 0.0f), down2 = pick(c > 1.0f - k, down * down * fall, 0.0f);
    Weights w = {down2, down, up, up2};
    return w;
}

static void five_values(const Table *t, const Block *b, float *out) {
    const float k = (float)(t->n / 2), q = b->q, scale = b->alpha * q, fall = exp_below(-2.0f * scale * q), *z = b->z;
    const int n = t->n;
    #pragma omp simd
    for (int i = 0; i < whole(b->count); ++i) {
        float c = b->c[i];
        Weights w = weights_of(b->d[i], c, q, scale, fall, k);
        float total = z[place_of(c, k, 0, n)];
        total += w.right1 * z[place_of(c, k, 1, n)] + w.left1 * z[place_of(c, k, -1, n)];
        total += w.right2 * z[place_of(c, k, 2, n)] + w.left2 * z[place_of(c, k, -2, n)];
        out[i] = total / (1.0f + (w.right1 + w.left1) + (w.right2 + w.left2));
    }
}

static void five_slopes(const Table *t, Block *b) {
    const float k = (float)(t->n / 2), q = b->q, alpha = b->alpha, scale = alpha * q, *z = b->z;
    const float fall = exp_below(-2.0f * scale * q);
    const int n = t->n;
    #pragma omp simd
    for (int i = 0; i < whole(b->count); ++i) {
        float c = b->c[i], d = b->d[i], g = b->g[i];
        Weights w = weights_of(d, c, q, scale, fall, k);
        float p2 = 1.0f / (1.0f + (w.right1 + w.left1) + (w.right2 + w.left2));
        float p0 = w.left2 * p2, p1 = w.left1 * p2, p3 = w.right1 * p2, p4 = w.right2 * p2;
        float z0 = z[place_of(c, k, -2, n)], z1 = z[place_of(c, k, -1, n)], z2 = z[place_of(c, k, 0, n)];
        float z3 = z[place_of(c, k, 1, n)], z4 = z[place_of(c, k, 2, n)];
        float phi = p2 * z2 + (p1 * z1 + p3 * z3) + (p0 * z0 + p4 * z4), mean = (p3 - p1) + 2.0f * (p4 - p0);
        float e0 = p0 * (z0 - phi), e1 = p1 * (z1 - phi), e2 = p2 * (z2 - phi), e3 = p3 * (z3 - phi), e4 = p4 * (z4 - phi);
        float first = (e3 * (1.0f - mean) - e1 * (1.0f + mean)) - e2 * mean;
        first += e4 * (2.0f - mean) - e0 * (2.0f + mean);
        float second = (e1 + e3) + 4.0f * (e0 + e4);
        b->out[i] = g * (2.0f * scale * first);
        b->by_q[i] = g * (2.0f * alpha * ((d - c * q) * first - q * second));
        b->by_alpha[i] = g * (q * (2.0f * d * first - q * second));
        b->terms[0][i] = g * p0, b->terms[1][i] = g * p1, b->terms[2][i] = g * p2;
        b->terms[3][i] = g * p3, b->terms[4][i] = g * p4;
    }
}

/* What each element adds to the sums of z, of which element i takes copy i % COPIES; they lie `stride` apart. */
static void add_five(const Table *t, const Block *b, double *copies, int stride) {
    const float k = (float)(t->n / 2);
    for (int i = 0; i < b->count; ++i) {
        double *first = copies + i % COPIES * stride + ENDS + (int)(b->c[i] + k) - 2;
        for (int j = 0; j < 5; ++j) first[j] += b->terms[j][i];
    }
}

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
    int places[BLOCK];
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
    Block b;
    for (; start < end; start += BLOCK) {
        load_block(t, group, start, end, &b);
        if (t->laplacian) laplacian_values(t, &b, b.out);
        else if (t->half == 2) five_values(t, &b, b.out);
        else gaussian_values(t, &b, b.out);
        store_run(t, group, start, b.out, b.count);
    }
}

static void backward_task(const void *work, int64_t index) {
    const Table *t = work;
    int64_t group = index / t->parts, start = index % t->parts * t->part, end = end_of(t, start);
    const int stride = t->n + 2 * ENDS;
    double copies[COPIES * stride], *sums = t->sums + index * (t->n + 2), by_q = 0, by_alpha = 0;
    Block b;
    memset(copies, 0, sizeof copies);
    for (; start < end; start += BLOCK) {
        load_block(t, group, start, end, &b);
        if (t->laplacian) laplacian_slopes(t, &b, copies, stride);
        else if (t->half != 2) gaussian_slopes(t, &b, copies, stride);
        else {
            five_slopes(t, &b);
            if (t->wanted & BY_Z) add_five(t, &b, copies, stride);
        }
        store_run(t, group, start, b.out, b.count);
        #pragma omp simd reduction(+:by_q, by_alpha)
        for (int i = 0; i < b.count; ++i) by_q += b.by_q[i], by_alpha += b.by_alpha[i];
    }
    sums[0] = by_q, sums[1] = by_alpha;
    for (int i = 0; i < t->n; ++i) {
        const double *sum = copies + ENDS + i;
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
