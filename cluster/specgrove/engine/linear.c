/* y = x W' + b on CPUs with AVX2 and FMA, for weights W [out, in] that are bfloat16 or, with -DINT8, 8-bit integers with
 * one float32 scale for each row of W.
 *
 * Each weight is read from memory once for all rows of x, widened in a register (a bfloat16 is the upper half of a
 * float32) and multiplied into float32 sums; the end scales and rounds once, to nearest even.
 *
 * Order of a sum: of each 16 numbers from the left, lane l adds two, number 2l and then 2l + 1 (bfloat16) or number l and
 * then l + 8 (integers); the 8 lanes are added at the end in a fixed order. It depends neither on the number of rows nor
 * on that of threads nor on the tile which computes a row, so a row has the same bits in any company.
 */
#include "linear.h"

#define COLS 24    /* rows of W in a chunk; a multiple of the width of every tile */
#define DEPTH 1024 /* numbers along `in` in a block: the x and W of a tile fit a first-level cache */
#define STEP 16    /* weights in a vector */

#ifdef INT8
typedef int8_t number;
#define LINE 64 /* weights in a cache line */
#else
typedef uint16_t number;
#define LINE 32
#endif

typedef struct {
    const number *weight;   /* [out, in] */
    const float *scale;     /* [out] or NULL */
    const uint16_t *bias;   /* [out] or NULL */
    const float *x;         /* [rows, depth], as `pack` leaves it */
    uint16_t *y;            /* [rows, out] */
    long rows, in, out, depth;
    long taken; /* chunks that threads have taken so far */
} Job;

/* Where number k of 16 stands in a packed row: the order in which `first_half` and `second_half` give weights. */
static inline long place(long k) {
#ifdef INT8
    return k;
#else
    return (k % 2) * 8 + k / 2;
#endif
}

/* Rows in float32, in that order; zeros fill the last 16. */
static void pack(const uint16_t *x, float *packed, long rows, long in, long depth) {
    for (long r = 0; r < rows; r++, x += in, packed += depth) {
        long whole = in - in % STEP;
        for (long k = 0; k < whole; k += STEP)
            for (long l = 0; l < STEP; l++) packed[k + place(l)] = widen(x[k + l]);
        if (whole == in) continue;
        memset(packed + whole, 0, STEP * 4);
        for (long k = whole; k < in; k++) packed[whole + place(k - whole)] = widen(x[k]);
    }
}

#ifdef INT8
static inline __m256 eight(const int8_t *weights) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)weights)));
}

static inline __m256 first_half(const int8_t *weights) { return eight(weights); }

static inline __m256 second_half(const int8_t *weights) { return eight(weights + 8); }
#else
static const uint32_t UPPER[8] __attribute__((aligned(32))) = {0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000,
                                                              0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};

static inline __m256 first_half(const uint16_t *weights) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)weights), 16));
}

static inline __m256 second_half(const uint16_t *weights) {
    __m256i pair = _mm256_loadu_si256((const __m256i *)weights);
    __asm__("vpand %1, %0, %0" : "+x"(pair) : "m"(*(const __m256i *)UPPER)); /* no register is left to hold it */
    return _mm256_castsi256_ps(pair);
}
#endif

static inline __m256 load_once(const float *x) {
    __m256 row;
    __asm__("vmovups %1, %0" : "=x"(row) : "m"(*(const __m256_u *)x)); /* gcc would load it again for each product */
    return row;
}

static inline __m256 add_product(__m256 sum, __m256 wide, __m256 row) {
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(wide), "x"(row));
    return sum;
}

/* A tile's sums s<row><column> are separate variables, because gcc keeps part of an array in memory. */
#define COLS_1(DO, r) DO(r, 0)
#define COLS_3(DO, r) COLS_1(DO, r) DO(r, 1) DO(r, 2)
#define COLS_4(DO, r) COLS_3(DO, r) DO(r, 3)
#define COLS_6(DO, r) COLS_4(DO, r) DO(r, 4) DO(r, 5)
#define COLS_8(DO, r) COLS_6(DO, r) DO(r, 6) DO(r, 7)
#define ROWS_1(DO, C) DO(0, C)
#define ROWS_2(DO, C) ROWS_1(DO, C) DO(1, C)
#define ROWS_3(DO, C) ROWS_2(DO, C) DO(2, C)
#define ROWS_4(DO, C) ROWS_3(DO, C) DO(3, C)

#define LOAD_SUM(r, c) __m256 s##r##c = sums[c * rows + r];
#define LOAD_SUMS(r, C) COLS_##C(LOAD_SUM, r)
#define STORE_SUM(r, c) sums[c * rows + r] = s##r##c;
#define STORE_SUMS(r, C) COLS_##C(STORE_SUM, r)
#define FETCH(r, c) _mm_prefetch((const char *)(ahead + c * in), _MM_HINT_T1);

