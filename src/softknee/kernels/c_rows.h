/* The rows of a tensor, which the kernels of one definition walk over. CHUNK and PARAMS are defined before it. */

/* A tensor in the order of its storage is (outer, channels, inner): rows of `inner` elements, one after another, of which
   each has a channel. A piece is a part of a row, of CHUNK elements at most. */
typedef struct Work {
    const void *g, *x;
    void *y;
    double *sums; /* of each parameter, one per piece */
    int64_t rows, channels, inner, pieces, per_task; /* pieces of a row */
    int type;
    unsigned steps; /* a bit for each parameter: whether it has a number for each channel */
    const float *values[PARAMS + 1];
    void (*piece)(const struct Work *, int64_t index, int64_t start, int64_t end, const float *params);
} Work;

static void take_pieces(const void *argument, int64_t task) {
    const Work *work = argument;
    float params[PARAMS + 1];
    int64_t all = work->rows * work->pieces, first = task * work->per_task;
    int64_t last = first + work->per_task < all ? first + work->per_task : all;
    for (int64_t index = first; index < last; ++index) {
        int64_t row = index / work->pieces, channel = row % work->channels, part = index % work->pieces * CHUNK;
        int64_t start = row * work->inner, end = work->inner - part < CHUNK ? work->inner : part + CHUNK;
        for (int i = 0; i < PARAMS; ++i) params[i] = work->values[i][work->steps >> i & 1 ? channel : 0];
        work->piece(work, index, start + part, start + end, params);
    }
}

static void run_pieces(Work *work, unsigned threads) {
    work->pieces = (work->inner + CHUNK - 1) / CHUNK;
    work->per_task = work->inner < CHUNK ? CHUNK / work->inner : 1;
    run(take_pieces, work, (work->rows * work->pieces + work->per_task - 1) / work->per_task, threads);
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
