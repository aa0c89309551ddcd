/* y = x W' + b on CPUs with AVX-512, for weights W [out, in] of four bits in groups of 32 along `in`, each group with a
 * scale: a weight is (its number - 8) times the scale. `in` is a multiple of 32.
 *
 * A group is 16 bytes: the lower half of byte l is weight l, the upper half weight 16 + l. Sixteen numbers are looked up
 * at once in a table of the sixteen values that the group's scale makes possible, which costs less than reading 16-bit
 * weights. Sums are float32; the end rounds once, to nearest even.
 *
 * Order of a sum: lane l adds, group by group, weight l and then weight 16 + l; the lanes are added at the end in a fixed
 * order. It depends neither on the number of rows nor on that of threads, so a row has the same bits in any company.
 */
#include "linear.h"

#define COLS 16  /* rows of W in a chunk; a multiple of WIDTH */
#define WIDTH 4  /* rows of W in a tile */
#define GROUP 32

typedef struct {
    const uint8_t *weight;  /* [out, in / 2] */
    const uint16_t *scale;  /* [out, in / GROUP] bfloat16 */
    const uint16_t *bias;   /* [out] or NULL, bfloat16 */
    const float *x;         /* [rows, in] */
    uint16_t *y;            /* [rows, out] */
    long rows, in, out;
    long taken; /* chunks that threads have taken so far */
} Job;

static uint16_t narrow(float number) {
    uint32_t bits;
    memcpy(&bits, &number, 4);
    if (number != number) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Sums of R rows of x with C rows of W from number `first` on, one after another in sums[c * R + r]. */
#define TILE(R, C)                                                                                                     \
    static void tile_##R##x##C(const Job *job, long first, const float *x, float *sums) {                              \
        const __m512 values = _mm512_set_ps(7, 6, 5, 4, 3, 2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8);                   \
        const long groups = job->in / GROUP;                                                                           \
        const uint8_t *w = job->weight + first * (job->in / 2);                                                        \
        const uint16_t *scale = job->scale + first * groups;                                                           \
        __m512 s[C][R];                                                                                                \
        for (int c = 0; c < C; c++)                                                                                    \
            for (int r = 0; r < R; r++) s[c][r] = _mm512_setzero_ps();                                                 \
        for (long g = 0; g < groups; g++) {                                                                            \
            const float *part = x + g * GROUP;                                                                         \
            for (int c = 0; c < C; c++) {                                                                              \
                const uint8_t *group = w + c * (job->in / 2) + g * (GROUP / 2);                                        \
                _mm_prefetch((const char *)(group + 512), _MM_HINT_T0);                                                \
                __m512 table = _mm512_mul_ps(values, _mm512_set1_ps(widen(scale[c * groups + g])));                    \
                __m512i pair = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)group));                          \
                __m512 low = _mm512_permutexvar_ps(pair, table);                                                       \
                __m512 high = _mm512_permutexvar_ps(_mm512_srli_epi32(pair, 4), table);                                \
                for (int r = 0; r < R; r++) {                                                                          \
                    s[c][r] = _mm512_fmadd_ps(low, _mm512_loadu_ps(part + r * job->in), s[c][r]);                      \
                    s[c][r] = _mm512_fmadd_ps(high, _mm512_loadu_ps(part + r * job->in + 16), s[c][r]);                \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        for (int c = 0; c < C; c++)                                                                                    \
            for (int r = 0; r < R; r++) sums[c * R + r] = _mm512_reduce_add_ps(s[c][r]);                               \
    }

TILE(1, 4) TILE(2, 4) TILE(3, 4) TILE(4, 4)
TILE(1, 1) TILE(2, 1) TILE(3, 1) TILE(4, 1)

typedef void Tile(const Job *, long, const float *, float *);
static Tile *const WIDE[] = {tile_1x4, tile_2x4, tile_3x4, tile_4x4};
static Tile *const SINGLE[] = {tile_1x1, tile_2x1, tile_3x1, tile_4x1};

/* All rows of x times `cols` rows of W from `first` on. */
static void chunk(const Job *job, long first, long cols) {
    for (long start = 0; start < job->rows; start += 4) {
        long r = job->rows - start < 4 ? job->rows - start : 4;
        const float *x = job->x + start * job->in;
        for (long c = 0; c < cols;) {
            float sums[4 * WIDTH];
            long width = cols - c >= WIDTH ? WIDTH : 1;
            (width == WIDTH ? WIDE : SINGLE)[r - 1](job, first + c, x, sums);
            for (long i = 0; i < width; i++) {
                float bias = job->bias ? widen(job->bias[first + c + i]) : 0;
                for (long k = 0; k < r; k++) job->y[(start + k) * job->out + first + c + i] = narrow(sums[i * r + k] + bias);
            }
            c += width;
        }
    }
}

static void work(void *shared) {
    Job *job = shared;
    for (;;) {
        long first = COLS * __atomic_fetch_add(&job->taken, 1, __ATOMIC_RELAXED);
        if (first >= job->out) return;
        chunk(job, first, job->out - first < COLS ? job->out - first : COLS);
    }
}

/* x [rows, in] and y [rows, out] bfloat16, scratch [at least PANEL * `in`] float32. */
void specgrove_linear(const uint16_t *x, const uint8_t *weight, const uint16_t *scale, const uint16_t *bias, uint16_t *y,
                      float *scratch, long rows, long in, long out, int threads) {
    for (long start = 0; start < rows; start += PANEL) {
        long count = rows - start < PANEL ? rows - start : PANEL;
        for (long i = 0; i < count * in; i++) scratch[i] = widen(x[start * in + i]);
        Job job = {weight, scale, bias, scratch, y + start * out, count, in, out, 0};
        run(work, &job, threads);
    }
}