/* 16 numbers: the first half, then the second. 12 sums leave 4 registers. */
#define ADD(r, c) s##r##c = add_product(s##r##c, wide##c, row##r);
#define FIRST_WEIGHTS(r, c) __m256 wide##c = first_half(weights + c * pitch);
#define SECOND_WEIGHTS(r, c) wide##c = second_half(weights + c * pitch);
#define FIRST_ROW(r, C) __m256 row##r = load_once(x + r * depth + k);
#define SECOND_ROW(r, C) row##r = load_once(x + r * depth + k + 8);
/* Holding C = 3 vectors of weights, then row by row; at 4 rows every register is taken, so the one for x is fixed. */
#define ADD_ROW(r, half)                                                                                               \
    __asm__("vmovups %6, %%ymm15\n\t"                                                                                  \
            "vfmadd231ps %%ymm15, %3, %0\n\t"                                                                          \
            "vfmadd231ps %%ymm15, %4, %1\n\t"                                                                          \
            "vfmadd231ps %%ymm15, %5, %2"                                                                              \
            : "+x"(s##r##0), "+x"(s##r##1), "+x"(s##r##2)                                                              \
            : "x"(wide0), "x"(wide1), "x"(wide2), "m"(*(const __m256_u *)(x + r * depth + k + half))                   \
            : "ymm15");
#define FIRST_ROW_ADD(r, C) ADD_ROW(r, 0)
#define SECOND_ROW_ADD(r, C) ADD_ROW(r, 8)
#define BY_ROWS(R, C)                                                                                                  \
    COLS_##C(FIRST_WEIGHTS, 0) ROWS_##R(FIRST_ROW_ADD, C) COLS_##C(SECOND_WEIGHTS, 0) ROWS_##R(SECOND_ROW_ADD, C)
/* Holding R vectors of x, then column by column. */
#define FIRST_COL_1(r, c) FIRST_WEIGHTS(0, c) ADD(0, c)
#define FIRST_COL_2(r, c) FIRST_COL_1(r, c) ADD(1, c)
#define FIRST_COL_3(r, c) FIRST_COL_2(r, c) ADD(2, c)
#define FIRST_COL_4(r, c) FIRST_COL_3(r, c) ADD(3, c)
#define SECOND_COL_1(r, c) SECOND_WEIGHTS(0, c) ADD(0, c)
#define SECOND_COL_2(r, c) SECOND_COL_1(r, c) ADD(1, c)
#define SECOND_COL_3(r, c) SECOND_COL_2(r, c) ADD(2, c)
#define SECOND_COL_4(r, c) SECOND_COL_3(r, c) ADD(3, c)
#define BY_COLS(R, C)                                                                                                  \
    ROWS_##R(FIRST_ROW, C) COLS_##C(FIRST_COL_##R, 0) ROWS_##R(SECOND_ROW, C) COLS_##C(SECOND_COL_##R, 0)

/* Adds n numbers of R rows of x times C rows of W to sums[c * rows + r]. Meanwhile brings C rows of weights from
 * `ahead` on into the cache, `pace` numbers each per LINE multiplied. */
#define TILE(R, C, ORDER)                                                                                                     \
    static void tile_##R##x##C(const number *w, long in, const float *x, long depth, long n, __m256 *sums,           \
                               long rows, const number *ahead, long pace) {                                          \
        ROWS_##R(LOAD_SUMS, C)                                                                                         \
        long k = 0;                                                                                                    \
        for (; k + STEP <= n; k += STEP) {                                                                             \
            if (k % LINE == 0) {                                                                                       \
                COLS_##C(FETCH, 0)                                                                                     \
                ahead += pace;                                                                                         \
            }                                                                                                          \
            const number *weights = w + k;                                                                           \
            const long pitch = in;                                                                                     \
            ORDER(R, C)                                                                                                \
        }                                                                                                              \
        if (k < n) {                                                                                                   \
            number last[C * STEP] = {0};                                                                             \
            for (int c = 0; c < C; c++) memcpy(last + c * STEP, w + c * in + k, (size_t)(n - k) * sizeof(number));                  \
            const number *weights = last;                                                                            \
            const long pitch = STEP;                                                                                   \
            ORDER(R, C)                                                                                                \
        }                                                                                                              \
        ROWS_##R(STORE_SUMS, C)                                                                                        \
    }

TILE(1, 8, BY_COLS) TILE(2, 6, BY_COLS) TILE(3, 4, BY_COLS) TILE(4, 3, BY_ROWS)
TILE(1, 1, BY_COLS) TILE(2, 1, BY_COLS) TILE(3, 1, BY_COLS) TILE(4, 1, BY_COLS)

