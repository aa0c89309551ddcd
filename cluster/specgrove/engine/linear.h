/* What linear.c and linear4.c share.
 *
 * Threads come from the OpenMP runtime that torch has loaded, by its entry point, so that a process has one pool of
 * them. Therefore these files are compiled without OpenMP.
 */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define PANEL 32 /* most rows of x that share one reading of the weights */

extern void GOMP_parallel(void (*work)(void *), void *job, unsigned threads, unsigned flags);

/* Lets every thread do `work` on the job; they share it out among themselves. */
static inline void run(void (*work)(void *), void *job, int threads) {
    if (threads > 1)
        GOMP_parallel(work, job, (unsigned)threads, 0);
    else
        work(job);
}

/* A bfloat16 is the upper half of a float32. */
static inline float widen(uint16_t number) {
    uint32_t bits = (uint32_t)number << 16;
    float wide;
    memcpy(&wide, &bits, 4);
    return wide;
}