typedef void Tile(const number *, long, const float *, long, long, __m256 *, long, const number *, long);
static Tile *const WIDE[] = {tile_1x8, tile_2x6, tile_3x4, tile_4x3};
static Tile *const SINGLE[] = {tile_1x1, tile_2x1, tile_3x1, tile_4x1};
static const int WIDTH[] = {8, 6, 4, 3};

/* Four sums of lanes, in one order, scaled, plus a bias, rounded to nearest even. */
static __m128i finish(const __m256 *sums, long rows, __m128 scale, __m128 bias) {
    __m256 low = _mm256_hadd_ps(sums[0], sums[rows]), high = _mm256_hadd_ps(sums[2 * rows], sums[3 * rows]);
    __m256 halves = _mm256_hadd_ps(low, high);
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
    sum = _mm_add_ps(_mm_mul_ps(sum, scale), bias);
    __m128i bits = _mm_castps_si128(sum), top = _mm_srli_epi32(bits, 16);
    __m128i odd = _mm_and_si128(top, _mm_set1_epi32(1));
    __m128i near = _mm_srli_epi32(_mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd), 16);
    __m128i quiet = _mm_or_si128(top, _mm_set1_epi32(0x40));
    __m128i nan = _mm_castps_si128(_mm_cmpunord_ps(sum, sum));
    return _mm_packus_epi32(_mm_blendv_epi8(near, quiet, nan), _mm_setzero_si128());
}

static void store(const Job *job, const __m256 *sums, long first, long cols) {
    for (long c = 0; c < cols; c += 4) {
        long count = cols - c < 4 ? cols - c : 4;
        float bias[4] = {0}, scale[4] = {1, 1, 1, 1};
        for (long i = 0; job->bias && i < count; i++) bias[i] = widen(job->bias[first + c + i]);
        if (job->scale) memcpy(scale, job->scale + first + c, (size_t)count * 4);
        for (long r = 0; r < job->rows; r++) {
            uint16_t four[8];
            __m128i rounded = finish(sums + c * job->rows + r, job->rows, _mm_loadu_ps(scale), _mm_loadu_ps(bias));
            _mm_storeu_si128((__m128i *)four, rounded);
            memcpy(job->y + r * job->out + first + c, four, (size_t)count * 2);
        }
    }
}

/* One block: numbers [k, k + n) of `cols` rows of W from `w` on, for all rows of x. */
static void block(const Job *job, const number *w, long cols, long k, long n, __m256 *sums, const number *ahead) {
    long tiles = (job->rows + 3) / 4, start = 0;
    for (long t = 0; t < tiles; t++) {
        long end = job->rows * (t + 1) / tiles, r = end - start - 1, c = 0;
        const float *x = job->x + start * job->depth + k;
        const number *share = ahead + t * n / tiles;
        for (; c + WIDTH[r] <= cols; c += WIDTH[r])
            WIDE[r](w + c * job->in + k, job->in, x, job->depth, n, sums + c * job->rows + start, job->rows,
                    share + c * job->in, LINE / tiles);
        for (; c < cols; c++)
            SINGLE[r](w + c * job->in + k, job->in, x, job->depth, n, sums + c * job->rows + start, job->rows,
                      share + c * job->in, LINE / tiles);
        start = end;
    }
}

static void work(void *shared) {
    Job *job = shared;
    __m256 sums[COLS * PANEL];
    long blocks = (job->in + DEPTH - 1) / DEPTH, depth = (job->depth / blocks + STEP - 1) / STEP * STEP;
    long first = COLS * __atomic_fetch_add(&job->taken, 1, __ATOMIC_RELAXED);
    while (first < job->out) {
        long next = COLS * __atomic_fetch_add(&job->taken, 1, __ATOMIC_RELAXED);
        long cols = job->out - first < COLS ? job->out - first : COLS;
        const number *w = job->weight + first * job->in;
        memset(sums, 0, sizeof(__m256) * (size_t)(COLS * job->rows));
        for (long k = 0; k < job->in; k += depth) {
            long n = job->in - k < depth ? job->in - k : depth;
            const number *ahead = k + depth < job->in ? w + k + depth : job->weight + next * job->in;
            block(job, w, cols, k, n, sums, ahead);
        }
        store(job, sums, first, cols);
        first = next;
    }
}

/* x [rows, in], y [rows, out], scratch [at least PANEL * `in` rounded up to 16] float32. */
void specgrove_linear(const uint16_t *x, const number *weight, const float *scale, const uint16_t *bias, uint16_t *y,
                      float *scratch, long rows, long in, long out, int threads) {
    long depth = (in + STEP - 1) / STEP * STEP;
    for (long start = 0; start < rows; start += PANEL) {
        long count = rows - start < PANEL ? rows - start : PANEL;
        Job job = {weight, scale, bias, scratch, y + start * out, count, in, out, depth, 0};
        pack(x + start * in, scratch, count, in, depth);
        run(work, &job, threads);
    }
}
